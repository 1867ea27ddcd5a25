"""The plan: which faults strike, and which functions are fault points."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal, get_args

PLAN_VARIABLE = "AGENTS_FAULTS"
"""Environment variable with the faults to strike: `point@occurrence`, comma-separated; may be empty (only count)."""

DIRECTORY_VARIABLE = "AGENTS_FAULT_DIR"
"""Environment variable with the folder of one run, in which the points reached are counted."""

POINTS_VARIABLE = "AGENTS_FAULT_POINTS"
"""Environment variable with the functions to wrap, as the JSON that `dump_points` writes."""

When = Literal["before", "after"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def check_name(name: str) -> str:
    """Return `name` if it can name a fault point (and so a file), else raise `ValueError`."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name a fault point: use letters, digits, '.', '_' and '-', a letter or digit first."
        )
    return name


@dataclass(frozen=True)
class Fault:
    """Kill the process that is the `occurrence`-th of its run to reach `point`.

    Args:
        point: name of the fault point.
        occurrence: 1 for the first time the point is reached in the run, counted over all processes and attempts.
    """

    point: str
    occurrence: int = 1

    def __post_init__(self) -> None:
        check_name(self.point)
        if self.occurrence < 1:
            raise ValueError(f"Fault {self.point!r} has occurrence {self.occurrence}: the first one is 1.")

    def __str__(self) -> str:
        return f"{self.point}@{self.occurrence}"


@dataclass(frozen=True)
class FaultPoint:
    """A function whose calls are a fault point.

    Args:
        name: name of the point.
        target: `module:function` or `module:Class.method`; wrapped once the module is imported.
        when: `before` the function runs, or `after` it returned (awaited, where it is a coroutine function; a call that
            raises does not reach it).
    """

    name: str
    target: str
    when: When = "before"

    def __post_init__(self) -> None:
        check_name(self.name)
        if not _TARGET.fullmatch(self.target):
            raise ValueError(f"Fault point {self.name!r} has target {self.target!r}: write 'module:function'.")
        if self.when not in get_args(When):
            raise ValueError(f"Fault point {self.name!r} has when={self.when!r}: write 'before' or 'after'.")

    def __str__(self) -> str:
        return f"{self.name}={self.target}:{self.when}"

    @classmethod
    def parse(cls, text: str) -> FaultPoint:
        """Read `NAME=MODULE:FUNCTION` or `NAME=MODULE:FUNCTION:after`.

        Raises:
            ValueError: the text is not of that form; the message says what is wrong.
        """
        name, _, rest = text.partition("=")
        module, _, path = rest.partition(":")
        function, _, when = path.partition(":")
        return cls(name, f"{module}:{function}", when or "before")  # type: ignore[arg-type]  # checked at construction


def parse_plan(text: str) -> tuple[Fault, ...]:
    """Read `point@occurrence,point@occurrence`; `@occurrence` may be left out and is then 1.

    Raises:
        ValueError: an entry is not of that form; the message names it.
    """
    faults = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        point, _, occurrence = entry.partition("@")
        if occurrence and not occurrence.isdecimal():
            raise ValueError(f"Fault {entry!r} has occurrence {occurrence!r}: write 'point@2' for the second time.")
        faults.append(Fault(point, int(occurrence or 1)))
    return tuple(faults)


def dump_points(points: Iterable[FaultPoint]) -> str:
    """Write points as JSON for `POINTS_VARIABLE`."""
    return json.dumps([asdict(point) for point in points], separators=(",", ":"))


def load_points(text: str) -> tuple[FaultPoint, ...]:
    """Read what `dump_points` wrote.

    Raises:
        ValueError: the text is not such JSON.
    """
    try:
        return tuple(FaultPoint(**entry) for entry in json.loads(text or "[]"))
    except (TypeError, json.JSONDecodeError) as e:
        raise ValueError(f"{POINTS_VARIABLE} is not a JSON list of fault points: {e}.") from e
