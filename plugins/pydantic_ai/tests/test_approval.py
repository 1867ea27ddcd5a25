"""Approvals: a tool's own, and the SDK's calls that require approval."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flyte
import pytest
from pydantic_ai import Agent, ApprovalRequired, RunContext

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer, reviewer
from flyteplugins.agents.core import Approval
from flyteplugins.agents.pydantic_ai import run_agent, tool

__all__ = ["reviewer"]

MODEL = "openai-chat:gpt-4.1"

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
    model.script("^go$", Reply(calls=calls), "all done")


FORMS = ["a policy", "requires_approval", "the SDK's own tool", "ApprovalRequired"]


def agent_of(form: str) -> Agent[None, str]:
    if form == "a policy":
        return Agent(MODEL, tools=[tool(refund, requires_approval=lambda arguments: arguments["cents"] >= 100)])
    if form == "requires_approval":
        return Agent(MODEL, tools=[tool(refund, requires_approval=True)])
    agent = Agent(MODEL)
    if form == "the SDK's own tool":

        @agent.tool_plain(name="refund", requires_approval=True)
        async def own(order: str, cents: int = 100) -> str:
            """Refund an order."""
            return await refund(order, cents)

    else:

        @agent.tool(name="refund")
        async def raising(ctx: RunContext[object], order: str, cents: int = 100) -> str:
            """Refund an order."""
            if not ctx.tool_call_approved:
                raise ApprovalRequired
            return await refund(order, cents)

    return agent


@pytest.mark.parametrize("form", FORMS)
async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: str
) -> None:
    proposes(model_env, "refund", "look_up", "refund")
    reviewer.says('"a"', "yes")
    reviewer.says('"c"', "no: it is too late")

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=agent_of(form), tools=[tool(look_up)]))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len(reviewer.asked) == 2
    messages = model_env.journal.requests()[-1].body["messages"]
    answers = [str(one["content"]) for one in messages if one["role"] == "tool"]
    assert sum("it is too late" in text for text in answers) == 1
    assert {"refunded a", "found b"} < set(answers)
    assert model_env.journal.count() == 2
    if form in ("a policy", "requires_approval"):
        assert all('"cents": 100' in text for text in reviewer.asked)


async def test_edited_arguments_run_as_edited(model_env: ModelServer, run_task: RunTask, reviewer: Reviewer) -> None:
    proposes(model_env, "refund")
    reviewer.says('"a"', '{"order": "b", "cents": 7}')

    @env.task
    async def asking() -> str:
        return await run_agent("go", model=MODEL, tools=[tool(refund, requires_approval=Approval(edit=True))])

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert DONE == ["refund b 7"]


async def test_a_callable_of_the_agents_process_asks_as_well(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    proposes(model_env, "inline")
    reviewer.says('"a"', "no")

    def inline(order: str) -> str:
        """Refund an order."""
        DONE.append(order)
        return "done"

    @env.task
    async def asking() -> str:
        return await run_agent("go", model=MODEL, tools=[tool(inline, requires_approval=Approval())])

    assert await run_task(asking) == "all done"
    assert DONE == []


@pytest.mark.parametrize("form", FORMS)
async def test_what_waits_is_no_answer_and_goes_on_when_somebody_is_there(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: str
) -> None:
    proposes(model_env, "refund")
    reviewer.present = False

    @env.task(retries=2)
    async def asking() -> str:
        result = await run_agent("go", agent=agent_of(form), full_result=True)
        return f"{result.output} {[one.partition(':')[0] for one in result.pending]}"

    assert await run_task(asking, name="run") == "None ['refund sha256']"
    assert DONE == []
    reviewer.present = True
    reviewer.says('"a"', "yes")
    assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund a 100"]
    assert model_env.journal.count() == 2
