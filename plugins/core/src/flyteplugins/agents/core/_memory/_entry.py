"""What is stored: a line of JSON that says what it is, and then the content.

The first line, the *head*, is at most `HEAD_BYTES` long, so that who wrote what and when can be read without the content. It also
tells a version that says "deleted" from one with content by the size of its file alone, which a listing has: no other file has
exactly that size.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, replace
from typing import Any

from .._canonical import JSON
from .._errors import RecordError
from .._storage import Folder
from ._errors import MemoryDeletedError
from ._values import load_value

__all__ = [
    "DELETED_BYTES",
    "HEAD_BYTES",
    "REMOVED_BYTES",
    "Entry",
    "Writer",
    "damaged",
    "entry_bytes",
    "new_entry",
    "parse_entry",
    "parse_messages",
    "read_head",
    "removed_bytes",
]

HEAD_BYTES = 4096
DELETED_BYTES = 2048
"""The size of a version that says that its path was deleted."""
REMOVED_BYTES = 2049
"""The size of what is left of a file whose content was removed for good."""

_MAX_REASON = 500  # bytes of JSON
_MAX_NAME = 240  # the same, for each of the names of a writer

_LINE_BEFORE_MESSAGES = b'\n"messages": '


@dataclass(frozen=True)
class Writer:
    """Who wrote something.

    Attributes:
        run: The Flyte run; empty outside of one.
        action: The task's action in it.
        agent: The agent run's id in it; empty where a task wrote by itself.
    """

    run: str = ""
    action: str = ""
    agent: str = ""


@dataclass(frozen=True)
class Entry:
    """The head of a file.

    Attributes:
        format: What kind of file it is, and which version of that.
        op: What was done.
        id: Names this write among all, so that a writer recognizes its own.
        when: Seconds since the epoch, by the writer's clock.
        writer: Who did it.
        reason: Why, in the writer's words.
        media: What the content is: `text`, `json` or `bytes`; `messages` in a transcript.
        size: The content's size in bytes.
        sha256: The content's SHA-256 in hexadecimal; empty where the content was removed.
        removed: When the content was removed for good, in seconds since the epoch; else `None`.
    """

    format: str
    op: str
    id: str
    when: float
    writer: Writer
    reason: str = ""
    media: str = ""
    size: int = 0
    sha256: str = ""
    removed: float | None = None


def new_entry(format: str, op: str, id: str, writer: Writer, content: bytes, *, media: str, reason: str = "") -> Entry:
    """Describe what is to be written now.

    Args:
        format: See `Entry`.
        op: See `Entry`; `delete` has no content.
        id: See `Entry`.
        writer: See `Entry`.
        content: What is to be kept.
        media: See `Entry`.
        reason: See `Entry`.

    Raises:
        ValueError: The reason is too long.
    """
    if len(json.dumps(reason)) > _MAX_REASON:
        raise ValueError(f"The reason {reason[:40]!r}... is too long: as JSON it may have {_MAX_REASON} bytes.")
    return Entry(
        format=format,
        op=op,
        id=id,
        when=time.time(),
        writer=Writer(_clipped(writer.run), _clipped(writer.action), _clipped(writer.agent)),
        reason=reason,
        media=media,
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def entry_bytes(entry: Entry, content: bytes) -> bytes:
    """Put a file together: a head and a content. Of `messages` the file is one JSON document."""
    head: dict[str, Any] = {
        "format": entry.format,
        "op": entry.op,
        "id": entry.id,
        "when": entry.when,
        "run": entry.writer.run,
        "action": entry.writer.action,
        "agent": entry.writer.agent,
        "reason": entry.reason,
        "media": entry.media,
        "bytes": entry.size,
        "sha256": entry.sha256,
    }
    size = None
    if entry.removed is not None:
        head["removed"] = entry.removed
        size = REMOVED_BYTES
    elif entry.op == "delete":
        size = DELETED_BYTES
    line = json.dumps(head).encode()
    if entry.media == "messages":
        line, rest = line[:-1] + b",", _LINE_BEFORE_MESSAGES + content + b"}\n"
    else:
        rest = b"\n" + content
    total = len(line) + len(rest)
    if size is None:
        size = total + 2 if total in (DELETED_BYTES, REMOVED_BYTES) else total
    return line + b" " * (size - total) + rest


def removed_bytes(entry: Entry) -> bytes:
    """What is left of a file whose content is removed for good: who wrote it when, and that it is gone."""
    gone = replace(entry, reason="", sha256="", removed=time.time())
    return entry_bytes(gone, b"[]" if entry.media == "messages" else b"")


def _parse_head(data: bytes, format: str, where: str) -> Entry:
    """Read the head of a file.

    Args:
        data: The file's beginning, at least `HEAD_BYTES` of it.
        format: What it has to be.
        where: Its location, for errors.

    Raises:
        RecordError: It is of another format, or damaged.
    """
    line = data.partition(b"\n")[0].rstrip()
    if line.endswith(b","):
        line = line[:-1] + b"}"
    try:
        head = json.loads(line)
        found = head["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(where, f"its first line is not a head ({type(error).__name__}: {error})") from error
    if found != format:
        raise RecordError(f"{where} has the format {found!r}; this version reads {format!r}.")
    try:
        return Entry(
            format=found,
            op=head["op"],
            id=head["id"],
            when=head["when"],
            writer=Writer(head["run"], head["action"], head["agent"]),
            reason=head["reason"],
            media=head["media"],
            size=head["bytes"],
            sha256=head["sha256"],
            removed=head.get("removed"),
        )
    except KeyError as error:
        raise damaged(where, f"its head has no {error}") from error


def parse_entry(data: bytes, format: str, where: str) -> tuple[Entry, bytes]:
    """Read a whole file.

    Args:
        data: The file.
        format: What it has to be.
        where: Its location, for errors.

    Returns:
        Its head and its content.

    Raises:
        MemoryDeletedError: Its content was removed for good.
        RecordError: It is of another format, or damaged.
    """
    entry = _parse_head(data, format, where)
    if entry.removed is not None:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(entry.removed))
        raise MemoryDeletedError(
            f"The content of {where} was removed for good at {when}, by a retention or a deletion."
        )
    content = data.partition(b"\n")[2]
    if entry.media == "messages":
        content = content.strip().removeprefix(_LINE_BEFORE_MESSAGES.strip() + b" ")[:-1]
    elif entry.op == "delete":
        content = b""
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise damaged(where, f"its content is not the {entry.size} bytes with SHA-256 {entry.sha256}")
    return entry, content


def parse_messages(data: bytes, format: str, where: str) -> list[JSON]:
    """Read the messages of a file.

    Raises:
        MemoryDeletedError: They were removed for good.
        RecordError: It is of another format, or damaged.
    """
    _, content = parse_entry(data, format, where)
    try:
        messages = load_value(content)
    except ValueError as error:
        raise damaged(where, str(error)) from error
    if not isinstance(messages, list):
        raise damaged(where, "it holds no list of messages")
    return messages


async def read_head(folder: Folder, name: str, format: str) -> Entry:
    """Read who wrote a file and when, without its content.

    Raises:
        FileNotFoundError: There is none of that name.
        RecordError: It is of another format, or damaged.
    """
    return _parse_head(await folder.read_start(name, HEAD_BYTES), format, folder.location(name))


def damaged(where: str, problem: str) -> RecordError:
    """An error for a file that cannot be read."""
    return RecordError(f"{where} is damaged: {problem}. Restore it from a backup, or delete the memory.")


def _clipped(name: str) -> str:
    if len(json.dumps(name)) <= _MAX_NAME:
        return name
    while len(json.dumps(name)) > _MAX_NAME - 3:
        name = name[: len(name) * 9 // 10]
    return name + "..."
