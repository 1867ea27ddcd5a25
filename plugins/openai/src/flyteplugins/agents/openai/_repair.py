"""Kept messages as the Responses API accepts them: no tool call without its output, and no output without its call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from flyteplugins.agents.core import JSON

__all__ = ["repair_items"]

NO_OUTPUT = "The run ended before this tool returned. Whether it had an effect is not known."

_OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
}
_CALL_OF = {output: call for call, output in _OUTPUT_OF.items()}
_ANSWERED = ("function_call", "custom_tool_call")
"""Calls whose output is a text, so that one can be made up. The SDK itself drops the others where they dangle."""


def repair_items(items: list[JSON]) -> list[JSON]:
    """Make a kept conversation acceptable to the API.

    A function call without an output gets one that says so, behind the outputs of the same turn. An output without a call
    before it, or a second one for a call, is dropped. Messages of Flyte's own agents, which are kept in the format of Chat
    Completions, become items of the Responses API.

    Args:
        items: The items, oldest first. They are not changed.

    Returns:
        The items to send; equal for equal items, in every process.
    """
    repaired: list[JSON] = []
    waiting: dict[tuple[str, str], dict[str, JSON]] = {}  # calls without an output so far, by kind and id
    seen_output = False
    for item in _responses_items(items):
        kind = _kind(item)
        call_id = _call_id(item)
        if kind in _CALL_OF:
            if waiting.pop((_CALL_OF[kind], call_id), None) is None:
                continue
            repaired.append(item)
            seen_output = True
            continue
        if seen_output or kind not in (*_OUTPUT_OF, "reasoning"):  # the turn of the waiting calls is over
            repaired += _made_up(waiting)
            seen_output = False
        if kind in _OUTPUT_OF:
            waiting[kind, call_id] = cast("dict[str, JSON]", item)
        repaired.append(item)
    return repaired + _made_up(waiting)


def _made_up(waiting: dict[tuple[str, str], dict[str, JSON]]) -> list[JSON]:
    """Outputs for the calls that can have one; they wait no more."""
    outputs: list[JSON] = []
    for kind, call_id in list(waiting):
        if kind in _ANSWERED:
            del waiting[kind, call_id]
            outputs.append({"type": _OUTPUT_OF[kind], "call_id": call_id, "output": NO_OUTPUT})
    return outputs


def _kind(item: JSON) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else "message"


def _call_id(item: JSON) -> str:
    if not isinstance(item, dict):
        return ""
    return str(item.get("call_id") or item.get("id") or "")


def _responses_items(items: list[JSON]) -> Iterator[JSON]:
    """Turn messages in the format of Chat Completions into items."""
    for item in items:
        fields: dict[str, JSON] = item if isinstance(item, dict) else {}
        content = fields.get("content")
        match fields:
            case {"role": "tool", "tool_call_id": str(call_id)}:
                output = content if isinstance(content, str) else _text(content)
                yield {"type": "function_call_output", "call_id": call_id, "output": output}
            case {"role": "assistant", "tool_calls": list(calls)}:
                if content:
                    yield {"role": "assistant", "content": content}
                for call in calls:
                    match call:
                        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
                            yield {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
            case _:
                yield item


def _text(content: JSON) -> str:
    """The text of a content that is in parts."""
    if not isinstance(content, list):
        return ""
    parts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(part for part in parts if isinstance(part, str))
