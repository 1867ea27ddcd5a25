"""What a recorded leaf looks like in storage.

A record is one file: a line of JSON that says what was recorded, then the payload's own JSON text. A payload over 1 MiB is in a
file beside it, named after its SHA-256, so that records and the outputs of traces stay small (Flyte takes 10 MiB).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ._canonical import JSON
from ._errors import RecordError
from ._storage import Folder

__all__ = ["Kind", "Record", "RecordFolder", "Status"]

RECORD_FORMAT = "flyte-agents-record/1"
"""Written into every record. A reader refuses another one by name: it never guesses."""

MAX_INLINE_BYTES = 1024 * 1024
"""The largest payload, in bytes, that is kept in the record itself."""

Kind = Literal["turn", "tool", "tools", "memory", "approval"]
"""What kind of leaf it is; `tools` is the list of tools that a server offers."""

Status = Literal["completed", "failed"]
"""`failed`: the SDK went on past the failure, and a replay raises it again without a call."""


@dataclass(frozen=True)
class Record:
    """One recorded outcome.

    Attributes:
        kind: What kind of leaf it is.
        key: The fingerprint of its request, in hexadecimal.
        ordinal: Which of the outcomes with this key it is, from 0.
        payload: The outcome, as JSON values.
        status: Whether the payload is an answer or a failure that was passed over.
        fields: A digest per field of the request, to name what changed when a later request misses.
        started: When the call began, in seconds since the epoch.
        seconds: How long the call took.
        position: How many leaves of this kind the agent run had asked for before this one.
        info: A few facts for people and budgets (`model`, `usage`, ...), as JSON values.
        folder: Where it was found, if that is not its agent run's own folder. Not stored.
    """

    kind: Kind
    key: str
    ordinal: int
    payload: JSON
    status: Status = "completed"
    fields: Mapping[str, str] = field(default_factory=dict)
    started: float = 0.0
    seconds: float = 0.0
    position: int = 0
    info: Mapping[str, JSON] = field(default_factory=dict)
    folder: str = ""

    @property
    def name(self) -> str:
        """The file's name: the whole address within an agent run."""
        return record_name(self.kind, self.key, self.ordinal)


def record_name(kind: Kind, key: str, ordinal: int) -> str:
    """Name the file of a record."""
    return f"{kind}.{key}.{ordinal}"


def parse_record_name(name: str) -> tuple[Kind, str, int] | None:
    """Read a file's name back, or `None` where it is not a record's (a payload, a marker)."""
    match name.split("."):
        case [("turn" | "tool" | "tools" | "memory" | "approval") as kind, key, ordinal] if ordinal.isdecimal():
            return kind, key, int(ordinal)
    return None


def payload_text(payload: JSON) -> str:
    """Write a payload as JSON text, which UTF-8 can always hold."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates survive as escapes
        return json.dumps(payload, separators=(",", ":"))
    return text


_ENTRIES = frozenset(
    {"kind", "key", "ordinal", "status", "fields", "started", "seconds", "position", "info", "sha256", "bytes"}
)


@dataclass(frozen=True)
class RecordFolder:
    """The records of one agent run.

    Attributes:
        root: Our folder on the run's storage.
        path: The agent run's folder below it.
    """

    root: Folder
    path: str

    async def write(self, record: Record) -> tuple[str, Record | None]:
        """Store a record unless its address is taken.

        Args:
            record: What to store. It is durable when this returns.

        Returns:
            The output that the leaf's trace keeps (the payload, or where it is), and, if another writer was first, the
            record that is stored: adopt that one.
        """
        text = payload_text(record.payload)
        data = text.encode()
        sha256 = hashlib.sha256(data).hexdigest()
        header: dict[str, Any] = {
            "format": RECORD_FORMAT,
            "kind": record.kind,
            "key": record.key,
            "ordinal": record.ordinal,
            "status": record.status,
            "fields": dict(record.fields),
            "started": record.started,
            "seconds": record.seconds,
            "position": record.position,
            "info": dict(record.info),
            "sha256": sha256,
            "bytes": len(data),
        }
        body = data
        if len(data) > MAX_INLINE_BYTES:
            blob = f"{self.path}/payload.{sha256}"
            await self.root.create(blob, data)
            header["uri"] = self.root.location(blob)
            body = b""
        file = json.dumps(header).encode() + b"\n" + body
        if await self.root.create(f"{self.path}/{record.name}", file):
            return _trace_output(record, header, text), None
        stored = await self.read(record.name)
        return await self.trace_output(stored), stored

    async def read(self, name: str) -> Record:
        """Read a record by the name of its file.

        Raises:
            RecordError: It is of another format, damaged, or gone. The message names it.
        """
        path = f"{self.path}/{name}"
        where = self.root.location(path)
        try:
            file = await self.root.read(path)
        except FileNotFoundError as error:
            raise RecordError(
                f"The record {where} was listed and is gone. Was the run's storage cleaned while it ran?"
            ) from error
        line, separator, data = file.partition(b"\n")
        try:
            header = json.loads(line)
            format_ = header["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(where, "its first line is not a record's header") from error
        if format_ != RECORD_FORMAT:
            raise RecordError(
                f"The record {where} has the format {format_!r}; this version reads {RECORD_FORMAT!r}. Finish the run with the "
                "version that began it, or start a new run."
            )
        if not separator:
            raise _damaged(where, "it ends in its header")
        missing = sorted(_ENTRIES - header.keys())
        if missing:
            raise _damaged(where, f"its header lacks {', '.join(missing)}")
        if record_name(header["kind"], header["key"], header["ordinal"]) != name:
            raise _damaged(where, f"it is the record {record_name(header['kind'], header['key'], header['ordinal'])}")
        if "uri" in header:
            data = await self._read_payload(header["uri"], where)
        if len(data) != header["bytes"] or hashlib.sha256(data).hexdigest() != header["sha256"]:
            raise _damaged(where, f"its payload is not the {header['bytes']} bytes with SHA-256 {header['sha256']}")
        return Record(
            kind=header["kind"],
            key=header["key"],
            ordinal=header["ordinal"],
            status=header["status"],
            payload=json.loads(data),
            fields=header["fields"],
            started=header["started"],
            seconds=header["seconds"],
            position=header["position"],
            info=header["info"],
        )

    async def _read_payload(self, uri: str, where: str) -> bytes:
        folder, _, name = uri.rpartition("/")
        try:
            return await Folder(folder).read(name)
        except FileNotFoundError as error:
            raise RecordError(f"The payload {uri} of the record {where} is gone.") from error

    async def trace_output(self, record: Record) -> str:
        """What the trace of a stored record returns."""
        text = payload_text(record.payload)
        data = text.encode()
        sha256 = hashlib.sha256(data).hexdigest()
        header: dict[str, Any] = {"sha256": sha256, "bytes": len(data)}
        if len(data) > MAX_INLINE_BYTES:
            header["uri"] = self.root.location(f"{self.path}/payload.{sha256}")
        return _trace_output(record, header, text)

    async def from_trace_output(self, output: str, expected: Record) -> Record:
        """Build a record from what Flyte kept of its trace, when our own is missing.

        Args:
            output: What the trace returned.
            expected: The record's address and fields; its payload is ignored.

        Raises:
            RecordError: The output is not one of ours.
        """
        where = f"trace output of {self.path}/{expected.name}"
        try:
            kept = json.loads(output)
            if kept["format"] != RECORD_FORMAT:
                raise RecordError(
                    f"The {where} has the format {kept['format']!r}; this version reads {RECORD_FORMAT!r}."
                )
            if "uri" in kept:
                data = await self._read_payload(kept["uri"], where)
                if hashlib.sha256(data).hexdigest() != kept["sha256"]:
                    raise _damaged(where, f"its payload {kept['uri']} does not have SHA-256 {kept['sha256']}")
                payload = json.loads(data)
            else:
                payload = kept["payload"]
            return replace(expected, payload=payload, status=kept["status"], seconds=kept["seconds"], info=kept["info"])
        except (ValueError, KeyError, TypeError) as error:
            raise _damaged(where, "it is not what the recorder wrote") from error

    async def delete(self, name: str) -> None:
        """Withdraw a record."""
        await self.root.delete(f"{self.path}/{name}")


def _trace_output(record: Record, header: Mapping[str, Any], text: str) -> str:
    kept: dict[str, Any] = {
        "format": RECORD_FORMAT,
        "leaf": record.name,
        "status": record.status,
        "seconds": record.seconds,
        "info": dict(record.info),
    }
    if "uri" in header:
        return json.dumps(kept | {"uri": header["uri"], "sha256": header["sha256"], "bytes": header["bytes"]})
    return f'{json.dumps(kept)[:-1]}, "payload": {text}}}'


def _damaged(where: str, problem: str) -> RecordError:
    return RecordError(f"The record {where} is damaged: {problem}. Move it away to have its request made again.")
