"""A thread that was started on one worker goes on on another one, also where the first was killed."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from langchain.agents import create_agent
from langchain.tools import tool as langchain_tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.langchain import FlyteCheckpointSaver, run_agent

RunTask = Callable[..., Any]

PROGRAM = Path(__file__).parent / "apps" / "threads.py"
MODEL = "openai:gpt-4.1"
env = flyte.TaskEnvironment("test_threads")


def test_a_thread_of_langgraph_goes_on_in_another_process_after_sigkill(
    local_runs: LocalRuns, run_name: str, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    files = {"EFFECTS": str(effects)}
    first = local_runs.run(
        PROGRAM, "steps", name=f"{run_name}-1", inputs={"given": "begun"}, env={**files, "KILL": "second"}
    )
    assert first.status == -signal.SIGKILL, first.output
    second = local_runs.run(PROGRAM, "steps", name=f"{run_name}-2", inputs={"given": ""}, env=files)
    assert second.succeeded, second.output
    assert effects.read_text().split() == ["first", "second", "second", "third"]
    assert "['begun', 'first', 'second', 'third']" in second.output.replace('"', "'")


@pytest.mark.parametrize("kind", ["plain", "deep"])
def test_an_agents_thread_goes_on_in_another_process_after_sigkill_and_has_each_message_once(
    local_runs: LocalRuns, model_server: ModelServer, run_name: str, tmp_path: Path, kind: str
) -> None:
    model_server.script("Oslo", Reply(calls=(call("look", city="Oslo"),)), "Cold.")
    model_server.script("Rome", Reply(calls=(call("look", city="Rome"),)), "Cold as well.")
    thread = tmp_path / "thread"

    def run(message: str, number: int, kill: str = "") -> Any:
        inputs = {"message": message, "kind": kind}
        files = {"THREAD": str(thread), "KILL": kill}
        return local_runs.run(PROGRAM, "talk", name=f"{run_name}-{number}", inputs=inputs, env=files)

    said: list[list[str]] = []
    for number, (message, city, answer) in enumerate([("Oslo?", "Oslo", "Cold."), ("Rome?", "Rome", "Cold as well.")]):
        said += [["human", message], ["ai", ""], ["tool", f"{city} is cold"], ["ai", answer]]
        killed = run(message, number, kill=f"turn {number + 1}")
        assert killed.status == -signal.SIGKILL, killed.output
        finished = run(message, number)
        assert finished.succeeded, finished.output
        assert answer in finished.output
        assert json.loads(thread.read_text()) == said
        assert model_server.journal.per_turn(user=message) == {1: 1, 2: 1}
    sent = str(model_server.journal.requests()[-1].body)
    assert "Oslo is cold" in sent


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


@langchain_tool
def ask_twice() -> str:
    """Ask a person two things."""
    return f"{interrupt('One?')} and {interrupt('Two?')}"


@pytest.mark.parametrize("crashing", [False, True])
async def test_an_answer_to_an_interrupt_answers_only_that_one_also_on_a_retry(
    model_env: ModelServer, run_task: RunTask, crashing: bool
) -> None:
    model_env.script("Ask", Reply(calls=(call("ask_twice"),)), "done", repeat_last=True)
    config: Any = {"configurable": {"thread_id": "one"}}
    lost = crashing

    @env.task
    async def say(answer: str) -> str:
        nonlocal lost
        agent = create_agent(MODEL, [ask_twice], checkpointer=FlyteCheckpointSaver("ask"))
        given: Any = Command(resume=answer) if answer else "Ask"
        result = await run_agent(given, agent=agent, config=config, full_result=True)
        if lost and answer:
            lost = False
            raise Crash("lost")
        return ", ".join(result.pending) or str(result.native["messages"][2].text)

    assert await run_task(say, answer="", name="asking") == "One?"
    if crashing:
        with pytest.raises(Exception, match="lost"):
            await run_task(say, answer="first", name="answering")
    assert await run_task(say, answer="first", name="answering") == "Two?"
    assert await run_task(say, answer="second", name="answering more") == "first and second"


@pytest.mark.parametrize("saver", [FlyteCheckpointSaver, InMemorySaver])
async def test_two_runs_on_one_thread_in_one_task_are_gone_on_with(
    model_env: ModelServer, run_task: RunTask, saver: Callable[[], BaseCheckpointSaver[Any]]
) -> None:
    model_env.script(None, lambda one: Reply(f"{len(one.messages)} messages"), repeat_last=True)
    lost = True

    @env.task
    async def both() -> str:
        nonlocal lost
        agent = create_agent(MODEL, [], checkpointer=saver())
        config: Any = {"configurable": {"thread_id": "one"}}
        answers = [await run_agent(message, agent=agent, config=config) for message in ("One", "Two")]
        if lost:
            lost = False
            raise Crash("lost")
        return ", ".join(answers)

    with pytest.raises(Exception, match="lost"):
        await run_task(both)
    assert await run_task(both) == "1 messages, 3 messages"
    assert model_env.journal.count() == 2


async def test_sync_graphs_keep_threads_too(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, lambda one: Reply(f"{len(one.messages)} messages"), repeat_last=True)

    @env.task
    async def talk() -> str:
        inner: Any = create_agent(MODEL, [], checkpointer=FlyteCheckpointSaver("sync"))
        config: Any = {"configurable": {"thread_id": "inner"}}

        def node(state: MessagesState) -> Any:
            return {"messages": [inner.invoke({"messages": ["Hi"]}, config)["messages"][-1]]}

        builder = StateGraph(MessagesState)
        builder.add_node("node", node)
        builder.add_edge(START, "node")
        answers = [str(await run_agent("Go", agent=builder.compile())) for _ in range(2)]
        return ", ".join(answers)

    assert await asyncio.wait_for(run_task(talk), 60) == "1 messages, 3 messages"
