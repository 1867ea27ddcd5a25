"""The boundaries at which a process is killed."""

from __future__ import annotations

from dataclasses import dataclass

from flyteplugins.agents.conformance.faults import FaultPoint

__all__ = ["BOUNDARIES", "POINTS", "Boundary", "allowance"]

_CORE = "flyteplugins.agents.core"

POINTS = (
    FaultPoint("before-call", f"{_CORE}._recorder:ask", "before"),
    FaultPoint("after-call", f"{_CORE}._recorder:ask", "after"),
    FaultPoint("after-record", f"{_CORE}._records:RecordFolder.write", "after"),
    FaultPoint("before-commit", f"{_CORE}._memory:RunMemory.commit", "before"),
    FaultPoint("after-commit", f"{_CORE}._memory:RunMemory.commit", "after"),
)
"""The functions whose calls are boundaries. The tools of the dialogue reach `in-tool` and `after-tool` themselves."""


@dataclass(frozen=True)
class Boundary:
    """A place in the life of a leaf, a tool or a run.

    Attributes:
        name: The fault point's name.
        lost: What a kill there may cost: `request` (one model request is made again), `effect` (one tool body, and those that
            run beside it, run again), or nothing.
        meaning: A sentence for the table.
    """

    name: str
    lost: frozenset[str]
    meaning: str


BOUNDARIES = (
    Boundary("before-call", frozenset({"effect"}), "a leaf is about to be made"),
    Boundary("in-tool", frozenset({"effect"}), "a tool has had its effect, and has not returned"),
    Boundary("after-tool", frozenset({"effect"}), "a tool is about to return"),
    Boundary(
        "after-call", frozenset({"request", "effect"}), "the model or the tool has answered; nothing is on record"
    ),
    Boundary("after-record", frozenset({"effect"}), "the answer is on record; the leaf has not returned"),
    Boundary("before-commit", frozenset(), "the run is over; its messages are not in the memory"),
    Boundary("after-commit", frozenset(), "the messages are in the memory; the task has not returned"),
)
"""All boundaries. Where two tools run side by side, a kill at the boundary of one may come in the middle of the other."""


def allowance(name: str) -> frozenset[str]:
    """What a kill at a boundary may cost.

    Args:
        name: The boundary's name.
    """
    return next(boundary.lost for boundary in BOUNDARIES if boundary.name == name)
