"""Memory as the SDK's messages.

A transcript is a log: what a run took out of the conversation is noted behind it, as the SDK's own remove messages, so that
deletions and summaries persist, and two runs that write at once lose nothing. A message is known by its contents, and by its
number among equal ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    RemoveMessage,
    ToolMessage,
    convert_to_messages,
    message_to_dict,
    messages_from_dict,
)

from flyteplugins.agents.core import JSON, RunMemory, V0Content, digest

from ._codec import pack, unpack
from ._request import is_generated

__all__ = ["SDK", "import_v0", "load_history", "new_messages", "repair_messages"]

SDK = "langchain"
"""Whose messages the transcript holds."""

NO_OUTPUT = "The run ended before this tool returned. Whether it had an effect is not known."
_PREFIX = "lc_kept-"


def repair_messages(kept: list[JSON]) -> list[JSON]:
    """Make a kept conversation acceptable to a model.

    What was removed is left out. A tool call without a result gets one that says so, behind the results of the same turn. A
    result without a call before it, or a second one for a call, is dropped.

    Args:
        kept: The messages as they are kept, oldest first. They are not changed.

    Returns:
        Messages, each with an id by which a run can remove it; equal for equal ones, in every process.
    """
    messages = _with_ids(kept)
    repaired: list[BaseMessage] = []
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id in waiting:
                waiting.remove(message.tool_call_id)
                repaired.append(message)
            continue
        repaired += _made_up(waiting)
        repaired.append(message)
        waiting = [call["id"] or "" for call in message.tool_calls] if isinstance(message, AIMessage) else []
    return [pack(message_to_dict(message)) for message in [*repaired, *_made_up(waiting)]]


def _made_up(waiting: list[str]) -> list[BaseMessage]:
    return [
        ToolMessage(NO_OUTPUT, tool_call_id=call, status="error", id=f"{_PREFIX}no-output-{call}") for call in waiting
    ]


def _with_ids(kept: Sequence[JSON]) -> list[BaseMessage]:
    seen: Counter[str] = Counter()
    found: dict[str, BaseMessage] = {}
    for item in kept:
        fields = cast("dict[str, Any]", item)
        if fields.get("type") == "remove":
            found.pop(fields["data"]["id"], None)
            continue
        name = digest(item)[:16]
        seen[name] += 1
        message = messages_from_dict([unpack(item)])[0]
        if message.id is None:
            message = message.model_copy(update={"id": f"{_PREFIX}{name}-{seen[name]}"})
        found[cast(str, message.id)] = message
    return list(found.values())


def import_v0(files: Mapping[str, bytes]) -> V0Content:
    """Take over a history that Flyte's own store has: messages as the SDK writes them, or in the format of Chat Completions.

    Args:
        files: The file with a JSON list of them.

    Raises:
        ValueError: It holds no messages.
    """
    items = [item for data in files.values() for item in json.loads(data)]
    return V0Content(
        [
            item if isinstance(item, dict) and "data" in item else _plain(convert_to_messages([item])[0])
            for item in items
        ]
    )


def load_history(memory: RunMemory) -> list[BaseMessage]:
    """The messages that a run starts from.

    Args:
        memory: The run's memory, opened with `repair_messages`.
    """
    return messages_from_dict([unpack(item) for item in memory.history])


def new_messages(history: Sequence[BaseMessage], messages: Sequence[BaseMessage]) -> list[JSON]:
    """What a run leaves to its memory: what it took out of the conversation, and what it added.

    Args:
        history: The messages that the run started from.
        messages: The messages that it ended with.
    """
    same = 0
    while same < min(len(history), len(messages)) and _is_same(history[same], messages[same]):
        same += 1
    removed: list[BaseMessage] = [RemoveMessage(id=cast(str, message.id)) for message in history[same:]]
    return [*(pack(message_to_dict(item)) for item in removed), *(_plain(item) for item in messages[same:])]


def _is_same(one: BaseMessage, other: BaseMessage) -> bool:
    return one is other or (one.id == other.id and _plain(one) == _plain(other))


def _plain(message: BaseMessage) -> JSON:
    """A message as it is kept: without an id that the SDK made up, and without the pieces that it came in."""
    kept = message_to_dict(message)
    if is_generated(kept["data"].get("id")):
        kept["data"]["id"] = None
    return pack(kept)
