"""An SDK's control flow, raised in a tool's task, gets to the agent as it was, and without a retry of the task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flyte
import flyte.errors
import pytest

from flyteplugins.agents.core import AgentTool, ErrorClass, ToolTaskResolver, agent_run, register_control_flow
from flyteplugins.agents.core import _control_flow as control_flow

RunTask = Callable[..., Any]
env = flyte.TaskEnvironment("control-flow")


class Steer(Exception):
    """What an SDK has a tool raise."""

    def __init__(self, message: str, level: int = 1) -> None:
        self.message = message
        self.level = level
        super().__init__(message)


class SteerMore(Steer):
    """A program's own kind of it."""


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = set(control_flow._NAMES)
    register_control_flow(f"{Steer.__module__}.Steer")
    yield
    control_flow._NAMES.clear()
    control_flow._NAMES.update(before)


calls: list[str] = []


@env.task(retries=2, cache="disable")
async def steering(kind: str) -> str:
    calls.append(kind)
    if kind == "own":
        raise SteerMore("that way", level=3)
    if kind == "steer":
        raise Steer("this way", level=2)
    raise ValueError("lost")


@env.task(retries=2, cache="disable")
def steering_sync(kind: str) -> str:
    calls.append(kind)
    raise Steer("this way", level=2)


async def run_tool(task: Any, kind: str, outcomes: tuple[type[Exception], ...] = ()) -> str:
    async with agent_run(
        framework="test",
        name="steered",
        input=kind,
        memory_key=None,
        configuration={},
        classify=lambda error: ErrorClass.FAIL_NOW,
        control_flow=(Steer,),
        outcomes=outcomes,
    ) as run:
        try:
            text = (await AgentTool(task).call({"kind": kind})).text
        except Steer as error:
            text = f"{type(error).__name__} {error} {error.level}"

        async def turn() -> str:
            return "done"

        await run.recorder.record("turn", {"after": text}, turn, codec=_Text())
        return text


class _Text:
    def encode(self, value: str) -> Any:
        return value

    def decode(self, payload: Any) -> str:
        return str(payload)


@pytest.mark.parametrize(
    ("task", "kind", "expected"),
    [
        (steering, "steer", "Steer this way 2"),
        (steering, "own", "SteerMore that way 3"),
        (steering_sync, "steer", "Steer this way 2"),
    ],
)
async def test_control_flow_passes_at_once_with_its_type_and_payload(
    run_task: RunTask, task: Any, kind: str, expected: str
) -> None:
    calls.clear()

    @env.task
    async def agent() -> str:
        return await run_tool(task, kind)

    assert await run_task(agent) == expected
    assert calls == [kind]


async def test_another_exception_uses_the_retries_of_the_task_and_is_told(run_task: RunTask) -> None:
    calls.clear()

    @env.task
    async def agent() -> str:
        return await run_tool(steering, "else")

    assert "ValueError: lost" in await run_task(agent)
    assert len(calls) == 3


@pytest.mark.parametrize("kept", [True, False])
async def test_control_flow_that_is_an_outcome_is_kept_and_any_other_is_not(run_task: RunTask, kept: bool) -> None:
    calls.clear()

    @env.task
    async def agent() -> str:
        return await run_tool(steering, "steer", (Steer,) if kept else ())

    assert await run_task(agent, name="run") == await run_task(agent, name="run") == "Steer this way 2"
    assert len(calls) == (1 if kept else 2)


async def test_what_a_worker_loads_packs_control_flow_and_nothing_else() -> None:
    packing = control_flow.guarded(steering)
    assert packing is not steering
    with pytest.raises(flyte.errors.NonRecoverableError) as raised:
        await packing.func("steer")
    unpacked = control_flow.control_flow_of(flyte.errors.RuntimeUserError(raised.value.code, str(raised.value)))
    assert isinstance(unpacked, Steer)
    assert (unpacked.message, unpacked.level) == ("this way", 2)
    with pytest.raises(ValueError, match="lost"):
        await packing.func("else")
    assert control_flow.control_flow_of(flyte.errors.RuntimeUserError("ValueError", "lost")) is None
    assert ToolTaskResolver().import_path.endswith("ToolTaskResolver")
