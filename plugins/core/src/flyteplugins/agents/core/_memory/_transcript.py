"""A transcript: one segment per agent run, in a log, and marks that say what readers see of it.

A *compaction* is a mark beside the log: readers get its summary in place of the segments before a number. The segments stay as
they are, and what others append meanwhile comes after that number, so the two cannot get in each other's way. A *removal* is a
mark too, and only then are the contents of the segments before it overwritten; their numbers stay taken for ever.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .._canonical import JSON
from .._errors import RecordError
from .._storage import Folder
from ._entry import (
    REMOVED_BYTES,
    Entry,
    Writer,
    damaged,
    entry_bytes,
    new_entry,
    parse_messages,
    read_head,
    removed_bytes,
)
from ._errors import MemoryConflictError
from ._log import Log
from ._names import encode_name
from ._parallel import LIMIT, gather_bounded
from ._retention import Cutoff, Retention
from ._values import dump_value

__all__ = ["Snapshot", "Transcript"]

SEGMENT_FORMAT = "flyte-agents-transcript/1"
MARK_FORMAT = "flyte-agents-transcript-mark/1"

_COMPACTED = re.compile(r"compacted-(\d{8})-(\d{4})\.json")
_REMOVED = re.compile(r"removed-(\d{8})\.json")


@dataclass(frozen=True)
class Snapshot:
    """A transcript at one point in time.

    It says exactly what a reader saw, in a few bytes: segments have consecutive numbers and never change.

    Attributes:
        generation: Which memory it is of: a key that was deleted and used again has another one. `None` for one that was never
            used.
        upto: How many segments there were.
        compacted: The compaction in force: before which segment it stands, and the how manieth for that one, from 0.
        removed: Segments before this one were removed for good.
    """

    generation: str | None = None
    upto: int = 0
    compacted: tuple[int, int] | None = None
    removed: int = 0

    @property
    def segments(self) -> range:
        """The numbers of the segments whose messages a reader sees as they are."""
        return range(max(self.compacted[0] if self.compacted else 0, self.removed), self.upto)

    def to_json(self) -> JSON:
        """Write it as JSON values."""
        return {
            "generation": self.generation,
            "upto": self.upto,
            "compacted": list(self.compacted) if self.compacted else None,
            "removed": self.removed,
        }

    @classmethod
    def from_json(cls, value: JSON) -> Snapshot:
        """Read what `to_json` wrote.

        Raises:
            RecordError: It is something else.
        """
        try:
            kept = cast("Mapping[str, Any]", value)
            compacted = kept["compacted"]
            return cls(
                generation=kept["generation"],
                upto=int(kept["upto"]),
                compacted=(int(compacted[0]), int(compacted[1])) if compacted else None,
                removed=int(kept["removed"]),
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise RecordError(
                f"The recorded start of a conversation is not one of this version's ({type(error).__name__}: {error}). Finish "
                "the run with the version that began it, or start a new run."
            ) from error


@dataclass(frozen=True)
class _Marks:
    compacted: Sequence[tuple[int, int]]
    removed: int

    def in_force(self, upto: int) -> tuple[int, int] | None:
        """The compaction that a reader of so many segments sees; one whose newest segment was removed is as old as that."""
        return max((mark for mark in self.compacted if self.removed < mark[0] <= upto), default=None)


class Transcript:
    """The messages of one SDK in one generation of a memory.

    Args:
        folder: The memory's folder.
        generation: The generation's name.
        path: The generation's folder below the memory's.
        name: The transcript's name.
        writer: Who writes.
    """

    def __init__(self, folder: Folder, generation: str, path: str, name: str, writer: Writer) -> None:
        self.name = name
        self.log = Log(folder, f"{path}/transcript/{encode_name(name)}", SEGMENT_FORMAT, ".json")
        self._folder = folder
        self._generation = generation
        self._marks_path = f"{path}/marks/{encode_name(name)}"
        self._commits_path = f"{path}/commits/{encode_name(name)}"
        self._writer = writer

    async def _marks(self) -> _Marks:
        compacted: list[tuple[int, int]] = []
        removed = 0
        for file in await self._folder.names(self._marks_path):
            name = file.rpartition("/")[2]
            if match := _COMPACTED.fullmatch(name):
                compacted.append((int(match[1]), int(match[2])))
            elif match := _REMOVED.fullmatch(name):
                removed = max(removed, int(match[1]))
        return _Marks(compacted, removed)

    async def snapshot(self, *, before: int | None = None, first: int = 0) -> Snapshot:
        """See what a reader sees now.

        Args:
            before: As if the transcript ended before this segment.
            first: As if the segments before this one were removed.
        """
        marks = await self._marks()
        known = max([marks.removed, *(mark[0] for mark in marks.compacted)])
        upto = await self.log.length(known)
        if before is not None:
            upto = min(upto, before)
        seen = _Marks(marks.compacted, max(marks.removed, first))
        return Snapshot(self._generation, upto, seen.in_force(upto), min(seen.removed, upto))

    async def messages(self, snapshot: Snapshot, *, original: bool = False) -> list[JSON]:
        """Read what a snapshot saw.

        Args:
            snapshot: What to read.
            original: Whether to read the segments that a compaction stands for in its place.

        Raises:
            MemoryDeletedError: Some of it was removed for good meanwhile.
            RecordError: Some of it is gone or damaged.
        """
        messages: list[JSON] = []
        segments = range(snapshot.removed, snapshot.upto) if original else snapshot.segments
        if snapshot.compacted is not None and not original:
            messages += await self._read(self._compaction(*snapshot.compacted), MARK_FORMAT)
        for part in await gather_bounded(lambda index: self._read(self.log.name(index), SEGMENT_FORMAT), segments):
            messages += part
        return messages

    async def _read(self, name: str, format: str) -> list[JSON]:
        where = self._folder.location(name)
        try:
            data = await self._folder.read(name)
        except FileNotFoundError as error:
            raise RecordError(
                f"{where} is gone, which held messages of a conversation. Restore it from a backup, or delete the memory."
            ) from error
        return parse_messages(data, format, where)

    async def claim(self, commit: str, end: int) -> tuple[int, bool]:
        """Note that a commit begins, before anything of it is written.

        Args:
            commit: Names it among all.
            end: How many segments there are.

        Returns:
            How many segments there were when the commit began for the first time, and whether that was now.
        """
        name = f"{self._commits_path}/{commit}"
        if await self._folder.create(name, b'{"base": %d}' % end):
            return end, True
        base = await self.claimed(commit)
        return (end, True) if base is None else (base, False)  # None: the memory was deleted this very moment

    async def claimed(self, commit: str) -> int | None:
        """How many segments there were when a commit began; `None` if it has not."""
        name = f"{self._commits_path}/{commit}"
        try:
            data = await self._folder.read(name)
        except FileNotFoundError:
            return None
        match = re.fullmatch(rb'\{"base": (\d+)\}', data)
        if match is None:
            raise damaged(self._folder.location(name), "it does not say where a commit began")
        return int(match[1])

    async def append(
        self, id: str, messages: Sequence[JSON], *, op: str, end: int, examined: int | None = None, reason: str = ""
    ) -> tuple[int, bool]:
        """Add a segment, unless it is there; see `Log.append`."""
        return await self.log.append(id, self._segment(id, messages, op, reason), examined=examined, end=end)

    async def append_at(self, id: str, messages: Sequence[JSON], index: int, *, op: str, reason: str = "") -> bool:
        """Add a segment with a certain number; see `Log.append_at`."""
        return await self.log.append_at(id, self._segment(id, messages, op, reason), index)

    def conflict(self, expected_runs: int) -> MemoryConflictError:
        """An error for a writer that somebody else was faster than."""
        return MemoryConflictError(
            f"The transcript {self.name!r} has not {expected_runs} segments, as expected. Nothing was added. Read it again."
        )

    def _segment(self, id: str, messages: Sequence[JSON], op: str, reason: str) -> bytes:
        content = dump_value(list(messages), path="messages")
        return entry_bytes(
            new_entry(SEGMENT_FORMAT, op, id, self._writer, content, media="messages", reason=reason), content
        )

    async def compact(self, id: str, summary: Sequence[JSON], snapshot: Snapshot, keep_runs: int, reason: str) -> None:
        """Have readers get a summary in place of the segments that a snapshot saw; see `MemoryStore.compact`."""
        before = snapshot.upto - keep_runs
        standing = snapshot.compacted or (snapshot.removed, -1)
        if before < standing[0] or before == 0:
            raise ValueError(
                f"There is nothing to compact in {self.name!r}: without the latest {keep_runs} runs, {before} of {snapshot.upto} "
                f"are left, and {standing[0]} are compacted or removed already."
            )
        edition = standing[1] + 1 if snapshot.compacted and before == standing[0] else 0
        name = self._compaction(before, edition)
        content = dump_value(list(summary), path="summary")
        entry = new_entry(MARK_FORMAT, "compact", id, self._writer, content, media="messages", reason=reason)
        data = entry_bytes(entry, content)
        if await self._folder.create(name, data) or (await read_head(self._folder, name, MARK_FORMAT)).id == id:
            return
        raise MemoryConflictError(
            f"The transcript {self.name!r} was compacted up to the same place meanwhile: {self._folder.location(name)}. Take "
            "a new snapshot, and see whether it still has to be compacted."
        )

    async def remove_before(self, index: int, id: str) -> int:
        """Remove the content of segments for good, and of the compactions that stand for nothing else.

        Args:
            index: Before which segment.
            id: Names this removal among all.

        Returns:
            How many contents this call removed.
        """
        marks = await self._marks()
        if index > marks.removed:
            data = entry_bytes(new_entry(MARK_FORMAT, "remove", id, self._writer, b"", media="bytes"), b"")
            await self._folder.create(f"{self._marks_path}/removed-{index:08d}.json", data)
        names = [
            self.log.name(slot.index)
            for slot in await self.log.slots()
            if slot.index < index and slot.size != REMOVED_BYTES
        ]
        formats = dict.fromkeys(names, SEGMENT_FORMAT)
        for file in await self._folder.files(self._marks_path):
            name = file.name.rpartition("/")[2]
            if (match := _COMPACTED.fullmatch(name)) and int(match[1]) <= index and file.size != REMOVED_BYTES:
                formats[file.name] = MARK_FORMAT
            elif (match := _REMOVED.fullmatch(name)) and int(match[1]) < max(index, marks.removed):
                await self._folder.delete(file.name)  # a later one says more
        await gather_bounded(lambda name: self._remove(name, formats[name]), formats)
        return len(formats)

    async def _remove(self, name: str, format: str) -> None:
        await self._folder.replace(name, removed_bytes(await read_head(self._folder, name, format)))

    async def first_kept(self, retention: Retention, cutoff: Cutoff) -> int:
        """Find the first segment that a retention keeps.

        Args:
            retention: The limits.
            cutoff: What has been over them long enough.
        """
        snapshot = await self.snapshot()
        first = snapshot.removed
        if retention.max_age is not None:
            first = await self._first_younger(range(first, snapshot.upto), cutoff.written)
        if retention.max_runs is not None:  # a segment was over the limit since the one so many later was added
            later = range(first + retention.max_runs, snapshot.upto)
            if later:
                first = await self._first_younger(later, cutoff.surpassed) - retention.max_runs
        return first

    async def _first_younger(self, segments: range, when: float) -> int:
        """Find the first of some segments that was added at or after a time; the end if there is none."""
        if when == math.inf:
            return segments.stop
        for start in segments[::LIMIT]:
            some = range(start, min(start + LIMIT, segments.stop))
            for index, head in zip(some, await self.log.heads(some), strict=True):
                if head.when >= when:
                    return index
        return segments.stop

    async def entries(self) -> list[tuple[int, Entry]]:
        """Who added, compacted and removed what; each with the number of the segment, or of the one before which it stands."""
        indexes = [slot.index for slot in await self.log.slots()]
        found = list(zip(indexes, await self.log.heads(indexes), strict=True))
        marks: dict[str, int] = {}
        for name in await self._folder.names(self._marks_path):
            file = name.rpartition("/")[2]
            if match := _COMPACTED.fullmatch(file) or _REMOVED.fullmatch(file):
                marks[name] = int(match[1])
        heads = await gather_bounded(lambda name: read_head(self._folder, name, MARK_FORMAT), marks)
        return [*found, *zip(marks.values(), heads, strict=True)]

    def _compaction(self, before: int, edition: int) -> str:
        return f"{self._marks_path}/compacted-{before:08d}-{edition:04d}.json"
