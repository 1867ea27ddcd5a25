"""What a turn is recognized by: the whole semantic request, as JSON values by field."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, cast

from google.adk.models import BaseLlm, Gemini
from google.adk.models.llm_request import LlmRequest
from google.genai import types
from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from flyteplugins.agents.core import JSON, UnserializableError, endpoint_identity, rename_generated_ids

__all__ = ["content_values", "model_identity", "request_fields"]

_CALL_ID = re.compile(r"adk-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_OF_THE_CONNECTION = frozenset(
    {"model", "base_url", "client", "client_kwargs", "retry_options", "timeout", "num_retries"}
)
_SECRET = re.compile(r"key|token|secret|credential|password|authorization|headers|cookie", re.IGNORECASE)
_COUNTS = re.compile(r"(max|min).*tokens|token_(count|limit|budget)|tokens?_per", re.IGNORECASE)
_PLACES = ("base_url", "api_base", "api_version")


def request_fields(model: BaseLlm, identity: JSON, request: LlmRequest) -> dict[str, object]:
    """Take a request apart.

    Args:
        model: The model that is asked.
        identity: What `model_identity` said of it.
        request: The request, as the SDK is about to send it.

    Returns:
        The fields of the turn's key. Connection settings, caches and the SDK's own call ids are no part of them.

    Raises:
        UnserializableError: Something in it has no JSON form; the error names the path.
    """
    settings: dict[str, JSON] = {}
    fields: dict[str, object] = {
        "model": request.model or model.model,
        "provider": identity,
        "messages": content_values(request.contents),
        "server_state": request.previous_interaction_id,
        "service_tier": _plain(request.service_tier, "service_tier"),
    }
    config = request.config
    for name in type(config).model_fields:
        value = getattr(config, name)
        if value is None:
            continue
        match name:
            case "system_instruction":
                fields["instructions"] = _plain(value, "instructions")
            case "tools":
                fields["tools"] = [_tool(tool, f"tools[{number}]") for number, tool in enumerate(value)]
            case "tool_config":
                fields["tool_choice"] = _plain(value, "tool_choice")
            case "response_schema" | "response_json_schema":
                fields["output_type"] = _schema(value)
            case "http_options":
                settings |= _body_options(value)
            case "cached_content":  # where the server keeps what is in the request anyway
                continue
            case _:
                settings[name] = _plain(value, f"settings.{name}")
    fields["settings"] = settings
    return fields


def content_values(contents: list[types.Content]) -> JSON:
    """Messages as JSON values, with the SDK's made-up call ids renamed by order of first appearance.

    Args:
        contents: The SDK's messages.
    """
    dumped = [content.model_dump(mode="json", exclude_none=True) for content in contents]
    return rename_generated_ids(
        cast(JSON, dumped), lambda field, text: "call" if field == "id" and _CALL_ID.fullmatch(text) else None
    )


def model_identity(model: BaseLlm) -> JSON:
    """Which model it is: its class, place and configuration, without credentials and connections.

    Args:
        model: The model, before it was asked anything: some count.
    """
    kind = type(model)
    identity: dict[str, JSON] = {"class": f"{kind.__module__}.{kind.__qualname__}", "place": _place(model)}
    configuration: dict[str, JSON] = {}
    for name, field in kind.model_fields.items():
        if field.exclude or name in _OF_THE_CONNECTION or _is_secret(name):
            continue
        value = getattr(model, name)
        if value != field.get_default(call_default_factory=True, validated_data={}):
            configuration[name] = _configured(value)
    additional = getattr(model, "_additional_args", None)  # what LiteLlm hands to its library
    if isinstance(additional, Mapping):
        for name, value in sorted(additional.items()):
            if not _is_secret(name) and name not in _OF_THE_CONNECTION and name not in _PLACES:
                configuration[name] = _configured(value)
    identity["configuration"] = configuration
    return identity


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(name)) and not _COUNTS.search(name)


def _place(model: BaseLlm) -> str:
    additional = getattr(model, "_additional_args", None)
    given = dict(additional) if isinstance(additional, Mapping) else {}
    url = given.get("api_base") or given.get("base_url") or getattr(model, "base_url", None)
    if not url and isinstance(model, Gemini):
        options = getattr(getattr(model.client, "_api_client", None), "_http_options", None)
        if options is None:
            options = (model.client_kwargs or {}).get("http_options")
        found = options.get("base_url") if isinstance(options, dict) else getattr(options, "base_url", None)
        url = found or os.environ.get("GOOGLE_GEMINI_BASE_URL")
    return endpoint_identity(str(url)) if url else ""


def _configured(value: object) -> JSON:
    """A value of a model's configuration. What has no JSON form is a client or a function: which class it has, tells enough."""
    try:
        return cast(JSON, to_jsonable_python(value, exclude_none=True))
    except (PydanticSerializationError, ValueError):
        kind = type(value)
        return {"$class": f"{kind.__module__}.{kind.__qualname__}"}


def _plain(value: object, path: str) -> JSON:
    if isinstance(value, BaseModel):
        return cast(JSON, value.model_dump(mode="json", exclude_none=True))
    try:
        return cast(JSON, to_jsonable_python(value, exclude_none=True))
    except (PydanticSerializationError, ValueError) as error:
        raise UnserializableError(path, str(error)) from error


def _tool(tool: object, path: str) -> JSON:
    if isinstance(tool, BaseModel):
        values = tool.model_dump(mode="json", exclude_none=True)
        for declaration in values.get("function_declarations") or []:
            for name in ("parameters_json_schema", "response_json_schema"):
                if name in declaration:
                    declaration[name] = _schema(declaration[name])
        return cast(JSON, values)
    if isinstance(tool, Mapping):
        return _plain(dict(tool), path)
    kind = type(tool)
    raise UnserializableError(
        path,
        f"it is a {kind.__module__}.{kind.__qualname__}. Give functions to the agent as tools, not to its configuration.",
    )


def _schema(value: Any) -> JSON:
    """A schema, whatever the SDK takes for one: a class has its fields in the key, and not only its name."""
    if isinstance(value, BaseModel):
        return cast(JSON, value.model_dump(mode="json", exclude_none=True))
    if isinstance(value, Mapping):
        return _plain(dict(value), "output_type")
    try:
        return {"type": str(value), "schema": cast(JSON, TypeAdapter(value).json_schema())}
    except Exception as error:  # whatever pydantic makes of a type that it does not know
        raise UnserializableError("output_type", f"{value!r} has no JSON schema: {error}") from error


def _body_options(options: Any) -> dict[str, JSON]:
    """What connection options add to the request's body, and where they send it."""
    values = (
        options
        if isinstance(options, Mapping)
        else {"extra_body": options.extra_body, "base_url": options.base_url, "api_version": options.api_version}
    )
    found: dict[str, JSON] = {}
    if values.get("extra_body"):
        found["extra_body"] = _plain(values["extra_body"], "settings.http_options.extra_body")
    if values.get("base_url"):
        found["base_url"] = endpoint_identity(str(values["base_url"]))
    if values.get("api_version"):
        found["api_version"] = str(values["api_version"])
    return found
