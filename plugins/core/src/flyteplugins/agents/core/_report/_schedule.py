"""When a report is written while its agents work: soon at first, then ever less often, and by how much was written already.

A report is one file that is written anew each time, so what an attempt writes in all is (size of the file) times (how often).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Schedule", "now"]

FIRST_SECONDS = 2.0
"""The first time: a person who looks while the first turn runs sees that it does. A run that is over by then writes once."""

MIN_SECONDS = 5.0
"""The least time between two writes."""

SHARE = 0.05
"""The time between two writes as a share of the time since the beginning: 45 writes for each tenfold time."""

HALVING_BYTES = 4_000_000
"""Each time that this much was written, writes become half as frequent."""


def now() -> float:
    """A clock for durations, in seconds."""
    return time.monotonic()


@dataclass
class Schedule:
    """Says when the next write is due.

    Attributes:
        began: When the attempt's first report began, on the clock of `now`.
        last: When it was written last; `None` before the first time.
        written: How many bytes were written in all.
    """

    began: float
    last: float | None = None
    written: int = 0

    @property
    def due(self) -> float:
        """When the next write is due, on the clock of `now`."""
        if self.last is None:
            return self.began + FIRST_SECONDS
        share = (self.last - self.began) * SHARE * 2 ** min(self.written / HALVING_BYTES, 60)
        return self.last + max(MIN_SECONDS, share)

    def wrote(self, size: int) -> None:
        """Note a write of `size` bytes."""
        self.last = now()
        self.written += size
