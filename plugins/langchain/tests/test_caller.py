"""What the caller passed is as it was, what listens is told, and budgets hold."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import Event, RunFinished, RunStarted, ToolCallFinished, TurnFinished
from flyteplugins.agents.langchain import Budget, run_agent, tool

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("caller")


@tool
@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, with the identity of each value."""
    return {name: id(item) for name, item in vars(value).items()}


async def test_graph_model_tools_config_and_input_are_unchanged(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"))
    model = ChatOpenAI(model="gpt-4.1")
    graph = create_agent(model, [lookup], name="mine")
    messages = [HumanMessage("go")]
    config: Any = {"tags": ["mine"], "configurable": {"some": "thing"}}
    model._serialized, model._get_llm_string()  # what the SDK computes once is no change
    before = (state_of(model), state_of(graph), copy.deepcopy(messages), copy.deepcopy(config), type(model))
    nodes = {name: id(node) for name, node in graph.nodes.items()}

    @env.task
    async def chat() -> str:
        return str(await run_agent(messages, agent=graph, config=config))

    assert await run_task(chat) == "done"
    assert (state_of(model), state_of(graph), messages, config, type(model)) == before
    assert {name: id(node) for name, node in graph.nodes.items()} == nodes


async def test_the_sdk_by_itself_is_as_it_was_in_a_process_that_ran_a_durable_agent(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, Reply("hello"), repeat_last=True)
    model = ChatOpenAI(
        model="gpt-4.1", timeout=63
    )  # connections of its own: the package's belong to another test's loop

    @env.task
    async def chat() -> str:
        await run_agent("durable", model="openai:gpt-4.1")
        return str((await model.ainvoke("bare")).text)

    assert await run_task(chat) == await run_task(chat) == "hello"
    assert model_env.journal.count(user="durable") == 1
    assert model_env.journal.count(user="bare") == 2
    assert type(model) is ChatOpenAI
    assert BaseChatModel._agenerate is not None
    assert BaseTool.__name__ == "BaseTool"


async def test_an_event_stream_tells_the_run_and_marks_what_is_replayed(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"))
    seen: list[Event] = []

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", tools=[lookup], model="openai:gpt-4.1", name="guide", on_event=seen.append))

    for replayed in (False, True):
        seen.clear()
        assert await run_task(chat) == "done"
        told = [event for event in seen if isinstance(event, (TurnFinished, ToolCallFinished))]
        assert [event.type for event in told] == ["turn finished", "tool call finished", "turn finished"]
        assert {event.replayed for event in told} == {replayed}
        assert {event.agent for event in told} == {"guide"}
        assert isinstance(seen[0], RunStarted)
        assert isinstance(seen[-1], RunFinished)
        turn = told[0]
        assert isinstance(turn, TurnFinished)
        assert (turn.model, turn.tool_calls) == ("gpt-4.1", ("lookup",))
        assert turn.cost is not None


@pytest.mark.parametrize(
    ("budget", "problem", "requests"),
    [
        (Budget(turns=1), "turns may be 1, and would be 2", 1),
        (Budget(tool_calls=1), "tool_calls may be 1, and would be 2", 1),
        (Budget(same_call=1), "same_call may be 1, and would be 2", 1),
        (Budget(tokens=5), "tokens may be 5", 1),
    ],
    ids=["turns", "tool calls", "equal calls", "tokens"],
)
async def test_a_budget_ends_the_run_and_a_resume_ends_the_same_way(
    model_env: ModelServer, run_task: RunTask, budget: Budget, problem: str, requests: int
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"), call("lookup", city="Oslo"))), Reply("done"))

    @env.task(retries=2)
    async def chat() -> str:
        return str(await run_agent("go", tools=[lookup], model="openai:gpt-4.1", budget=budget))

    for _ in range(2):
        with pytest.raises(flyte.errors.RuntimeUserError, match=problem) as raised:
            await run_task(chat)
        assert raised.value.code == "NonRecoverableError"
    assert model_env.journal.count() == requests


async def test_a_run_that_fails_leaves_a_report_and_says_why(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply("never"))
    model_env.fault(Fault.unauthorized())
    seen: list[Event] = []

    @env.task(report=True)
    async def chat() -> str:
        return str(await run_agent("go", model="openai:gpt-4.1", on_event=seen.append))

    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(chat)
    finished = seen[-1]
    assert isinstance(finished, RunFinished)
    assert "AuthenticationError" in (finished.error or "")
