"""The whole semantic request of a turn, by field, for its key.

Left out is what the provider does not act on or must not see twice: headers (they carry credentials), timeouts, retries, whether
usage is told, and the prompt cache key that the SDK makes up for each run.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agents import FunctionTool

from flyteplugins.agents.core import endpoint_identity

if TYPE_CHECKING:
    from agents import AgentOutputSchemaBase, Handoff, Model, ModelSettings, Tool, TResponseInputItem

    from openai.types.responses.response_prompt_param import ResponsePromptParam

__all__ = ["model_name", "request_fields"]

_TRANSPORT_SETTINGS = frozenset({"extra_headers", "retry", "timeout", "preserve_raw_usage", "include_usage"})
_CREDENTIALS = frozenset({"authorization", "headers"})
_FUNCTION_TOOL_FIELDS = (
    "name",
    "description",
    "params_json_schema",
    "strict_json_schema",
    "defer_loading",
    "allowed_callers",
    "output_json_schema",
)


def request_fields(
    *,
    model: Model,
    instructions: str | None,
    messages: str | list[TResponseInputItem],
    settings: ModelSettings,
    tools: list[Tool],
    output_schema: AgentOutputSchemaBase | None,
    handoffs: list[Handoff[Any, Any]],
    previous_response_id: str | None,
    conversation_id: str | None,
    prompt: ResponsePromptParam | None,
) -> dict[str, object]:
    """Collect what the model would be asked, by field.

    Args:
        model: The model itself.
        instructions: The system text.
        messages: The conversation.
        settings: The resolved settings.
        tools: The tools that are offered.
        output_schema: The schema of the answer.
        handoffs: The hand-offs that are offered.
        previous_response_id: The response on the server that this request continues.
        conversation_id: The conversation on the server that this request continues.
        prompt: A stored prompt.
    """
    return {
        "model": _model_identity(model),
        "settings": _settings(settings),
        "instructions": instructions,
        "tools": [_tool(tool) for tool in tools],
        "handoffs": [
            {
                "tool_name": handoff.tool_name,
                "tool_description": handoff.tool_description,
                "input_json_schema": handoff.input_json_schema,
                "agent_name": handoff.agent_name,
                "strict_json_schema": handoff.strict_json_schema,
            }
            for handoff in handoffs
        ],
        "output_type": _output_schema(output_schema),
        "messages": messages,
        "previous_response_id": previous_response_id,
        "conversation_id": conversation_id,
        "prompt": prompt,
    }


def model_name(model: Model) -> str:
    """What to call a model."""
    for attribute in ("model", "model_name", "name"):
        value = getattr(model, attribute, None)
        if isinstance(value, str):
            return value
    return type(model).__qualname__


def _model_identity(model: Model) -> dict[str, object]:
    # Which client class speaks is part of it: Responses and Chat Completions are different requests.
    kind = model.__class__
    return {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "name": model_name(model),
        "base_url": _base_url(model),
    }


def _base_url(model: Model) -> str | None:
    """Where the model is, without the port of a server on this machine, which differs each time it starts."""
    client = getattr(model, "_client", None)
    url = getattr(client, "base_url", None) or getattr(model, "base_url", None)
    if url is None:
        if not model.__class__.__module__.startswith("agents.models.openai"):
            return None
        url = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1/"
    return endpoint_identity(str(url))


def _settings(settings: ModelSettings) -> dict[str, object]:
    values = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name not in _TRANSPORT_SETTINGS
    }
    extra = dict(values.get("extra_args") or {})
    if str(extra.get("prompt_cache_key", "")).startswith("agents-sdk:"):
        del extra["prompt_cache_key"]
    values["extra_args"] = extra or None
    return {name: value for name, value in values.items() if value is not None}


def _tool(tool: Tool) -> dict[str, object]:
    if isinstance(tool, FunctionTool):
        fields: dict[str, object] = {name: getattr(tool, name) for name in _FUNCTION_TOOL_FIELDS}
        fields["namespace"] = getattr(tool, "_tool_namespace", None)
        return {"type": "function"} | fields
    fields = {}
    for field in dataclasses.fields(tool):
        value: Any = getattr(tool, field.name)
        if field.name == "computer":
            value = {name: getattr(value, name, None) for name in ("environment", "dimensions")}
        if field.name.startswith("_") or callable(value) or field.name == "editor":
            continue  # what runs here, and the model is not told of
        if isinstance(value, Mapping):
            value = {key: item for key, item in value.items() if key not in _CREDENTIALS}
        fields[field.name] = value
    return {"type": type(tool).__qualname__} | fields


def _output_schema(schema: AgentOutputSchemaBase | None) -> object:
    if schema is None or schema.is_plain_text():
        return None
    return {"name": schema.name(), "json_schema": schema.json_schema(), "strict": schema.is_strict_json_schema()}
