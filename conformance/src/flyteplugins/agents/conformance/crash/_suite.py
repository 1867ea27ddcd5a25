"""Comparing a run that was killed with one that was left alone."""

from __future__ import annotations

from flyteplugins.agents.conformance.faults import Fault

from ._boundaries import allowance
from ._dialogue import Outcome
from ._places import Place

__all__ = ["compare", "crash_at"]


def crash_at(place: Place, unbroken: Outcome, *faults: Fault, memory: bool) -> Outcome:
    """Run the dialogue, kill it at some boundaries, and compare.

    Args:
        place: Where it runs.
        unbroken: What came of a run that was left alone.
        faults: Where it is killed.
        memory: Whether it has a memory.

    Returns:
        What came of it.

    Raises:
        AssertionError: Something differs that the boundaries do not allow to differ.
    """
    outcome = place.run(*faults, memory=memory)
    compare(unbroken, outcome, *faults)
    return outcome


def compare(unbroken: Outcome, outcome: Outcome, *faults: Fault) -> None:
    """Say what differs.

    Args:
        unbroken: What came of a run that was left alone.
        outcome: What came of one that was killed.
        faults: Where it was killed.

    Raises:
        AssertionError: Something differs that the boundaries do not allow to differ.
    """
    where = f"killed at {', '.join(map(str, faults))}"
    for name in ("answer", "usage", "transcript", "told"):
        expected, found = getattr(unbroken, name), getattr(outcome, name)
        assert found == expected, f"{where}: the {name} is {found!r}; an unbroken run's is {expected!r}."
    may_ask = sum("request" in allowance(fault.point) for fault in faults)
    assert outcome.requests.keys() == unbroken.requests.keys(), f"{where}: turns {dict(outcome.requests)} were asked."
    again = sum(outcome.requests.values()) - sum(unbroken.requests.values())
    assert 0 <= again <= may_ask, (
        f"{where}: turns were asked {dict(outcome.requests)} times, {again} more than in an unbroken run; {may_ask} may be."
    )
    missing = unbroken.effects - outcome.effects
    assert not missing, f"{where}: {dict(missing)} had no effect."
    repeated = outcome.effects - unbroken.effects
    may_repeat = sum("effect" in allowance(fault.point) for fault in faults) * 2  # two tools run side by side
    assert sum(repeated.values()) <= may_repeat, f"{where}: {dict(repeated)} happened again; {may_repeat} effects may."
