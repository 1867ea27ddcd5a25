"""The whole semantic request of a turn, by field, for its key.

Left out is what the provider does not act on or must not see twice: headers and other credentials, timeouts, retries,
callbacks, and whether the answer is streamed. Identifiers that the SDK makes up are named by the order in which they first
appear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, message_to_dict
from pydantic import BaseModel, SecretBytes, SecretStr

from flyteplugins.agents.core import UnserializableError, endpoint_identity, jsonable

__all__ = ["answer_models", "is_generated", "model_name", "normal_messages", "request_fields"]

_GENERATED_ID = re.compile(r"(lc_|run-|lc_run-)|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}(-\d+)?$")
_GENERATED_NAME = re.compile(r"response_format_[0-9a-f]{4}")
"""The tool's name that the SDK makes up for an output schema without a title."""

_MOVED_AT = re.compile(r"## Summarized at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")

_NOT_ASKED = frozenset(
    {
        # who is told of the call, and what becomes of its answer
        "cache", "callbacks", "callback_manager", "custom_get_token_ids", "metadata", "name", "profile", "rate_limiter",
        "tags", "verbose", "ls_structured_output_format", "structured_output_format", "include_response_headers",
        # how it is carried
        "default_headers", "extra_headers", "additional_headers", "headers", "http_client", "http_async_client",
        "http_socket_options", "max_retries", "proxy", "openai_proxy", "anthropic_proxy", "request_timeout",
        "default_request_timeout", "stream_chunk_timeout", "timeout", "max_concurrent_requests", "wait_exponential_kwargs",
        "client_args", "async_client_running", "credentials",
        # whether it is streamed
        "disable_streaming", "stream", "stream_options", "stream_usage", "streaming",
    }
)  # fmt: skip

_CLIENTS = ("root_async_client", "root_client", "_async_client", "_client")


def request_fields(
    kind: type[BaseChatModel],
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    stop: Sequence[str] | None,
    options: Mapping[str, Any],
) -> dict[str, object]:
    """Collect what the model would be asked, by field.

    Args:
        kind: The model's class.
        model: The model itself.
        messages: The conversation, system text included.
        stop: Texts that end the answer.
        options: What is bound to the model, and given with the call: tools, choice, output schema, settings.

    Raises:
        UnserializableError: An option has no JSON form; the message of the error names the path.
    """
    names = _Names()
    asked = {name: value for name, value in options.items() if name not in _NOT_ASKED and value is not None}
    tools = asked.pop("tools", None)
    return {
        "model": {
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "type": model._llm_type,
            "name": model_name(model, options),
            "base_url": _base_url(model),
        },
        "settings": _settings(model) | {"stop": list(stop) if stop else None},
        "tools": [_tool(tool, names) for tool in tools] if isinstance(tools, (list, tuple)) else tools,
        "options": {name: _option(value, names) for name, value in asked.items()},
        "messages": normal_messages(messages, names),
    }


def model_name(model: BaseChatModel, options: Mapping[str, Any] | None = None) -> str:
    """What to call a model.

    Args:
        model: The model.
        options: What is given with the call, which may name another.
    """
    chosen = (options or {}).get("model")
    if isinstance(chosen, str):
        return chosen
    for attribute in ("model_name", "model", "model_id", "deployment_name"):
        value = getattr(model, attribute, None)
        if isinstance(value, str) and value:
            return value
    return model._llm_type


def answer_models(options: Mapping[str, Any]) -> list[type[BaseModel]]:
    """The pydantic models that an answer may be an instance of."""
    return [value for value in options.values() if isinstance(value, type) and issubclass(value, BaseModel)]


def is_generated(identity: object) -> bool:
    """Whether the SDK made an identifier up."""
    return isinstance(identity, str) and _GENERATED_ID.match(identity) is not None


class _Names:
    """Identifiers that the SDK made up, by the order in which they first appear."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, value: object) -> object:
        if not is_generated(value):
            return value
        return self._known.setdefault(cast(str, value), f"id#{len(self._known)}")

    def of_tool(self, value: object) -> object:
        if not isinstance(value, str) or not _GENERATED_NAME.fullmatch(value):
            return value
        return self._known.setdefault(value, f"response_format#{len(self._known)}")


def normal_messages(messages: Sequence[BaseMessage], names: _Names | None = None) -> list[dict[str, object]]:
    """Messages as they matter to a model, without what differs each time.

    Args:
        messages: The messages.
        names: The identifiers that were seen before them.
    """
    names = names if names is not None else _Names()
    return [_message(message, names) for message in messages]


def _message(message: BaseMessage, names: _Names) -> dict[str, object]:
    kept = cast("dict[str, Any]", message_to_dict(message)["data"])
    fields: dict[str, object] = {
        "type": message.type.removesuffix("MessageChunk").lower(),
        "id": None if is_generated(kept["id"]) else kept["id"],
        "content": _content(kept["content"], names),
        "response_id": _response_id(kept.get("response_metadata")),
    }
    for name in ("name", "status", "additional_kwargs"):
        if kept.get(name):
            fields[name] = kept[name]
    if kept.get("tool_call_id"):
        fields["tool_call_id"] = names.of(kept["tool_call_id"])
    for name in ("tool_calls", "invalid_tool_calls"):
        if kept.get(name):
            fields[name] = [
                {**call, "id": names.of(call.get("id")), "name": names.of_tool(call.get("name"))} for call in kept[name]
            ]
    if fields.get("name") is not None:
        fields["name"] = names.of_tool(fields["name"])
    return fields


def _content(content: Any, names: _Names) -> object:
    if not isinstance(content, list):
        return _text(content)
    return [
        {
            key: names.of(value) if key in ("id", "tool_call_id") else _text(value) if key == "text" else value
            for key, value in block.items()
        }
        if isinstance(block, dict)
        else _text(block)
        for block in content
    ]


def _text(text: Any) -> Any:
    """A text without the time that Deep Agents writes over messages that it moves to a file, which a model may read."""
    return _MOVED_AT.sub("## Summarized at ", text) if isinstance(text, str) else text


def _response_id(metadata: Any) -> str | None:
    """The response on the server that the next request may continue."""
    found = metadata.get("id") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) and found.startswith("resp_") else None


def _settings(model: BaseChatModel) -> dict[str, object]:
    """The model's own fields, or what it says itself that identifies it. What is no value (a client, an iterator) is told by
    its class.

    A model of the caller's own may count in its fields, and has to say then what of them matters.
    """
    if not model.is_lc_serializable() and type(model)._identifying_params is not BaseChatModel._identifying_params:
        return dict(model._identifying_params)
    settings: dict[str, object] = {}
    for name, field in type(model).model_fields.items():
        if name in _NOT_ASKED or field.exclude:
            continue
        value = getattr(model, name, None)
        if value is None or isinstance(value, (SecretStr, SecretBytes)) or callable(value):
            continue
        if isinstance(value, str) and re.match(r"https?://", value):
            value = endpoint_identity(value)
        if name == "model_kwargs":
            value = {key: item for key, item in cast("dict[str, Any]", value).items() if key not in _NOT_ASKED}
        try:
            jsonable(value)
        except UnserializableError:
            value = {"class": f"{type(value).__module__}.{type(value).__qualname__}"}
        settings[name] = value
    return settings


def _base_url(model: BaseChatModel) -> str | None:
    """Where the model is, as its client resolved it, without the port of a server on this machine."""
    for name in _CLIENTS:
        url = getattr(getattr(model, name, None), "base_url", None)
        if url is not None:
            return endpoint_identity(str(url))
    return None


def _tool(tool: Any, names: _Names) -> object:
    if isinstance(tool, dict):
        tool = {key: names.of_tool(value) if key == "name" else value for key, value in tool.items()}
        if isinstance(tool.get("function"), dict):
            function = tool["function"]
            tool["function"] = {**function, "name": names.of_tool(function.get("name"))}
    return _option(tool, names)


def _option(value: Any, names: _Names) -> object:
    """An option's value; for a class its schema, since that is what the model is told."""
    if isinstance(value, type) and issubclass(value, BaseModel):
        return {"name": value.__name__, "schema": value.model_json_schema()}
    if isinstance(value, dict):
        return {key: _option(names.of_tool(item) if key == "name" else item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_option(item, names) for item in value]
    return value
