"""Graphs of the caller's: interrupts, nodes that run again, states without messages, and what cannot be combined."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools import tool as langchain_tool
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import AgentError, AgentResult
from flyteplugins.agents.langchain import run_agent

RunTask = Callable[..., Any]
Folder = Callable[..., Path]

env = flyte.TaskEnvironment("graphs")


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


async def ask_then_wait(state: MessagesState) -> dict[str, Any]:
    """Asks the model, and then a person."""
    draft = await ChatOpenAI(model="gpt-4.1").ainvoke(state["messages"])
    word = interrupt({"draft": str(draft.text)})
    return {"messages": [AIMessage(f"{draft.text} {word}")]}


def one_node(node: Any, **options: Any) -> StateGraph[Any]:
    return StateGraph(MessagesState).add_node("node", node, **options).add_edge(START, "node")


async def test_an_interrupt_is_never_an_answer(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("Hi", Reply("A draft."), repeat_last=True)

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi", agent=one_node(ask_then_wait), checkpointer=InMemorySaver()))

    with pytest.raises(flyte.errors.RuntimeUserError, match=r"is pending: there is no terminal") as raised:
        await run_task(asking)
    assert raised.value.code == "ApprovalPending"
    with pytest.raises(AgentError, match="is pending: there is no terminal"):
        await run_agent("Hi", agent=one_node(ask_then_wait), checkpointer=InMemorySaver())


async def test_a_breakpoint_is_never_an_answer(model_env: ModelServer, run_task: RunTask) -> None:
    """The SDK's own `ainvoke` returns a state like any other there."""
    model_env.script("Hi", Reply("Let me see.", calls=(call("look"),)), Reply("never"))

    @langchain_tool
    def look() -> str:
        """Look."""
        return "seen"

    @env.task
    async def asking() -> str:
        options: dict[str, Any] = {"interrupt_before": ["tools"], "checkpointer": InMemorySaver()}
        return str(await run_agent("Hi", tools=[look], model="openai:gpt-4.1", **options))

    with pytest.raises(flyte.errors.RuntimeUserError, match="waits for an answer to a breakpoint"):
        await run_task(asking)
    assert model_env.journal.count() == 1


async def test_a_node_that_runs_again_after_an_interrupt_does_not_pay_its_turn_twice(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """Nor in a later attempt, where both parts of the run replay."""
    model_env.script("Hi", Reply("A draft."), repeat_last=True)
    seen: list[tuple[str, ...]] = []
    state = {"crash": True}

    @env.task
    async def asking() -> str:
        graph = one_node(ask_then_wait).compile(checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "one"}}
        first = await run_agent("Hi", agent=graph, config=thread, full_result=True)
        seen.append(first.pending)
        assert first.output is None
        second = await run_agent(Command(resume="Yes."), agent=graph, config=thread, full_result=True)
        if state["crash"]:
            raise Crash("Crash")
        assert second.pending == ()
        return str(second.output)

    with pytest.raises(Exception, match="Crash"):
        await run_task(asking)
    assert model_env.journal.count() == 1
    state["crash"] = False
    assert await run_task(asking) == "A draft. Yes."
    assert model_env.journal.count() == 1
    assert seen == [('{"draft":"A draft."}',)] * 2


async def test_a_node_with_a_retry_policy_does_not_pay_its_turns_twice(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    """In a graph inside the node too; two equal questions of one execution are two."""
    answers = iter(["first", "second", "inner", "never"])
    model_env.script(None, lambda _: Reply(next(answers)), repeat_last=True)
    inner = create_agent(ChatOpenAI(model="gpt-inner"))
    executions = []

    async def node(state: MessagesState) -> dict[str, Any]:
        executions.append(1)
        model = ChatOpenAI(model="gpt-4.1")
        texts = [str((await model.ainvoke("Hi")).text), str((await model.ainvoke("Hi")).text)]
        found = await inner.ainvoke({"messages": [HumanMessage("Hi")]})
        texts.append(str(found["messages"][-1].text))
        if len(executions) < 3:
            raise ConnectionError("Once more.")
        return {"messages": [AIMessage(" ".join(texts))]}

    policy = RetryPolicy(max_attempts=3, initial_interval=0.0, jitter=False, retry_on=ConnectionError)

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi", agent=one_node(node, retry_policy=policy)))

    assert await run_task(asking) == "first second inner"
    assert len(executions) == 3
    assert model_env.journal.count() == 3
    assert len([*run_folder().rglob("turn.*")]) == 3


async def test_a_tool_of_a_node_that_runs_again_is_not_run_twice(model_env: ModelServer, run_task: RunTask) -> None:
    ran: list[str] = []

    @langchain_tool
    def look(city: str) -> str:
        """Look."""
        ran.append(city)
        return f"seen {city}"

    async def node(state: MessagesState) -> dict[str, Any]:
        seen = await look.ainvoke({"city": "Oslo"})
        word = interrupt("Well?")
        return {"messages": [AIMessage(f"{seen} {word}")]}

    @env.task
    async def asking() -> str:
        graph = one_node(node).compile(checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "one"}}
        await run_agent("Hi", agent=graph, config=thread, full_result=True)
        return str(await run_agent(Command(resume="Yes."), agent=graph, config=thread))

    assert await run_task(asking) == await run_task(asking) == "seen Oslo Yes."
    assert ran == ["Oslo"]


async def test_human_in_the_loop_middleware_goes_on_with_a_decision(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("Hi", Reply(calls=(call("look", city="Oslo"),)), Reply("Cold."))
    ran: list[str] = []

    @langchain_tool
    def look(city: str) -> str:
        """Look."""
        ran.append(city)
        return f"seen {city}"

    @env.task
    async def asking() -> str:
        human: Any = HumanInTheLoopMiddleware(interrupt_on={"look": True})
        graph = create_agent("openai:gpt-4.1", [look], middleware=[human], checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "one"}}
        first = await run_agent("Hi", agent=graph, config=thread, full_result=True)
        assert "look" in first.pending[0]
        return str(await run_agent(Command(resume={"decisions": [{"type": "approve"}]}), agent=graph, config=thread))

    assert await run_task(asking) == await run_task(asking) == "Cold."
    assert ran == ["Oslo"]
    assert model_env.journal.count() == 2


class Sum(TypedDict, total=False):
    """A state without messages."""

    numbers: list[int]
    total: int


async def test_a_graph_without_messages_takes_a_state_and_gives_one(run_task: RunTask) -> None:
    graph = StateGraph(Sum).add_node("add", lambda state: {"total": sum(state["numbers"])}).add_edge(START, "add")

    @env.task
    async def adding() -> int:
        result: AgentResult[Any] = await run_agent({"numbers": [1, 2]}, agent=graph, full_result=True)
        assert result.text == '{"numbers":[1,2],"total":3}'
        return int(result.output["total"])

    assert await run_task(adding) == 3
    with pytest.raises(ValueError, match=r"no 'messages'.*numbers, total"):
        await run_agent("Hi", agent=graph)
    with pytest.raises(ValueError, match="nothing for memory_key="):
        await run_agent({"numbers": []}, agent=graph, memory_key="ada")


async def test_a_store_and_a_context_pass_through(model_env: ModelServer, run_task: RunTask) -> None:
    class Who(TypedDict):
        name: str

    async def node(state: MessagesState, runtime: Any) -> dict[str, Any]:
        found = runtime.store.get(("people",), runtime.context["name"])
        return {"messages": [AIMessage(found.value["says"])]}

    from langgraph.runtime import Runtime

    node.__annotations__["runtime"] = Runtime[Who]
    store = InMemoryStore()
    store.put(("people",), "ada", {"says": "Hello."})
    graph = StateGraph(MessagesState, context_schema=Who).add_node("node", node).add_edge(START, "node").compile()

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi", agent=graph, store=store, context={"name": "ada"}))

    assert await run_task(asking) == "Hello."
    assert graph.store is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"agent": one_node(ask_then_wait), "model": "openai:gpt-4.1"}, "together with model"),
        ({"agent": one_node(ask_then_wait), "tools": [len]}, "together with tools"),
        ({"agent": one_node(ask_then_wait), "instructions": "x", "name": "n"}, "together with instructions, name"),
        ({"agent": one_node(ask_then_wait), "middleware": [object()]}, "together with middleware"),
        ({}, "neither model= nor agent="),
        ({"model": "openai:gpt-4.1", "output_type": Sum, "response_format": Sum}, "response_format="),
        (
            {"agent": one_node(ask_then_wait), "memory_key": "a", "config": {"configurable": {"thread_id": "b"}}},
            "both hold the conversation",
        ),
    ],
)
async def test_arguments_that_exclude_each_other_are_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        await run_agent("Hi", **options)


async def test_what_is_no_graph_is_named() -> None:
    with pytest.raises(TypeError, match="agent is a str"):
        await run_agent("Hi", agent="openai:gpt-4.1")
    with pytest.raises(TypeError, match="as_tool"):
        await run_agent(
            "Hi", model=ChatOpenAI(model="gpt-4.1", api_key="sk"), tools=[one_node(ask_then_wait).compile()]
        )
