"""Memory: a conversation is kept as the messages that the API knows, and Claude Code finds it in a session store.

Claude Code writes a session as a tree of entries, one per block of an answer, with ids, times, places and reminders that are the
process's own, and with a copy of the instructions and tools. Of that the messages are kept, so that the memory says the same
whatever process wrote it, and new instructions and tools apply to it. A session of the next run is made of them.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from claude_agent_sdk import InMemorySessionStore, SessionKey, SessionStoreEntry, project_key_for_directory

from flyteplugins.agents.core import JSON, V0Content, import_v0_list

__all__ = ["SDK", "SUBAGENTS", "MemorySession", "Message", "import_v0", "messages_of", "repair_messages"]

SDK = "claude"
"""Whose messages the transcript holds."""

SUBAGENTS = "claude/subagents"
"""Where a memory keeps the transcripts of sub-agents."""

Message = dict[str, Any]
"""A message as the API knows it, or a mark where earlier ones were summarized."""

_NO_RESULT = "Error: this call has no result. The run that made it ended before it had one."
_NAMESPACE = uuid.UUID("0d5c3d52-6f0a-4b0e-8f8e-3d0f5d3c5a11")
_ANSWER = ("id", "role", "model", "stop_reason", "usage")
_SYNTHETIC = "<synthetic>"
"""The model's name in what Claude Code says in its place, such as that a session was interrupted."""
_FLAGS = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")


class MemorySession(InMemorySessionStore):
    """The SDK's session store of one run: what it starts from, and what Claude Code adds.

    Args:
        history: The messages that the run starts from.
        subagents: The transcripts of sub-agents that it starts from, by path below the memory.
        cwd: The directory in which Claude Code runs, by which it finds its sessions.
    """

    def __init__(
        self, history: Sequence[JSON] = (), subagents: Mapping[str, bytes] | None = None, cwd: str | None = None
    ) -> None:
        super().__init__()
        self._history = [cast(Message, message) for message in history]
        self._kept = dict(subagents or {})
        self._cwd = cwd
        self._added: dict[str | None, list[SessionStoreEntry]] = {}
        self._known: set[str] = set()
        self.session_id = str(uuid.uuid4())

    @property
    def is_continued(self) -> bool:
        """Whether there is anything to go on from."""
        return bool(self._history)

    async def fill(self) -> None:
        """Write the session that the run starts from."""
        key: SessionKey = {"project_key": project_key_for_directory(self._cwd), "session_id": self.session_id}
        entries = _entries_of(self._history, self.session_id, self._cwd or "")
        self._known = {str(entry["uuid"]) for entry in entries}
        await super().append(key, cast("list[SessionStoreEntry]", entries))
        for path, content in self._kept.items():
            subpath = path.removeprefix("claude/").removesuffix(".jsonl")
            lines = [json.loads(line) for line in content.decode().splitlines()]
            await super().append({**key, "subpath": subpath}, lines)

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add what Claude Code wrote."""
        await super().append(key, entries)
        added = self._added.setdefault(key.get("subpath"), [])
        added += [entry for entry in entries if entry.get("uuid") not in self._known]

    def new_messages(self) -> list[JSON]:
        """What the run adds to the conversation."""
        return cast("list[JSON]", messages_of(cast("list[Mapping[str, Any]]", self._added.get(None, []))))

    def new_files(self) -> dict[str, bytes]:
        """The transcripts of the run's sub-agents, whole, by path below the memory."""
        files: dict[str, bytes] = {}
        for subpath, entries in self._added.items():
            if subpath is None:
                continue
            path = f"claude/{subpath}.jsonl"
            lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
            files[path] = self._kept.get(path, b"") + "".join(f"{line}\n" for line in lines).encode()
        return files


def import_v0(files: Mapping[str, bytes]) -> V0Content:
    """Take over a memory of flyteplugins-agents 2.x, which is a list of messages.

    Args:
        files: One file with a JSON list.

    Raises:
        ValueError: It holds something else.
    """
    content = import_v0_list(files)
    for place, message in enumerate(content.messages):
        match message:
            case {"role": "user" | "assistant", "content": str() | list()}:
                continue
        raise ValueError(f"{', '.join(files)}[{place}] is no message with a role and a content")
    return content


@dataclass
class _Slot:
    """A message, and the results of the calls in it."""

    message: Message
    results: list[dict[str, Any]] = field(default_factory=list)


def messages_of(entries: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Take the messages of a session, as the API would be sent them.

    Args:
        entries: What Claude Code wrote, in the order in which it did.

    Returns:
        Messages; blocks of one answer are together, and results stand behind it in the order of its calls.
    """
    slots: list[_Slot] = []
    answers: dict[str, _Slot] = {}
    calls: dict[str, _Slot] = {}
    for entry in entries:
        kind = entry.get("type")
        if entry.get("isSidechain") or kind not in ("user", "assistant", "system"):
            continue
        if kind == "system":
            if entry.get("subtype") == "compact_boundary":
                slots.append(
                    _Slot({"role": "system", "subtype": "compact_boundary", "content": entry.get("content", "")})
                )
            continue
        message = cast(Message, entry["message"])
        if kind == "assistant":
            if message.get("model") == _SYNTHETIC:
                continue
            slot = answers.get(str(message.get("id")))
            if slot is None:
                kept = {name: value for name, value in message.items() if name in _ANSWER}
                slot = answers[str(message.get("id"))] = _Slot({**kept, "content": []})
                slots.append(slot)
            slot.message["content"] += message["content"]
            calls |= {block["id"]: slot for block in message["content"] if block.get("type") == "tool_use"}
            continue
        content = message["content"]
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if block.get("type") == "tool_result" and block["tool_use_id"] in calls]
        for block in results:
            calls[block["tool_use_id"]].results.append(block)
        if len(results) < max(len(blocks), 1):
            rest = [block for block in blocks if block not in results] if blocks else content
            flags = {flag: True for flag in _FLAGS if entry.get(flag)}
            slots.append(_Slot({"role": "user", "content": rest, **flags}))
    found: list[Message] = []
    for slot in slots:
        found.append(slot.message)
        if slot.results:
            order = [block.get("id") for block in slot.message["content"]]
            results = sorted(slot.results, key=lambda block: order.index(block["tool_use_id"]))
            found.append({"role": "user", "content": results})
    return found


def repair_messages(messages: list[JSON]) -> list[JSON]:
    """Mend a transcript in which a call has no result, or a result no call: the API refuses both.

    Args:
        messages: What the memory holds.

    Returns:
        The messages, with a result that says so for each such call, and without results that answer nothing.
    """
    mended: list[Message] = []
    open_calls: list[str] = []

    def answer() -> None:
        if open_calls:
            results = [
                {"type": "tool_result", "tool_use_id": call, "content": _NO_RESULT, "is_error": True}
                for call in open_calls
            ]
            mended.append({"role": "user", "content": results})
            open_calls.clear()

    for message in (cast(Message, one) for one in messages):
        content = message.get("content")
        blocks: list[dict[str, Any]] = content if isinstance(content, list) else []
        results = {block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"}
        if not results:
            answer()
            mended.append(message)
            open_calls += [block["id"] for block in blocks if block.get("type") == "tool_use"]
            continue
        kept = [block for block in blocks if block.get("type") != "tool_result" or block["tool_use_id"] in open_calls]
        open_calls = [call for call in open_calls if call not in results]
        missing = [
            {"type": "tool_result", "tool_use_id": call, "content": _NO_RESULT, "is_error": True} for call in open_calls
        ]
        open_calls.clear()
        if kept or missing:
            mended.append({**message, "content": [*missing, *kept]})
    answer()
    return cast("list[JSON]", mended)


def _entries_of(messages: Sequence[Message], session_id: str, cwd: str) -> list[dict[str, Any]]:
    """Write messages as a session."""
    boundaries = [index for index, message in enumerate(messages) if message.get("role") == "system"]
    begin = boundaries[-1] + 1 if boundaries else 0  # what was before was summarized
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    entries: list[dict[str, Any]] = []
    parent: str | None = None
    for index, message in enumerate(messages[begin:]):
        identity = str(uuid.uuid5(_NAMESPACE, f"{session_id}/{index}"))
        common = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": cwd,
            "sessionId": session_id,
            "uuid": identity,
            "timestamp": now,
        }
        if message["role"] == "assistant":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            said = {"type": "message", "stop_sequence": None, "id": f"msg_{index}", **message, "content": blocks}
            entries.append({**common, "type": "assistant", "message": said})
        else:
            flags = {flag: True for flag in _FLAGS if message.get(flag)}
            said = {"role": "user", "content": message["content"]}
            entries.append({**common, "type": "user", "message": said, **flags})
        parent = identity
    return entries
