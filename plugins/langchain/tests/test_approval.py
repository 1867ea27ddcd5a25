"""Approvals: a tool's own, LangGraph's `interrupt()`, and `HumanInTheLoopMiddleware`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from flyteplugins.agents.conformance.local import METADATA
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer, answer_at_terminal, reviewer
from flyteplugins.agents.langchain import run_agent, tool

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
    model.script("^go$", Reply(calls=calls), "all done")


MIDDLEWARE = "HumanInTheLoopMiddleware"


def agent_of(form: str) -> Any:
    gated = tool(refund, requires_approval=True) if form == "requires_approval" else tool(refund)
    human: Any = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    return create_agent(
        ChatOpenAI(model="gpt-4.1"), [gated, tool(look_up)], middleware=[human] if form == MIDDLEWARE else []
    )


def told(model: ModelServer) -> list[str]:
    messages = model.journal.requests()[-1].body["messages"]
    return [str(one["content"]) for one in messages if one["role"] == "tool"]


@pytest.mark.parametrize("form", ["requires_approval", MIDDLEWARE])
async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: str
) -> None:
    proposes(model_env, "refund", "look_up", "refund")
    reviewer.says('"a"', "approve")
    reviewer.says('"c"', "deny: it is too late")

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=agent_of(form)))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len(reviewer.asked) == 2
    answers = told(model_env)
    assert sum("it is too late" in text for text in answers) == 1
    assert {"refunded a", "found b"} < set(answers)
    assert model_env.journal.count() == 2


async def test_arguments_that_are_edited_in_the_middleware_run_as_edited(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    proposes(model_env, "refund")
    reviewer.says('"a"', '{"order": "b", "cents": 7}')

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=agent_of(MIDDLEWARE)))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert DONE == ["refund b 7"]
    assert len(reviewer.asked) == 1


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


@pytest.mark.parametrize("form", ["requires_approval", MIDDLEWARE])
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
    reviewer.says('"a"', "approve")
    assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund a 100"]
    assert model_env.journal.count() == 2


def test_the_example_pays_what_the_person_made_of_it(model_server: ModelServer, home: Path, run_name: str) -> None:
    model_server.script("refund order A-17", Reply(calls=(call("refund", order="A-17"),)), "Done.")
    program = Path(__file__).parents[3] / "examples" / "langgraph_approval.py"
    flyte_ = Path(sys.executable).parent / "flyte"
    environment = {**os.environ, **model_server.env(), "HOME": str(home), "DO_NOT_TRACK": "1"}
    printed = answer_at_terminal(
        [str(flyte_), "run", "--local", f"--name={run_name}", str(program), "support", "--order", "A-17"],
        '{"order": "A-17", "cents": 500}',
        env=environment,
    )
    assert "refunded 5.00 EUR for A-17" in printed
    shutil.rmtree(METADATA / run_name, ignore_errors=True)
