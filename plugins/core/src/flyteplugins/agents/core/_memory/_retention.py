"""How long a memory keeps what."""

from __future__ import annotations

import datetime
import math
import time
from dataclasses import dataclass

__all__ = ["Cutoff", "Removed", "Retention"]


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What is removed from a memory for good, and when. At least one limit is given.

    Attributes:
        max_age: Messages of runs, and versions of paths that are not the current ones, are removed when they are older. So is
            the last content of a path that was deleted. The current content of a path stays, however old it is.
        max_runs: Of a transcript, the messages of the latest so many runs are kept.
        max_versions: Of a path, the latest so many versions are kept, the current one included.

    Raises:
        ValueError: No limit is given, or one is not positive.
    """

    max_age: datetime.timedelta | None = None
    max_runs: int | None = None
    max_versions: int | None = None

    def __post_init__(self) -> None:
        if self.max_age is None and self.max_runs is None and self.max_versions is None:
            raise ValueError("Retention() sets no limit. Give max_age, max_runs or max_versions.")
        if self.max_age is not None and self.max_age <= datetime.timedelta():
            raise ValueError(f"Retention has max_age={self.max_age!r}; give a positive timedelta.")
        for name, value in (("max_runs", self.max_runs), ("max_versions", self.max_versions)):
            if value is not None and value < 1:
                raise ValueError(f"Retention has {name}={value}; give 1 or more.")


@dataclass(frozen=True)
class Cutoff:
    """When a thing has to have got over a limit to be over it now, in seconds since the epoch.

    Attributes:
        written: A thing that was written before has been over the age limit long enough.
        surpassed: A thing has been over a limit of number long enough if the one that put it there was written before.
    """

    written: float
    surpassed: float

    @classmethod
    def of(cls, retention: Retention, grace: datetime.timedelta = datetime.timedelta()) -> Cutoff:
        """Say when it is, as of now.

        Args:
            retention: The limits.
            grace: How long a thing has to have been over a limit. Without one, numbers are limited whatever clocks say.
        """
        then = time.time() - grace.total_seconds()
        return cls(
            written=then - retention.max_age.total_seconds() if retention.max_age is not None else -math.inf,
            surpassed=then if grace else math.inf,
        )


@dataclass(frozen=True)
class Removed:
    """What a retention removed.

    Attributes:
        runs: The messages of how many runs, summaries among them.
        versions: The contents of how many versions of paths.
    """

    runs: int = 0
    versions: int = 0
