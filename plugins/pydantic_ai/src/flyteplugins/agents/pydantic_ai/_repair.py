"""Kept messages as the SDK and providers accept them: no tool call without its result, and no result without its call."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, cast

from flyteplugins.agents.core import JSON, Repair, V0Content, import_v0_list

__all__ = ["import_history", "repair_messages", "repair_for"]

NO_RESULT = "The run ended before this tool returned. Whether it had an effect is not known."

_ANSWERS = ("tool-return", "retry-prompt")


def repair_for(*, answered: bool) -> Repair:
    """Choose what is repaired.

    Args:
        answered: Whether the run brings the results of the calls that the conversation ends with.
    """
    return functools.partial(repair_messages, keep_last=answered)


def repair_messages(messages: list[JSON], *, keep_last: bool = False) -> list[JSON]:
    """Make a kept conversation acceptable.

    A call without a result gets one that says so, in the request that follows it. A result without a call before it is dropped.

    Args:
        messages: Messages as JSON values, oldest first. They are not changed.
        keep_last: Whether calls of the last response may wait for their results.

    Returns:
        The messages to send; equal for equal messages, in every process.
    """
    repaired: list[dict[str, Any]] = []
    waiting: dict[str, dict[str, Any]] = {}  # calls of the latest response, by id
    for message in cast("list[dict[str, Any]]", copy.deepcopy(messages)):
        if message.get("kind") == "response":
            _answer(repaired, waiting)
            waiting = {part["tool_call_id"]: part for part in message["parts"] if part.get("part_kind") == "tool-call"}
        else:
            kept = []
            for part in message["parts"]:
                is_answer = part.get("part_kind") in _ANSWERS and part.get("tool_name") is not None
                if not is_answer or waiting.pop(part.get("tool_call_id"), None) is not None:
                    kept.append(part)
            made_up = [_made_up(call, repaired[-1].get("timestamp")) for call in waiting.values()]
            waiting = {}
            message["parts"] = made_up + kept
            if not message["parts"]:
                continue
        repaired.append(message)
    if not keep_last:
        _answer(repaired, waiting)
    return cast("list[JSON]", repaired)


def _answer(messages: list[dict[str, Any]], waiting: Mapping[str, dict[str, Any]]) -> None:
    """Add a request with results for the calls that wait."""
    if waiting:
        when = messages[-1].get("timestamp")
        parts = [_made_up(call, when) for call in waiting.values()]
        messages.append({"kind": "request", "parts": parts, "timestamp": when})


def _made_up(call: Mapping[str, Any], when: object) -> dict[str, Any]:
    return {
        "part_kind": "tool-return",
        "tool_name": call["tool_name"],
        "tool_call_id": call["tool_call_id"],
        "content": NO_RESULT,
        "timestamp": when,
        "outcome": "failed",
    }


def import_history(files: Mapping[str, bytes]) -> V0Content:
    """Take over a history that another implementation kept in the SDK's own format.

    Args:
        files: One file with a JSON list of the SDK's messages.

    Raises:
        ValueError: It holds something else.
    """
    from ._codec import dump_messages, load_messages

    return V0Content(dump_messages(load_messages(import_v0_list(files).messages)))
