"""What earlier attempts did, kept on the run's storage, since a report shows one attempt and may be overwritten by the next.

On a laptop Flyte's retries, and every process that resumes a run, write their report to one and the same file; so does a
cluster's restart of a lost worker. Our folder keeps, per agent run and attempt, a summary that a later attempt shows, and per
task the report file that would be overwritten.
"""

from __future__ import annotations

import bisect
import functools
import logging
import re
from dataclasses import dataclass, field
from typing import Literal

from pydantic import TypeAdapter

from .._storage import Folder
from .._usage import Usage

__all__ = ["Attempt", "AttemptStore", "Slot"]

logger = logging.getLogger("flyteplugins.agents")

FOLDER = "reports"
"""Below our folder, beside the records."""

MAX_SHOWN = 20
"""How many attempts of one agent run are read back, the first one and the last ones."""

_SUMMARY = re.compile(r"(\d{4,9})\.(\d{6,9})\.json")


@dataclass
class Attempt:
    """What one attempt of an agent run did.

    Attributes:
        number: Which attempt it is, from 1.
        started: When it began, in seconds since the epoch.
        outcome: `finished`, `failed`, or `running` where it has said nothing more; an earlier one was ended from outside then.
        seconds: How long it took, as far as it said.
        fresh: Tokens and requests that it paid for.
        replayed: Tokens and requests of turns that it was answered from records.
        turns: How many turns it took.
        replayed_turns: How many of them were answered from records.
        tool_calls: How many tool calls ended.
        failed_tool_calls: How many of them failed.
        cost: US dollars that it paid, as far as known; `None` if unknown.
        unpriced: How many turns that it paid for have no known price.
        error: Why it failed; without contents, the exception's class.
        contents: Whether `error` holds contents.
        format: What the file is.
    """

    number: int
    started: float
    outcome: str = "running"
    seconds: float = 0.0
    fresh: Usage = field(default_factory=Usage)
    replayed: Usage = field(default_factory=Usage)
    turns: int = 0
    replayed_turns: int = 0
    tool_calls: int = 0
    failed_tool_calls: int = 0
    cost: float | None = None
    unpriced: int = 0
    error: str = ""
    contents: bool = False

    format: Literal["flyte-agents-attempt/1"] = "flyte-agents-attempt/1"

    def to_json(self) -> bytes:
        """The summary as a file's content."""
        return _adapter().dump_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> Attempt:
        """Read a summary back.

        Raises:
            ValueError: It is not one that this version reads.
        """
        return _adapter().validate_json(data)


@functools.cache
def _adapter() -> TypeAdapter[Attempt]:
    return TypeAdapter(Attempt)


@dataclass
class Slot:
    """The place of this attempt's summary of one agent run.

    Attributes:
        folder: The agent run's folder of summaries.
        number: Which attempt it is.
        revision: Which revision of the summary is stored, from 0.
        earlier: The attempts before it that could be read.
        unread: How many attempts before it are not among them.
    """

    folder: str
    number: int
    revision: int = 0
    earlier: list[Attempt] = field(default_factory=list)
    unread: int = 0

    def file(self, number: int, revision: int) -> str:
        """The file of a summary."""
        return f"{self.folder}/{number:04d}.{revision:06d}.json"


class AttemptStore:
    """The summaries and reports of all attempts of one task action.

    Args:
        folder: Our folder on the run's storage.
        action: The task action.
    """

    def __init__(self, folder: Folder, action: str) -> None:
        self._folder = folder
        self._action = action
        self._names: list[str] | None = None  # one listing per attempt, so that a fresh run pays for nothing more

    @property
    def reports(self) -> str:
        """Where reports of earlier attempts are kept: a path or a URL."""
        return self._folder.location(f"{self._below}/kept")

    @property
    def _below(self) -> str:
        return f"{FOLDER}/{self._action}"

    async def _listing(self) -> list[str]:
        """All our files, sorted; this attempt's own are added as they are made."""
        if self._names is None:
            listed = await self._folder.names(self._below)
            if self._names is None:  # another agent run may have been faster
                self._names = listed
        return self._names

    async def begin(self, run: str, attempt: Attempt) -> Slot:
        """Take the next attempt's number, and read what came before it.

        Args:
            run: The agent run's id.
            attempt: The summary to store; it is given its number.
        """
        slot = Slot(f"{self._below}/{run.removeprefix(f'{self._action}/')}", 0)
        newest: dict[int, str] = {}
        for name in await self._listing():  # sorted, so that the newest revision comes last
            folder, _, file = name.rpartition("/")
            if folder == slot.folder and (found := _SUMMARY.fullmatch(file)):
                newest[int(found[1])] = name
        attempt.number = max(newest, default=0) + 1
        while not await self._folder.create(slot.file(attempt.number, 0), attempt.to_json()):
            attempt.number += 1  # another worker has it
        slot.number = attempt.number
        names = await self._listing()
        bisect.insort(names, slot.file(slot.number, 0))
        numbers = sorted(newest)
        shown = numbers if len(numbers) <= MAX_SHOWN else [numbers[0], *numbers[-MAX_SHOWN + 1 :]]
        for number in shown:
            try:
                slot.earlier.append(Attempt.from_json(await self._folder.read(newest[number])))
            except (ValueError, FileNotFoundError) as error:
                where = self._folder.location(newest[number])
                logger.warning("The summary of an earlier attempt in %s cannot be shown: %s", where, error)
        slot.unread = len(numbers) - len(slot.earlier)
        return slot

    async def update(self, slot: Slot, attempt: Attempt) -> None:
        """Store the summary anew. The one before it is removed once the new one is there."""
        old, new = slot.file(slot.number, slot.revision), slot.file(slot.number, slot.revision + 1)
        await self._folder.create(new, attempt.to_json())
        slot.revision += 1
        await self._folder.delete(old)
        names = await self._listing()
        names.remove(old)
        bisect.insort(names, new)  # a later agent run of this attempt may be a repeat of this one

    async def keep_report(self, output: Folder, mark: str) -> int:
        """Keep the report that the attempt before this one left, where this attempt is about to overwrite it.

        Called before this attempt's first summary.

        Args:
            output: The attempt's output folder.
            mark: What only reports of ours contain.

        Returns:
            How many reports of earlier attempts are kept.
        """
        names = await self._listing()
        if not names:
            return 0  # the first attempt: do not even look
        kept = [name for name in names if name.startswith(f"{self._below}/kept/")]
        try:
            data = await output.read("report.html")
        except FileNotFoundError:
            return len(kept)
        if mark.encode() not in data:
            return len(kept)
        number = len(kept) + 1
        while not await self._folder.create(f"{self._below}/kept/{number:04d}.html", data):
            number += 1
        return len(kept) + 1
