"""The key-value space: each path has a log of its versions, and the last one is what a reader gets."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from .._storage import Folder
from ._entry import (
    DELETED_BYTES,
    REMOVED_BYTES,
    Entry,
    Writer,
    entry_bytes,
    new_entry,
    parse_entry,
    read_head,
    removed_bytes,
)
from ._errors import MemoryConflictError, MemoryDeletedError
from ._log import Log
from ._names import decode_path, encode_path
from ._parallel import gather_bounded
from ._retention import Cutoff, Retention

__all__ = ["FileSpace", "FileVersion", "Media"]

FILE_FORMAT = "flyte-agents-memory-file/1"

Media = Literal["text", "json", "bytes"]

_VERSIONS = "!v"  # no path has a `!` in storage, so a path's versions and the paths below it do not meet
_VERSION = re.compile(rf"(?P<path>.+)/{_VERSIONS}/(?P<index>\d{{8}})")


@dataclass(frozen=True)
class FileVersion:
    """One version of a path of the key-value space.

    Attributes:
        path: The path.
        version: Which version, from 1.
        deleted: Whether this version says that the path was deleted.
        media: What was written: `text`, `json` or `bytes`.
        size: The content's size in bytes.
        sha256: The content's SHA-256 in hexadecimal; empty if the content was removed for good.
        when: When it was written, in seconds since the epoch, by the writer's clock. The order of versions is not by it.
        writer: Which run, action and agent run wrote it.
        reason: Why, in the writer's words.
        removed: When its content was removed for good, in seconds since the epoch; `None` if it can be read.
    """

    path: str
    version: int
    deleted: bool
    media: Media
    size: int
    sha256: str
    when: float
    writer: Writer
    reason: str = ""
    removed: float | None = None


def _version(path: str, index: int, head: Entry) -> FileVersion:
    return FileVersion(
        path=path,
        version=index + 1,
        deleted=head.op == "delete",
        media=cast(Media, head.media),
        size=head.size,
        sha256=head.sha256,
        when=head.when,
        writer=head.writer,
        reason=head.reason,
        removed=head.removed,
    )


class FileSpace:
    """The key-value space of one generation of a memory.

    Args:
        folder: The memory's folder.
        path: The generation's folder below the memory's.
        writer: Who writes.
    """

    def __init__(self, folder: Folder, path: str, writer: Writer) -> None:
        self._folder = folder
        self._root = f"{path}/files"
        self._writer = writer

    def log(self, path: str) -> Log:
        """The versions of a path."""
        return Log(self._folder, f"{self._root}/{encode_path(path)}/{_VERSIONS}", FILE_FORMAT)

    async def current(self, below: str = "") -> dict[str, int]:
        """Find the current version of each path that is not deleted, from a listing alone.

        Args:
            below: Only paths in this folder.
        """
        return {path: slots[-1][0] + 1 for path, slots in (await self._listing(below)).items() if not slots[-1][2]}

    async def _listing(self, below: str = "") -> dict[str, list[tuple[int, int, bool]]]:
        """Each path's versions in order: index, size, whether it says that the path was deleted."""
        root = f"{self._root}/{encode_path(below)}" if below else self._root
        found: dict[str, list[tuple[int, int, bool]]] = {}
        for file in await self._folder.files(root):
            match = _VERSION.fullmatch(file.name.removeprefix(f"{self._root}/"))
            path = decode_path(match["path"]) if match else None
            if match is None or path is None or path == below:
                continue
            found.setdefault(path, []).append((int(match["index"]), file.size, file.size == DELETED_BYTES))
        return dict(sorted(found.items()))

    async def stat(self, path: str, version: int | None = None) -> FileVersion | None:
        """Say what is known of a version, the current one by default; `None` if there is none."""
        log = self.log(path)
        index = (version or await log.length()) - 1
        if index < 0:
            return None
        try:
            [head] = await log.heads([index])
        except FileNotFoundError:
            return None
        return _version(path, index, head)

    async def versions(self, path: str) -> list[FileVersion]:
        """Say what is known of each version, oldest first."""
        log = self.log(path)
        indexes = [slot.index for slot in await log.slots()]
        return [_version(path, index, head) for index, head in zip(indexes, await log.heads(indexes), strict=True)]

    async def read(self, path: str, version: int | None = None) -> tuple[bytes, FileVersion] | None:
        """Read a version, the current one by default; `None` if there is none, or it says that the path was deleted.

        Raises:
            MemoryDeletedError: The content of the version was removed for good.
            RecordError: It is of another format, or damaged.
        """
        log = self.log(path)
        length = 0
        while True:
            length = await log.length(length)
            index = (version or length) - 1
            if index < 0 or index >= length:
                return None
            try:
                head, content = parse_entry(await log.read(index), FILE_FORMAT, log.location(index))
            except FileNotFoundError:
                return None
            except MemoryDeletedError:
                if version is not None or await log.length(length) == length:
                    raise
                continue  # a newer version was written, and this one removed, since we looked
            return None if head.op == "delete" else (content, _version(path, index, head))

    async def write(
        self,
        path: str,
        content: bytes | None,
        media: Media,
        *,
        expected_version: int | None = None,
        reason: str = "",
    ) -> FileVersion:
        """Add a version.

        Args:
            path: The path.
            content: What to write; `None` deletes the path.
            media: What the content is.
            expected_version: Which version has to be the current one; 0 if there has to be none. Any by default.
            reason: Why, for the audit log.

        Raises:
            MemoryConflictError: Another version is the current one.
        """
        write_id = uuid.uuid4().hex
        length = await self.log(path).length()
        if expected_version is None:
            return await self.write_once(path, content, media, write_id, end=length, reason=reason)
        entry = self._entry(content, media, write_id, reason)
        if length == expected_version and await self.log(path).append_at(
            write_id, entry_bytes(entry, content or b""), length
        ):
            return _version(path, length, entry)
        current = await self.stat(path)
        raise MemoryConflictError(
            f"The memory path {path!r} is at version {current.version if current else 0}, not at {expected_version} as expected"
            f"{_who(current)}. Nothing was written. Read it again."
        )

    async def write_once(
        self,
        path: str,
        content: bytes | None,
        media: Media,
        id: str,
        *,
        end: int,
        examined: int | None = None,
        reason: str = "",
    ) -> FileVersion:
        """Add a version, unless it is there.

        Args:
            path: The path.
            content: What to write; `None` deletes the path.
            media: What the content is.
            id: Names this write among all of the path.
            end: How many versions there were a moment ago.
            examined: So many are known not to be this one. By default nobody but this call adds it.
            reason: Why, for the audit log.
        """
        log = self.log(path)
        entry = self._entry(content, media, id, reason)
        index, added = await log.append(id, entry_bytes(entry, content or b""), examined=examined, end=end)
        if not added:
            [entry] = await log.heads([index])
        return _version(path, index, entry)

    def _entry(self, content: bytes | None, media: Media, id: str, reason: str) -> Entry:
        op = "delete" if content is None else "write"
        return new_entry(FILE_FORMAT, op, id, self._writer, content or b"", media=media, reason=reason)

    async def remove_versions(self, path: str, before: int) -> int:
        """Remove the content of versions for good; who wrote them and when is kept.

        Args:
            path: The path.
            before: Before which version.

        Returns:
            How many contents this call removed.
        """
        log = self.log(path)
        old = [slot.index for slot in await log.slots() if slot.index + 1 < before and slot.size not in _EMPTY_SIZES]
        await gather_bounded(lambda index: self._remove(log.name(index)), old)
        return len(old)

    async def _remove(self, name: str) -> None:
        await self._folder.replace(name, removed_bytes(await read_head(self._folder, name, FILE_FORMAT)))

    async def first_kept(
        self, path: str, current: int, old: Sequence[int], retention: Retention, cutoff: Cutoff
    ) -> int:
        """Find the first version of a path that a retention keeps.

        Args:
            path: The path.
            current: Its current version.
            old: The versions before it that still have a content.
            retention: The limits.
            cutoff: What has been over them long enough.
        """
        first = 0
        for version in old:
            this, following = await self.log(path).heads([version - 1, version])
            surplus = retention.max_versions is not None and version <= current - retention.max_versions
            if (surplus and following.when < cutoff.surpassed) or this.when < cutoff.written:
                first = version + 1
        return first

    async def superseded(self) -> Mapping[str, tuple[int, list[int]]]:
        """Find, for each path, its current version, and the versions before it that still have a content."""
        return {
            path: (
                slots[-1][0] + 1,
                [index + 1 for index, size, _ in slots[:-1] if size not in _EMPTY_SIZES],
            )
            for path, slots in (await self._listing()).items()
        }

    async def all_versions(self) -> list[FileVersion]:
        """Say what is known of each version of each path."""
        pairs = [(path, index) for path, slots in (await self._listing()).items() for index, _, _ in slots]
        return await gather_bounded(self._stat, pairs)

    async def _stat(self, pair: tuple[str, int]) -> FileVersion:
        path, index = pair
        [head] = await self.log(path).heads([index])
        return _version(path, index, head)


_EMPTY_SIZES = (DELETED_BYTES, REMOVED_BYTES)


def _who(current: FileVersion | None) -> str:
    if current is None or not current.writer.run:
        return ""
    return f" (written by {current.writer.action or 'a task'} of the run {current.writer.run})"
