"""How what the SDK returned becomes JSON values, and comes back as it was."""

from __future__ import annotations

import json
from typing import Any, cast

import google.genai.types
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.tool_context import ToolContext
from pydantic import BaseModel

from flyteplugins.agents.core import JSON, UnserializableError, render_result

__all__ = ["ResponsesCodec", "ValueCodec", "apply_actions", "dump_actions"]

_MODEL = "$genai"
_PLAIN = "$plain"


class ResponsesCodec:
    """For the responses of a turn: one that is whole, and the pieces before it where it was streamed."""

    def encode(self, value: list[LlmResponse]) -> JSON:
        """Turn the responses into JSON values.

        Raises:
            UnserializableError: One would not come back as it is.
        """
        return [_dump_response(response, f"responses[{number}]") for number, response in enumerate(value)]

    def decode(self, payload: JSON) -> list[LlmResponse]:
        """Build the responses."""
        return [LlmResponse.model_validate(item) for item in cast("list[JSON]", payload)]


def _dump_response(response: LlmResponse, path: str) -> JSON:
    dumped = response.model_dump(mode="json", exclude_none=True)
    # by value: the SDK has subclasses of its own messages, which say nothing more
    if LlmResponse.model_validate(dumped).model_dump() != response.model_dump():
        raise UnserializableError(
            path,
            "what comes back is not what the model said. Its arguments or custom_metadata hold a value that JSON has no word "
            "for, such as NaN, a date or a set.",
        )
    return cast(JSON, dumped)


class ValueCodec:
    """For what a tool returns: JSON values, and the SDK's own parts, which carry media.

    Everything else is given as the JSON form that a model would be shown, on a first attempt as well, so that a resume sees the
    same.
    """

    def encode(self, value: object) -> JSON:
        """Turn a result into JSON values."""
        match value:
            case None | bool() | int():
                return value
            case str():
                return render_result(value)
            case dict():
                plain = {_key(key): self.encode(item) for key, item in value.items()}
                return {_PLAIN: plain} if {_MODEL, _PLAIN} & plain.keys() else cast(JSON, plain)
            case list() | tuple():
                return [self.encode(item) for item in value]
            case BaseModel() if type(value).__module__ == google.genai.types.__name__:
                return {
                    _MODEL: type(value).__name__,
                    "value": value.model_dump(mode="json", exclude_none=True),
                }
        text = render_result(value)
        try:
            return cast(JSON, json.loads(text))
        except ValueError:  # text of a class of its own, such as a StrEnum
            return text

    def decode(self, payload: JSON) -> object:
        """Build the result."""
        match payload:
            case {"$genai": str() as name, "value": fields}:
                kind: type[BaseModel] = getattr(google.genai.types, name)
                return kind.model_validate(fields)
            case {"$plain": dict() as plain}:
                return {key: self.decode(item) for key, item in plain.items()}
            case dict():
                return {key: self.decode(item) for key, item in payload.items()}
            case list():
                return [self.decode(item) for item in payload]
        return payload


def _key(key: object) -> str:
    return key if isinstance(key, str) else render_result(key)


_BY_CALL = ("requested_tool_confirmations", "requested_auth_configs")
"""Fields of actions that are keyed by the call's id, which the SDK makes up anew on each attempt."""


def dump_actions(tool_context: ToolContext) -> JSON:
    """What a call did through its context, as JSON values.

    Args:
        tool_context: The call's context.

    Raises:
        UnserializableError: It put something into the state that has no JSON form.
    """
    actions = tool_context.actions
    kept: dict[str, Any] = actions.model_dump(mode="json", exclude_defaults=True, exclude={"state_delta"})
    for name in _BY_CALL:
        if name in kept:
            kept[name] = {
                "" if call == tool_context.function_call_id else call: one for call, one in kept[name].items()
            }
    values = ValueCodec()
    kept["state_delta"] = {}
    for name, value in actions.state_delta.items():
        if not isinstance(value, (type(None), bool, int, float, str, list, tuple, dict, BaseModel)):
            raise UnserializableError(
                f"state[{name!r}]",
                f"it is a {type(value).__module__}.{type(value).__qualname__}. Keep JSON values in the state.",
            )
        kept["state_delta"][name] = values.encode(value)
    return kept


def apply_actions(payload: JSON, tool_context: ToolContext) -> None:
    """Do to a call's context what its record says that the call did.

    Args:
        payload: What `dump_actions` gave.
        tool_context: The context of the call.
    """
    kept = dict(cast("dict[str, Any]", payload))
    state = kept.pop("state_delta")
    for name in _BY_CALL:
        if name in kept:
            kept[name] = {call or tool_context.function_call_id or "": one for call, one in kept[name].items()}
    actions = EventActions.model_validate(kept)
    for name in actions.model_fields_set:
        setattr(tool_context.actions, name, getattr(actions, name))
    values = ValueCodec()
    tool_context.state.update({name: values.decode(value) for name, value in state.items()})
