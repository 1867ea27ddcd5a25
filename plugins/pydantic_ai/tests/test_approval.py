"""Approvals: a tool's own, and the SDK's calls that require approval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

import flyte
import pytest
from pydantic_ai import Agent, ApprovalRequired, RunContext

from flyteplugins.agents.conformance.approvals import ApprovalSuite, did_refund, done, look_up, refund, reviewer
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer
from flyteplugins.agents.core import Approval
from flyteplugins.agents.pydantic_ai import run_agent, tool

__all__ = ["done", "reviewer"]

MODEL = "openai-chat:gpt-4.1"

env = flyte.TaskEnvironment("approvals", cache="disable")

RunTask = Callable[..., Any]


class TestApprovals(ApprovalSuite):
    adapter = "pydantic_ai"


class TestPolicy(ApprovalSuite):
    """A function of the arguments that says whether somebody is asked."""

    adapter = "pydantic_ai"
    gate: ClassVar[Mapping[str, Any]] = {"requires_approval": lambda arguments: arguments["cents"] >= 100}


class TestToolOfTheSdk(ApprovalSuite):
    """A tool of the SDK's own, in an agent that the caller built."""

    adapter = "pydantic_ai"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}
    shown: ClassVar[Mapping[str, Any]] = {"order": "a"}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        agent = Agent(MODEL)
        agent.tool_plain(name="refund", requires_approval=True)(did_refund)
        return {"agent": agent, "tools": [agents.tool(look_up)]}


class TestRaising(ApprovalSuite):
    """A tool that raises `ApprovalRequired` by itself."""

    adapter = "pydantic_ai"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}
    shown: ClassVar[Mapping[str, Any]] = {"order": "a"}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        async def raising(ctx: RunContext[object], order: str, cents: int = 100) -> str:
            """Refund an order."""
            if not ctx.tool_call_approved:
                raise ApprovalRequired
            return await did_refund(order, cents)

        agent = Agent(MODEL)
        agent.tool(name="refund")(raising)
        return {"agent": agent, "tools": [agents.tool(look_up)]}


@pytest.mark.parametrize("own", [False, True])
async def test_arguments_of_a_deferred_call_that_are_edited_run_as_edited(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], own: bool
) -> None:
    model_env.script("^go$", Reply(calls=(call("refund", order="a"),)), "all done")
    reviewer.says("do not fit", '{"order": "b", "cents": 7}')
    reviewer.says('"a"', '{"order": "b", "cents": "seven"}')

    @env.task
    async def asking() -> str:
        agent = Agent(MODEL, tools=[] if own else [tool(refund, requires_approval=True)])
        if own:
            agent.tool_plain(name="refund", requires_approval=True)(did_refund)
        return str(await run_agent("go", agent=agent, approval=Approval(edit=True)))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert done == ["refund b 7"]
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 2


@pytest.mark.parametrize("own", [False, True])
async def test_a_sub_agents_call_asks_too(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], own: bool
) -> None:
    model_env.script("^go$", Reply(calls=(call("ask_expert", question="refund it"),)), "all done")
    model_env.script("^refund it$", Reply(calls=(call("refund", order="a"),)), "expert done")
    reviewer.says('"a"', "yes")

    @env.task
    async def asking() -> str:
        expert = Agent(MODEL, tools=[] if own else [tool(refund, requires_approval=True)])
        if own:
            expert.tool_plain(name="refund", requires_approval=True)(did_refund)
        start = Agent(MODEL)

        @start.tool_plain
        async def ask_expert(question: str) -> str:
            """Ask the expert."""
            return (await expert.run(question)).output

        return str(await run_agent("go", agent=start))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert done == ["refund a 100"]
    assert len(reviewer.asked) == 1
    assert model_env.journal.count() == 4


async def test_a_callable_of_the_agents_process_asks_as_well(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str]
) -> None:
    model_env.script("^go$", Reply(calls=(call("inline", order="a"),)), "all done")
    reviewer.says('"a"', "no")

    def inline(order: str) -> str:
        """Refund an order."""
        done.append(order)
        return "done"

    @env.task
    async def asking() -> str:
        return await run_agent("go", model=MODEL, tools=[tool(inline, requires_approval=Approval())])

    assert await run_task(asking) == "all done"
    assert done == []
