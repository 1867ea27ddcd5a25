"""Memory: the entries of a conversation, and where the server keeps it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from flyteplugins.agents.core import JSON, V0Content, digest

from ._entries import Entry, sendable

__all__ = ["SDK", "KeptConversation", "Transcript", "import_v0", "marker", "read_transcript", "repair_entries"]

SDK = "mistral"
"""Whose messages the transcript holds."""

_MARKER = "flyte.conversation"
"""The type of what stands in the transcript for the server's copy of the conversation. It is never sent."""

_NO_RESULT = "Error: this call has no result. The run that made it ended before it had one."


@dataclass(frozen=True)
class KeptConversation:
    """The server's copy of a transcript.

    Attributes:
        conversation_id: Its id.
        last: The id of its last entry.
    """

    conversation_id: str
    last: str | None


@dataclass(frozen=True)
class Transcript:
    """What a memory holds.

    Attributes:
        entries: The entries, oldest first.
        kept: The server's copy of them, where there is one that the run can go on from.
        imported: A conversation on the server that stands for everything so far: a memory of flyteplugins-agents 2.x held nothing
            else.
    """

    entries: list[Entry]
    kept: KeptConversation | None = None
    imported: str | None = None


def read_transcript(messages: Sequence[JSON], *, frozen: str) -> Transcript:
    """Read a transcript.

    Args:
        messages: What the memory holds.
        frozen: A digest of what the run asks with and a conversation keeps from its start.

    Returns:
        The entries, and the server's copy of them: only one that holds exactly these entries, and was started with the same
        tools, instructions and model. With any other the model would answer something else than was said.
    """
    entries = [cast(Entry, message) for message in messages if cast(Entry, message).get("type") != _MARKER]
    marks = [cast(Entry, message) for message in messages if cast(Entry, message).get("type") == _MARKER]
    last: dict[str, Any] = marks[-1] if marks else {}
    if last.get("frozen") == frozen and last["transcript"] == digest(sendable(entries)):
        return Transcript(entries, KeptConversation(last["conversation_id"], last["last_entry_id"]))
    if last and not entries:
        return Transcript([], imported=last["conversation_id"])
    return Transcript(entries)


def import_v0(files: Mapping[str, bytes]) -> V0Content:
    """Take over a memory of flyteplugins-agents 2.x, which is the id of a conversation on the server.

    Args:
        files: One file with the id.

    Raises:
        ValueError: It holds no id.
    """
    [(path, data)] = files.items()
    conversation_id = data.decode().strip().strip('"')
    if not conversation_id or len(conversation_id.split()) != 1:
        raise ValueError(f"{path} holds no conversation id")
    return V0Content([{"type": _MARKER, "conversation_id": conversation_id}])


def marker(transcript: Sequence[Entry], *, frozen: str, conversation_id: str, last: str | None) -> JSON:
    """What is put into the transcript for the server's copy.

    Args:
        transcript: All entries, those of this run included.
        frozen: See `read_transcript`.
        conversation_id: The conversation's id.
        last: The id of its last entry.
    """
    return {
        "type": _MARKER,
        "conversation_id": conversation_id,
        "last_entry_id": last,
        "frozen": frozen,
        "transcript": digest(sendable(transcript)),
    }


def repair_entries(messages: list[JSON]) -> list[JSON]:
    """Mend a transcript in which a call has no result, or a result no call: a provider refuses both.

    Args:
        messages: What the memory holds.

    Returns:
        The messages, with a result that says so behind each such call, and without results that answer nothing.
    """
    entries = [cast(Entry, message) for message in messages]
    calls = {entry["tool_call_id"] for entry in entries if entry.get("type") == "function.call"}
    answered = {entry["tool_call_id"] for entry in entries if entry.get("type") == "function.result"}
    mended: list[Entry] = []
    dangling: list[str] = []
    for entry in entries:
        kind = entry.get("type")
        if dangling and kind != "function.call":
            mended += [_no_result(call) for call in dangling]
            dangling = []
        if kind == "function.result" and entry["tool_call_id"] not in calls:
            continue
        mended.append(entry)
        if kind == "function.call" and entry["tool_call_id"] not in answered and not entry.get("confirmation_status"):
            dangling.append(entry["tool_call_id"])
    mended += [_no_result(call) for call in dangling]
    return cast("list[JSON]", mended)


def _no_result(call: str) -> Entry:
    return {"type": "function.result", "tool_call_id": call, "result": _NO_RESULT}
