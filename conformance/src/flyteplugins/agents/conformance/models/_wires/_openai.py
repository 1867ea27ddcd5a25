"""What OpenAI's two protocols share: the error format, and the tool choice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flyteplugins.agents.conformance.models._conversation import OfferedTool
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject

_TYPES = {401: "invalid_request_error", 404: "invalid_request_error", 429: "requests", 500: "server_error"}
_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded", 500: "server_error", 503: "server_is_overloaded"}
_MESSAGES = {
    401: "Incorrect API key provided.",
    429: "Rate limit reached for requests.",
    500: "The server had an error while processing your request.",
    503: "The engine is currently overloaded, please try again later.",
    529: "The engine is currently overloaded, please try again later.",
}


def openai_error(problem: Refusal) -> JsonObject:
    """Return an error body as OpenAI sends it."""
    status = problem.status
    fallback = "server_error" if status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": problem.message or _MESSAGES.get(status, "The request failed."),
            "type": _TYPES.get(status, fallback),
            "param": problem.param,
            "code": problem.code or _CODES.get(status),
        }
    }


def function_tools(tools: Iterable[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
    """Read the function and custom tools among `tools`; both protocols' spellings are known."""
    out: list[OfferedTool] = []
    for tool in tools:
        kind = tool.get("type")
        spec = tool.get("function") or tool.get("custom") or tool
        if kind == "namespace":
            out += function_tools(tool.get("tools") or ())
        elif kind in ("function", "custom", None) and isinstance(spec, Mapping):
            parameters = spec.get("parameters") or {}
            out.append(OfferedTool(str(spec.get("name", "")), str(spec.get("description") or ""), parameters))
    return tuple(out)


def read_tool_choice(choice: object) -> str:
    """Read a tool choice: `auto`, `none`, `required` or a tool's name."""
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        return "required" if choice == "any" else choice
    if isinstance(choice, Mapping):
        spec = choice.get("function") or choice.get("custom") or choice
        if choice.get("type") == "allowed_tools":
            return str(choice.get("mode") or "auto")
        if isinstance(spec, Mapping) and "name" in spec:
            return str(spec["name"])
    return "auto"
