"""The store of one memory key: a transcript in segments, one per agent run.

A segment is created if absent and never changed. Its name is its place in the transcript and the id of the commit that wrote it,
so that a commit made twice is found to be there, two writers at once both get their own segment, and the bytes written do not
grow with the history.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from .._canonical import JSON
from .._errors import RecordError
from .._records import payload_text
from .._scope import TaskScope, current_scope
from .._storage import Folder
from ._paths import check_key, memory_folder

__all__ = ["MemoryStore", "Snapshot"]

_SEGMENT = re.compile(r"\d{8,}-[0-9a-f]{64}\.json")  # a folder may hold what a file manager left there

TRANSCRIPT_FORMAT = "flyte-agents-transcript/1"


@dataclass(frozen=True)
class Snapshot:
    """A transcript at one point in time.

    Attributes:
        segments: The names of its segments, in order.
    """

    segments: tuple[str, ...] = ()

    @property
    def next_index(self) -> int:
        """The place of a segment that continues it."""
        return max((_index(name) for name in self.segments), default=-1) + 1


@dataclass(frozen=True)
class MemoryStore:
    """What is kept under one memory key.

    Attributes:
        key: The memory key.
        folder: Where it is.
    """

    key: str
    folder: Folder

    @classmethod
    def for_key(cls, key: str, scope: TaskScope | None = None) -> MemoryStore:
        """Open the store of a key, which need not exist.

        Args:
            key: One path segment.
            scope: The task that asks; the running one by default.

        Raises:
            ValueError: The key is not one path segment.
            RuntimeError: There is no running task.
            MemoryUnavailableError: Flyte does not say where data is kept.
        """
        check_key(key)
        scope = scope or current_scope()
        if scope is None:
            raise RuntimeError(
                "MemoryStore.for_key was called outside of a Flyte task, which has no storage to keep it on."
            )
        return cls(key, memory_folder(key, scope))

    async def snapshot(self, sdk: str) -> Snapshot:
        """List the segments of a transcript.

        Args:
            sdk: Whose messages: each SDK has its own transcript, since their messages are not each other's.
        """
        names = await self.folder.names(_transcript(sdk))
        found = (name.rpartition("/")[2] for name in names)
        return Snapshot(tuple(name for name in found if _SEGMENT.fullmatch(name)))

    async def messages(self, sdk: str, snapshot: Snapshot | None = None) -> list[JSON]:
        """Read a transcript.

        Args:
            sdk: Whose messages.
            snapshot: As of when; now by default.

        Returns:
            The messages as the SDK gave them, oldest first.

        Raises:
            RecordError: A segment is gone, damaged or of another format.
        """
        snapshot = snapshot if snapshot is not None else await self.snapshot(sdk)
        segments = await asyncio.gather(*(self._read(sdk, name) for name in snapshot.segments))
        return [message for segment in segments for message in segment]

    async def commit(self, sdk: str, snapshot: Snapshot, commit: str, messages: Sequence[JSON]) -> bool:
        """Append the messages of one agent run, once.

        Args:
            sdk: Whose messages.
            snapshot: What the run started from.
            commit: Names the agent run among all: 64 hexadecimal digits. Committing it again changes nothing.
            messages: What the run adds.

        Returns:
            Whether this call added them.
        """
        there = await self.snapshot(sdk)
        if any(name.partition("-")[2] == f"{commit}.json" for name in there.segments):
            return False
        header: dict[str, Any] = {"format": TRANSCRIPT_FORMAT, "sdk": sdk, "commit": commit, "committed": time.time()}
        text = f'{json.dumps(header)[:-1]}, "messages": {payload_text(list(messages))}}}'
        return await self.folder.create(f"{_transcript(sdk)}/{snapshot.next_index:08d}-{commit}.json", text.encode())

    async def _read(self, sdk: str, name: str) -> list[JSON]:
        path = f"{_transcript(sdk)}/{name}"
        where = self.folder.location(path)
        try:
            segment = json.loads(await self.folder.read(path))
            if segment["format"] != TRANSCRIPT_FORMAT:
                raise RecordError(
                    f"{where} has the format {segment['format']!r}; this version reads {TRANSCRIPT_FORMAT!r}."
                )
            return cast("list[JSON]", segment["messages"])
        except FileNotFoundError as error:
            raise RecordError(
                f"The transcript segment {where} is gone: the memory was deleted while this run used it."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"The transcript segment {where} is damaged ({type(error).__name__}: {error})."
            ) from error


def _transcript(sdk: str) -> str:
    return f"transcript/{sdk}"


def _index(name: str) -> int:
    return int(name.partition("-")[0])
