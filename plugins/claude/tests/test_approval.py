"""A person decides about a tool's call before it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flyte
import pytest

from flyteplugins.agents.claude import run_agent, tool
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer, reviewer
from flyteplugins.agents.core import Approval

__all__ = ["reviewer"]

env = flyte.TaskEnvironment("approvals", cache="disable")

RunTask = Callable[..., Any]

DONE: list[str] = []


@pytest.fixture(autouse=True)
def done() -> list[str]:
    DONE.clear()
    return DONE


@env.task
async def refund(order: str, cents: int = 100) -> str:
    """Refund an order."""
    DONE.append(f"refund {order} {cents}")
    return f"refunded {order}"


@env.task
async def look_up(order: str) -> str:
    """Look an order up."""
    DONE.append(f"look up {order}")
    return f"found {order}"


def proposes(model: ModelServer, *names: str) -> None:
    calls = tuple(call(name, order=order) for name, order in zip(names, "abcdef", strict=False))
    model.script("go", Reply(calls=calls), "all done")


async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    proposes(model_env, "refund", "look_up", "refund")
    reviewer.says('"a"', "yes")
    reviewer.says('"c"', "no: it is too late")

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", tools=[tool(refund, requires_approval=True), tool(look_up)]))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 2
    told = str(model_env.journal.requests()[-1].body)
    assert all(text in told for text in ("refunded a", "found b", "it is too late"))


async def test_edited_arguments_run_as_edited(model_env: ModelServer, run_task: RunTask, reviewer: Reviewer) -> None:
    proposes(model_env, "refund")
    reviewer.says('"a"', '{"order": "b", "cents": 7}')

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", tools=[tool(refund, requires_approval=Approval(edit=True))]))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert DONE == ["refund b 7"]


async def test_what_waits_is_no_answer_and_goes_on_when_somebody_is_there(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    proposes(model_env, "refund")
    reviewer.present = False

    @env.task(retries=2)
    async def asking() -> str:
        result = await run_agent("go", full_result=True, tools=[tool(refund, requires_approval=True)])
        return f"{result.output} {[one.partition(':')[0] for one in result.pending]}"

    assert await run_task(asking, name="run") == "None ['refund sha256']"
    assert DONE == []
    reviewer.present = True
    reviewer.says('"a"', "yes")
    assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund a 100"]
    assert model_env.journal.count() == 2
