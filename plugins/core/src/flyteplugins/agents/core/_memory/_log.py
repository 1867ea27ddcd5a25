"""A log: files with consecutive numbers, each created once and never changed.

That is all that both a transcript and the versions of a path are. A number is taken by the one writer whose conditional create
succeeds, so the order is the same for every reader at any time, and no writer loses anything to another. Conditional creates
are enough for it, which every storage has (a local disk has no compare-and-set).

A create may succeed and be reported as failed: the answer is lost, the client asks again, and finds a file. So every entry has an
id, and a writer that finds a number taken looks whether it took it itself. In the same way a writer that comes back after a crash
finds what it wrote before.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass

from .._storage import Folder
from ._entry import Entry, read_head
from ._parallel import gather_bounded

__all__ = ["Log", "Slot"]

_DIGITS = 8
_MAX_TRIES = 1000  # a writer that fails so often does not compete with others: something else is wrong


@dataclass(frozen=True)
class Slot:
    """One number that is taken.

    Attributes:
        index: The number, from 0.
        size: The size of its file in bytes.
    """

    index: int
    size: int


@dataclass(frozen=True)
class Log:
    """One log.

    Attributes:
        folder: The folder that it is in.
        path: Its path below that folder.
        format: What its entries have to be.
        suffix: What the names of its files end in.
    """

    folder: Folder
    path: str
    format: str
    suffix: str = ""

    def name(self, index: int) -> str:
        """The path of an entry below the folder."""
        return f"{self.path}/{index:0{_DIGITS}d}{self.suffix}"

    def location(self, index: int) -> str:
        """The absolute path or URL of an entry."""
        return self.folder.location(self.name(index))

    async def slots(self, first: int = 0) -> list[Slot]:
        """List the entries.

        Args:
            first: Only those from this number on.

        Returns:
            In order. Files that are not ours are left out.
        """
        after = self.name(first - 1) if first > 0 else None
        found: list[Slot] = []
        for file in await self.folder.files(self.path, after=after):
            index = self._index(file.name)
            if index is not None:
                found.append(Slot(index, file.size))
        return found

    def _index(self, name: str) -> int | None:
        digits = name.removeprefix(f"{self.path}/").removesuffix(self.suffix)
        return int(digits) if digits.isdecimal() and name == self.name(int(digits)) else None

    async def length(self, first: int = 0) -> int:
        """How many entries there are.

        Args:
            first: So many are known to be there; an object store skips them unread.
        """
        slots = await self.slots(first)
        return slots[-1].index + 1 if slots else first

    async def read(self, index: int) -> bytes:
        """Read an entry.

        Raises:
            FileNotFoundError: There is none of that number.
        """
        return await self.folder.read(self.name(index))

    async def heads(self, indexes: Iterable[int]) -> list[Entry]:
        """Read who wrote entries and when, without their contents.

        Raises:
            FileNotFoundError: There is none of one of the numbers.
            RecordError: One is of another format, or damaged.
        """
        return await gather_bounded(lambda index: read_head(self.folder, self.name(index), self.format), indexes)

    async def append(self, id: str, data: bytes, *, end: int, examined: int | None = None) -> tuple[int, bool]:
        """Add an entry at the end, unless it is there.

        Args:
            id: Names the entry among all.
            data: The entry.
            end: How many entries there were a moment ago.
            examined: Entries before this number are known not to be this one. By default nobody but this call adds it.

        Returns:
            The entry's number, and whether this call added it.
        """
        for tries in range(_MAX_TRIES):
            if examined is not None:
                # each number has to be looked at, or a writer that was thought dead and its successor might both add the entry
                if (index := await self._find(id, range(examined, end))) is not None:
                    return index, False
                examined = end
            if await self.folder.create(self.name(end), data):
                return end, True
            if examined is None and await self._find(id, range(end, end + 1)) is not None:
                return end, True  # the answer was lost
            await asyncio.sleep(random.uniform(0, 0.01 * min(tries, 20)))  # so that many writers spread out
            end = max(await self.length(end), end)
        raise RuntimeError(f"{self.location(end)} cannot be created, and it is not listed either.")

    async def _find(self, id: str, indexes: range) -> int | None:
        for index, head in zip(indexes, await self.heads(indexes), strict=True):
            if head.id == id:
                return index
        return None

    async def append_at(self, id: str, data: bytes, index: int) -> bool:
        """Add an entry with a certain number.

        Args:
            id: Names the entry among all.
            data: The entry.
            index: The number, which has to be the next one.

        Returns:
            Whether the number is this entry's; else somebody else was first.
        """
        if await self.folder.create(self.name(index), data):
            return True
        [head] = await self.heads([index])
        return head.id == id
