"""Slots: how many workers compute at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flyteplugins.agents.conformance.plane._slots import Slots
from flyteplugins.agents.conformance.plane._store import ActionKey
from flyteplugins.agents.conformance.plane.testing import LocalPlane

PARENT, CHILD, OTHER = (ActionKey("run", name) for name in ("parent", "child", "other"))


def test_one_slot_is_enough_for_nested_children(
    plane_factory: Callable[..., LocalPlane], flow: ModuleType, run_on: Callable[..., Any]
) -> None:
    plane = plane_factory(slots=1)
    run = run_on(plane, flow.fan_out, depth=2, width=1)
    run.wait(quiet=True)
    assert run.outputs()[0] == 1


async def test_an_action_runs_only_when_another_waits_or_ends() -> None:
    waiting: set[ActionKey] = set()
    slots = Slots(1, lambda: waiting)
    await slots.acquire(PARENT)
    child = asyncio.ensure_future(slots.acquire(CHILD))
    other = asyncio.ensure_future(slots.acquire(OTHER))
    await asyncio.sleep(0)
    assert not child.done()

    waiting.add(PARENT)
    slots.dispatch()
    await asyncio.sleep(0)
    assert (child.done(), other.done()) == (True, False)

    waiting.clear()  # the parent goes on beside the child
    slots.release(CHILD)
    await asyncio.sleep(0)
    assert not other.done()
    slots.release(PARENT)
    await asyncio.sleep(0)
    assert other.done()


async def test_who_gives_up_waiting_for_a_slot_leaves_it_to_the_next() -> None:
    slots = Slots(1, set)
    await slots.acquire(PARENT)
    child = asyncio.ensure_future(slots.acquire(CHILD))
    other = asyncio.ensure_future(slots.acquire(OTHER))
    await asyncio.sleep(0)
    child.cancel()
    await asyncio.sleep(0)
    slots.release(PARENT)
    await asyncio.sleep(0)
    assert other.done()
