"""What makes one model request different from another.

All of the request is part of its key, and nothing else: the SDK stamps messages with clocks, run ids and, where a provider
gave none, tool call ids of its own making, in which two attempts of one run differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from flyteplugins.agents.core import JSON, UnserializableError, endpoint_identity, rename_generated_ids
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, UserContent, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.wrapper import WrapperModel

__all__ = [
    "input_identity",
    "json_values",
    "message_identity",
    "model_identity",
    "model_name",
    "request_fields",
]

_PARAMETERS = TypeAdapter(ModelRequestParameters)

_MESSAGE_STAMPS = frozenset({"timestamp", "run_id", "conversation_id", "metadata"})
"""Fields of a message or of one of its parts that no provider is sent."""

_SETS = ("revealed_tool_names", "introduced_tool_names", "deferred_capability_ids")

_TOOL_PARAMETERS = ("function_tools", "native_tools", "tool_visibility", *_SETS)
_OUTPUT_PARAMETERS = (
    "output_mode",
    "output_object",
    "output_tools",
    "prompted_output_template",
    "allow_text_output",
    "allow_image_output",
)

_LOCAL_TOOL_FIELDS = frozenset({"metadata", "timeout", "sequential", "toolset_id", "capability_id"})
"""Fields of a tool's definition that the model is not told of."""

_CREDENTIALS = frozenset({"authorization_token", "authorization", "headers"})
"""Fields of a native tool that differ when a secret is rotated."""

_TRANSPORT_SETTINGS = frozenset({"timeout", "request_timeout", "first_event_timeout", "max_retries"})
"""Settings of the connection: the answer does not depend on them."""

_SECRET_HEADERS = ("authorization", "api-key", "apikey", "cookie", "token")


def request_fields(
    *,
    model: Model,
    messages: Sequence[ModelMessage],
    settings: Mapping[str, Any] | None,
    parameters: ModelRequestParameters,
) -> dict[str, object]:
    """Collect what the model would be asked, by field.

    Args:
        model: The model itself.
        messages: The conversation.
        settings: The request's settings; the model's own count below them.
        parameters: Tools, output and instructions.

    Raises:
        UnserializableError: Part of the request has no JSON form; the message names it.
    """
    dumped = _dump_parameters(parameters)
    tools = {name: dumped.pop(name, None) for name in _TOOL_PARAMETERS}
    output = {name: dumped.pop(name, None) for name in _OUTPUT_PARAMETERS}
    return {
        "model": model_identity(model),
        "settings": _settings({**(model.settings or {}), **(settings or {})}),
        "tools": tools,
        "output_type": output,
        "instructions": dumped.pop("instruction_parts", None),
        "options": dumped,
        "messages": message_identity(messages),
    }


def model_name(model: Model) -> str:
    """What to call a model."""
    return model.model_name


def model_identity(model: Model) -> JSON:
    """Which model is asked, and where: its class, its name and its base URL.

    Args:
        model: The model. Instrumentation around it makes no other request, and is left out; any other wrapper counts.
    """
    if isinstance(model, InstrumentedModel):
        return model_identity(model.wrapped)
    kind = type(model)
    identity: dict[str, JSON] = {"class": f"{kind.__module__}.{kind.__qualname__}"}
    if isinstance(model, FallbackModel):
        return identity | {"models": [model_identity(one) for one in model.models]}
    if isinstance(model, WrapperModel):
        return identity | {"wrapped": model_identity(model.wrapped)}
    url = model.base_url
    return identity | {
        "provider": model.system,
        "name": model.model_name,
        "base_url": endpoint_identity(url) if url else None,
    }


def message_identity(messages: Sequence[ModelMessage]) -> JSON:
    """A conversation as JSON values, without stamps, and with the SDK's own call ids by order of first appearance.

    Args:
        messages: The conversation. What is inside of contents and arguments stays as it is.

    Raises:
        UnserializableError: A message has no JSON form.
    """
    kept: list[JSON] = []
    for index, message in enumerate(messages):
        try:
            dumped = cast("dict[str, JSON]", ModelMessagesTypeAdapter.dump_python([message], mode="json")[0])
        except PydanticSerializationError as error:
            raise UnserializableError(f"messages[{index}]", str(error)) from error
        parts = cast("list[dict[str, JSON]]", dumped["parts"])
        stripped: dict[str, JSON] = {name: value for name, value in dumped.items() if name not in _MESSAGE_STAMPS}
        stripped["parts"] = [
            {name: value for name, value in part.items() if name not in _MESSAGE_STAMPS} for part in parts
        ]
        kept.append(stripped)
    return _rename_call_ids(kept)


def _rename_call_ids(messages: list[JSON]) -> JSON:
    """Rename the ids that parts have, and leave equal words in what people and tools said alone."""
    ids: list[JSON] = []
    for message in messages:
        for part in cast("list[dict[str, JSON]]", cast("dict[str, JSON]", message)["parts"]):
            ids.append({"tool_call_id": part.get("tool_call_id")})
    renamed = iter(cast("list[dict[str, JSON]]", rename_generated_ids(ids, _generated)))
    for message in messages:
        for part in cast("list[dict[str, JSON]]", cast("dict[str, JSON]", message)["parts"]):
            name = next(renamed)["tool_call_id"]
            if "tool_call_id" in part:
                part["tool_call_id"] = name
    return messages


def _generated(field: str, value: str) -> str | None:
    return "call" if field == "tool_call_id" and value.startswith("pyd_ai_") else None


def _dump_parameters(parameters: ModelRequestParameters) -> dict[str, JSON]:
    try:
        dumped = cast("dict[str, JSON]", _PARAMETERS.dump_python(parameters, mode="json"))
    except PydanticSerializationError as error:
        raise UnserializableError("parameters", str(error)) from error
    for name in _SETS:
        dumped[name] = cast(JSON, sorted(cast("list[str]", dumped.get(name) or [])))
    for name in ("function_tools", "output_tools"):
        dumped[name] = [
            {field: value for field, value in cast("dict[str, JSON]", tool).items() if field not in _LOCAL_TOOL_FIELDS}
            for tool in cast("list[JSON]", dumped[name])
        ]
    dumped["native_tools"] = [
        {field: value for field, value in cast("dict[str, JSON]", tool).items() if field not in _CREDENTIALS}
        for tool in cast("list[JSON]", dumped["native_tools"])
    ]
    return dumped


def _settings(settings: Mapping[str, Any]) -> JSON:
    values = {name: value for name, value in settings.items() if name not in _TRANSPORT_SETTINGS and value is not None}
    headers = values.get("extra_headers")
    if isinstance(headers, Mapping):
        values["extra_headers"] = {
            name: None if any(word in name.lower() for word in _SECRET_HEADERS) else value
            for name, value in headers.items()
        }
    return json_values(values, "settings")


def input_identity(prompt: str | Sequence[UserContent] | None) -> JSON:
    """What the user said, as JSON values: a text as it is, images and files with their contents.

    Args:
        prompt: The SDK's user prompt.
    """
    if prompt is None or isinstance(prompt, str):
        return prompt
    messages = cast("list[Any]", message_identity([ModelRequest(parts=[UserPromptPart(content=prompt)])]))
    return cast(JSON, messages[0]["parts"][0]["content"])


def json_values(value: object, path: str) -> JSON:
    """Turn a value into JSON values as the SDK does.

    Args:
        value: Anything.
        path: What to call the value in an error.

    Raises:
        UnserializableError: It has no JSON form.
    """
    try:
        return cast(JSON, to_jsonable_python(value, inf_nan_mode="strings"))
    except (PydanticSerializationError, ValueError) as error:
        raise UnserializableError(path, str(error)) from error
