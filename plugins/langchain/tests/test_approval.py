"""Approvals: a tool's own, LangGraph's `interrupt()`, and `HumanInTheLoopMiddleware`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

import flyte
import flyte.errors
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from flyteplugins.agents.conformance.approvals import ApprovalSuite, done, look_up, refund, reviewer
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer
from flyteplugins.agents.core import Approval
from flyteplugins.agents.langchain import run_agent, tool

__all__ = ["done", "reviewer"]

env = flyte.TaskEnvironment("approvals", cache="disable")

RunTask = Callable[..., Any]


class TestApprovals(ApprovalSuite):
    adapter = "langchain"
    model = "openai:gpt-4.1"


class TestMiddleware(ApprovalSuite):
    """`HumanInTheLoopMiddleware` of an agent that the caller built: it knows what the model said, and no defaults."""

    adapter = "langchain"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}
    model = "openai:gpt-4.1"
    shown: ClassVar[Mapping[str, Any]] = {"order": "a"}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        return {"agent": reviewed(agents.tool(refund), agents.tool(look_up))}


class TestMiddlewarePerCall(TestMiddleware):
    """The same, with an interrupt of its own for each call."""

    def options(self, agents: ModuleType) -> dict[str, Any]:
        return {"agent": reviewed(agents.tool(refund), agents.tool(look_up), interrupt_mode="per_call")}


def reviewed(*tools: Any, allowed: Any = True, **options: Any) -> Any:
    """An agent in whose middleware a person decides about refunds."""
    human: Any = HumanInTheLoopMiddleware(interrupt_on={"refund": allowed}, **options)
    return create_agent(ChatOpenAI(model="gpt-4.1"), list(tools), middleware=[human])


MODES = pytest.mark.parametrize("mode", ["batched", "per_call"])


@MODES
async def test_arguments_that_are_edited_in_the_middleware_run_as_edited(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], mode: str
) -> None:
    model_env.script("^go$", Reply(calls=(call("refund", order="a"), call("refund", order="c"))), "all done")
    reviewer.says('"a"', '{"order": "b", "cents": 7}')
    reviewer.says('"c"', "approve")

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=reviewed(tool(refund), interrupt_mode=mode)))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert sorted(done) == ["refund b 7", "refund c 100"]
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 2


async def test_an_edit_that_does_not_fit_the_tool_is_asked_for_again(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str]
) -> None:
    """With an interrupt of its own the middleware says what fits, and takes nothing else."""
    model_env.script("^go$", Reply(calls=(call("refund", order="a"),)), "all done")
    reviewer.says("do not fit", '{"order": "b", "cents": 7}')
    reviewer.says('"a"', '{"order": "b", "cents": "seven"}')

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=reviewed(tool(refund), interrupt_mode="per_call")))

    assert await run_task(asking) == "all done"
    assert done == ["refund b 7"]
    assert len(reviewer.asked) == 2


@MODES
async def test_a_person_who_is_the_tool_gives_its_result(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], mode: str
) -> None:
    model_env.script("^go$", Reply(calls=(call("refund", order="a"),)), "all done")
    reviewer.says('"a"', "paid in cash")

    @env.task
    async def asking() -> str:
        only: Any = {"allowed_decisions": ["respond"]}
        return str(await run_agent("go", agent=reviewed(tool(refund), allowed=only, interrupt_mode=mode)))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert done == []
    assert len(reviewer.asked) == 1
    assert "paid in cash" in str(model_env.journal.requests()[-1].body)
    assert model_env.journal.count() == 2


@MODES
async def test_a_decision_that_the_middleware_does_not_take_ends_the_run(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], mode: str
) -> None:
    """What was denied does not run because nobody may say so."""
    model_env.script("^go$", Reply(calls=(call("refund", order="a"),)), "all done")
    reviewer.says('"a"', "no")

    @env.task
    async def asking() -> str:
        only: Any = {"allowed_decisions": ["approve"]}
        return str(await run_agent("go", agent=reviewed(tool(refund), allowed=only, interrupt_mode=mode)))

    for _ in range(2):
        with pytest.raises(flyte.errors.RuntimeUserError, match="takes approve of a call of refund, and no 'reject'"):
            await run_task(asking, name="run")
    assert done == []
    assert len(reviewer.asked) == 1


async def test_an_answer_that_does_not_fit_an_interrupt_is_asked_for_again(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    reviewer.says("does not fit", "3")
    reviewer.says("How many", "some")

    async def count(state: MessagesState) -> dict[str, Any]:
        del state
        number = interrupt("How many?", response_schema=int)
        return {"messages": [AIMessage(f"{number + 1}")]}

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=StateGraph(MessagesState).add_node(count).add_edge(START, "count")))

    for _ in range(2):
        assert await run_task(asking, name="run") == "4"
    assert len(reviewer.asked) == 2


async def test_a_sub_agents_call_asks_too(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str]
) -> None:
    """A deep agent's sub-agent, with its tool's own policy and with the SDK's `interrupt_on`, side by side."""
    from deepagents import create_deep_agent

    asked = [call("task", description=f"refund {order}", subagent_type=f"clerk_{order}") for order in "ab"]
    model_env.script("^go$", Reply(calls=tuple(asked)), "all done")
    for order in "ab":
        model_env.script(f"^refund {order}$", Reply(calls=(call("refund", order=order),)), f"refunded {order}")
    reviewer.says('"a"', "yes")
    reviewer.says('"b"', "deny: it is too late")

    @env.task
    async def asking() -> str:
        clerks: Any = [
            {
                "name": "clerk_a",
                "description": "x",
                "system_prompt": "x",
                "tools": [tool(refund, requires_approval=True)],
            },
            {
                "name": "clerk_b",
                "description": "y",
                "system_prompt": "y",
                "tools": [tool(refund)],
                "interrupt_on": {"refund": True},
            },
        ]
        agent = create_deep_agent(ChatOpenAI(model="gpt-4.1"), subagents=clerks)
        return str(await run_agent("go", agent=agent))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert done == ["refund a 100"]
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 6
    assert "it is too late" in str(model_env.journal.requests(user="refund b")[-1].body)


async def test_an_interrupt_asks_a_person_and_the_graph_goes_on_with_the_answer(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    model_env.script("go", "A draft.", repeat_last=True)
    reviewer.says("A draft", "rather short")
    reviewer.says("Sign", '{"name": "Maya"}')

    async def draft(state: MessagesState) -> dict[str, Any]:
        text = (await ChatOpenAI(model="gpt-4.1").ainvoke(state["messages"])).text
        word = interrupt({"draft": str(text)})
        signed = interrupt("Sign it")
        return {"messages": [AIMessage(f"{text} {word} {signed['name']}")]}

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=StateGraph(MessagesState).add_node(draft).add_edge(START, "draft")))

    for _ in range(2):
        assert await run_task(asking, name="run") == "A draft. rather short Maya"
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 1


async def test_an_interrupt_that_nobody_answers_in_time_ends_the_run(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    """There is no answer that the graph could go on with."""
    reviewer.says("Sign", None)

    async def sign(state: MessagesState) -> dict[str, Any]:
        del state
        return {"messages": [AIMessage(interrupt("Sign it"))]}

    @env.task
    async def asking() -> str:
        graph = StateGraph(MessagesState).add_node(sign).add_edge(START, "sign")
        return str(await run_agent("go", agent=graph, approval=Approval(timeout=60)))

    for _ in range(2):
        with pytest.raises(flyte.errors.RuntimeUserError, match="Nobody decided about interrupt of"):
            await run_task(asking, name="run")
    assert len(reviewer.asked) == 1
