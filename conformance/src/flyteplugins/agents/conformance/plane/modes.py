"""How the plane is to misbehave, or behave as one backend or another."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from flyteplugins.agents.conformance.faults import FaultPoint, parse_plan

DropWhen = Literal["request", "response"]

_METHOD = re.compile(r"\w+/\w+")


@dataclass(frozen=True)
class Drop:
    """Lose one call: the connection is cut without an answer.

    Args:
        method: `Service/Method`, for instance `ActionsService/Enqueue`.
        occurrence: 1 for the first such call after the mode was set.
        when: the `request` is lost, so that nothing happens; or the `response`, so that it happened and the caller does
            not know.
    """

    method: str
    occurrence: int = 1
    when: DropWhen = "request"

    def __post_init__(self) -> None:
        if not _METHOD.fullmatch(self.method):
            raise ValueError(
                f"Drop has method {self.method!r}: write 'Service/Method', as in 'ActionsService/Enqueue'."
            )
        if self.occurrence < 1:
            raise ValueError(f"Drop of {self.method} has occurrence {self.occurrence}: the first one is 1.")
        if self.when not in get_args(DropWhen):
            raise ValueError(f"Drop of {self.method} has when={self.when!r}: write 'request' or 'response'.")

    def __str__(self) -> str:
        return f"{self.method}@{self.occurrence}:{self.when}"

    @classmethod
    def parse(cls, text: str) -> Drop:
        """Read `Service/Method`, `Service/Method@2` or `Service/Method@2:response`."""
        head, _, when = text.partition(":")
        method, _, occurrence = head.partition("@")
        if occurrence and not occurrence.isdecimal():
            raise ValueError(
                f"Drop {text!r} has occurrence {occurrence!r}: write 'Service/Method@2' for the second call."
            )
        return cls(method, int(occurrence or 1), when or "request")  # type: ignore[arg-type]  # checked at construction


@dataclass(frozen=True)
class Modes:
    """What the plane does differently. By default it answers a retry as the open-source backend of August 2026 does.

    Args:
        serve_traces: answer a retry's recorded traces from their records, and those of a run that is recovered. The
            open-source backend lists only child tasks and conditions to a retry. Traces that failed with a
            recoverable error are never served: the SDK (2.12) would run the step again but not record its success.
        forget_children_after: seconds after which a finished child is forgotten: a retry that asks for it again runs it
            again. The open-source backend forgets after 3600; `None` remembers.
        snapshot_delay: seconds before a parent hears which children it has. The SDK goes on without after 5.
        drop: calls to lose.
        faults: where workers die: a fault plan such as `after-model-call@2`, see the sibling package `faults`. It
            applies to every run; a run's own environment variable `AGENTS_FAULTS` goes before it. Points are counted,
            and faults installed, where either is given.
        fault_points: functions that are fault points, wrapped in the worker.
        warm_workers: start workers from a process that has imported what the plane preloads; without effect where it
            preloads nothing.
    """

    serve_traces: bool = False
    forget_children_after: float | None = None
    snapshot_delay: float = 0.0
    drop: tuple[Drop, ...] = ()
    faults: str | None = None
    fault_points: tuple[FaultPoint, ...] = ()
    warm_workers: bool = True

    def __post_init__(self) -> None:
        if self.forget_children_after is not None and self.forget_children_after < 0:
            raise ValueError(f"forget_children_after is {self.forget_children_after}: give seconds, 0 or more.")
        if self.snapshot_delay < 0:
            raise ValueError(f"snapshot_delay is {self.snapshot_delay}: give seconds, 0 or more.")
        parse_plan(self.faults or "")

    def to_options(self) -> list[str]:
        """Write the modes as options of the command line's `up`."""
        options = [f"--snapshot-delay={self.snapshot_delay}"]
        if self.serve_traces:
            options.append("--serve-traces")
        if self.forget_children_after is not None:
            options.append(f"--forget-children-after={self.forget_children_after}")
        if self.faults is not None:
            options.append(f"--faults={self.faults}")
        if not self.warm_workers:
            options.append("--cold-workers")
        options += [f"--drop={drop}" for drop in self.drop]
        options += [f"--fault-point={point}" for point in self.fault_points]
        return options

    def to_json(self) -> str:
        """Write the modes as JSON, for `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Modes:
        """Read modes.

        Raises:
            ValueError: the text is no such JSON, or holds a mode that does not exist.
        """
        try:
            values: dict[str, Any] = json.loads(text)
            unknown = set(values) - {field.name for field in fields(cls)}
            if unknown:
                raise ValueError(
                    f"There is no mode {sorted(unknown)}; there are {[field.name for field in fields(cls)]}."
                )
            values["drop"] = tuple(Drop(**drop) for drop in values.get("drop", ()))
            values["fault_points"] = tuple(FaultPoint(**point) for point in values.get("fault_points", ()))
            return cls(**values)
        except (TypeError, AttributeError, json.JSONDecodeError) as e:
            raise ValueError(f"These are not modes in JSON: {e}.") from e
