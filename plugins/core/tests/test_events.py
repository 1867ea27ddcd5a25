"""One neutral event stream tells everybody what an agent run does."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from flyteplugins.agents import core
from flyteplugins.agents.core import (
    JSON,
    AgentRun,
    AgentTool,
    Event,
    HandOff,
    JsonCodec,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFacts,
    TurnFinished,
    Usage,
    current_run,
)

if TYPE_CHECKING:
    from .conftest import Attempts, Model, StartAgent


def all_events() -> list[type[Event]]:
    kinds = [getattr(core, name) for name in core.__all__]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event]


def test_each_kind_of_event_has_a_type_of_its_own_that_as_dict_tells() -> None:
    types: list[str] = []
    for kind in all_events():
        needed: dict[str, Any] = {
            field.name: "text" for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING
        }
        if kind is ToolCallStarted:
            needed["arguments"] = {"a": [1]}
        if kind is TurnFinished:
            needed["usage"] = Usage(requests=1)
        values = kind(**needed).as_dict()
        assert values["type"] == kind.type
        assert {"run", "agent", "replayed"} <= set(values)
        json.dumps(values)
        types.append(kind.type)
    assert len(set(types)) == len(types) == 11


def test_an_event_cannot_be_changed_by_a_listener() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TextDelta(text="a").text = "b"  # type: ignore[misc]


async def test_plain_and_coroutine_functions_listen(attempt: Attempts, start_agent: StartAgent) -> None:
    heard: list[Event] = []

    async def listen(event: Event) -> None:
        await asyncio.sleep(0)
        heard.append(event)

    async def body() -> None:
        for listener in (heard.append, listen):
            async with start_agent(on_event=listener) as run:
                await run.emit(TextDelta(run=run.id, agent="agent", text="Hel"))
                await run.finish("Hello")

    await attempt(body)
    assert [event.type for event in heard] == ["run started", "text delta", "run finished"] * 2
    assert {event.agent for event in heard} == {"agent"}


async def test_a_listener_that_raises_is_told_nothing_more_and_the_agent_goes_on(
    attempt: Attempts, start_agent: StartAgent, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def broken(event: Event) -> None:
        heard.append(event.type)
        if len(heard) == 2:
            raise ZeroDivisionError

    async def body() -> Any:
        async with start_agent(on_event=broken) as run:
            for _ in range(3):
                await run.emit(TextDelta(text="a"))
            answer = await model.say(run.recorder, "q")
            await run.finish(str(answer))
            return run.result(answer, str(answer), None).text

    with caplog.at_level(logging.ERROR, "flyteplugins.agents"):
        assert await attempt(body) == "answer to q"
    assert heard == ["run started", "text delta"]
    assert caplog.text.count("A listener of agent events raised") == 1


async def test_one_broken_listener_does_not_silence_the_report(attempt: Attempts, start_agent: StartAgent) -> None:
    def broken(event: Event) -> None:
        raise ZeroDivisionError

    async def body() -> None:
        async with start_agent(on_event=broken, observability=True) as run:
            await run.finish("bye")

    await attempt(body)
    assert "agent: finished" in attempt.report()


async def test_a_failing_run_ends_with_an_event_that_says_why(attempt: Attempts, start_agent: StartAgent) -> None:
    heard: list[Event] = []

    async def body() -> None:
        async with start_agent(on_event=heard.append):
            raise ConnectionError("the provider is away")

    with pytest.raises(ConnectionError):
        await attempt(body)
    assert isinstance(heard[-1], RunFinished)
    assert heard[-1].error == "ConnectionError: the provider is away"


async def test_events_of_a_replay_are_the_same_and_marked(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    async def add(one: int, two: int) -> int:
        """Add."""
        return one + two

    tool = AgentTool(add)
    heard: list[list[Event]] = [[], []]

    async def body() -> None:
        async with start_agent(on_event=heard[attempt.died].append):
            await tool.call('{"one": 1, "two": 2}', call_id="c1", agent="sub")
        if not attempt.died:
            raise killed

    await attempt(body)
    await attempt(body)
    fresh, replayed = heard
    assert isinstance(fresh[0], RunStarted)
    assert isinstance(replayed[0], RunStarted)
    assert (fresh[0].resumed, replayed[0].resumed) == (False, True)
    assert isinstance(fresh[1], ToolCallStarted)
    assert fresh[1].arguments == {"one": 1, "two": 2}
    finished, again = fresh[2], replayed[2]
    assert isinstance(finished, ToolCallFinished)
    assert (finished.call, finished.name, finished.result, finished.error) == ("c1", "add", "3", None)
    assert finished.seconds > 0
    assert (finished.replayed, again.replayed) == (False, True)
    assert dataclasses.replace(again, replayed=False) == finished
    assert [event.run for event in fresh] == [event.run for event in replayed] == [fresh[0].run] * len(fresh)


async def test_an_edited_run_that_goes_on_says_so(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    heard: list[Event] = []

    async def body() -> None:
        async with start_agent(configuration={"edited": attempt.died}, on_event=heard.append) as run:
            await model.ask(run.recorder, "q")
        if not attempt.died:
            raise killed

    await attempt(body)
    await attempt(body)
    assert [event.resumed for event in heard if isinstance(event, RunStarted)] == [False, True]


# what happens inside of what


async def test_what_happens_inside_of_a_tool_call_says_so(attempt: Attempts, start_agent: StartAgent) -> None:
    events: list[Event] = []

    async def ask(question: str) -> JSON:
        return f"answer to {question}"

    async def turn(run: AgentRun, agent: str) -> None:
        await run.turn({"of": agent}, lambda: ask(agent), codec=JsonCodec(), facts=_facts, model="m", agent=agent)

    async def look() -> str:
        """Look."""
        run = current_run()
        assert run is not None
        await run.emit(HandOff(run=run.id, source="a", target="b"))
        return "seen"

    async def body() -> None:
        async with start_agent("chief", on_event=events.append) as run:

            async def consult(helper: str, both: asyncio.Barrier) -> None:
                async def help_out() -> JSON:
                    await both.wait()
                    await turn(run, helper)
                    await AgentTool(look).call({}, call_id=f"look of {helper}", agent=helper)
                    await turn(run, helper)
                    return "helped"

                await run.inline_tool(
                    helper, {}, help_out, codec=JsonCodec(), shown=str, call_id=f"call of {helper}", is_agent=True
                )

            await turn(run, "chief")
            both = asyncio.Barrier(2)
            await asyncio.gather(consult("one", both), consult("two", both))
            await turn(run, "chief")
            await run.finish("")

    await attempt(body)
    for helper in ("one", "two"):
        inside = [event for event in events if event.parent == f"call of {helper}"]
        assert [(event.type, event.agent) for event in inside] == [
            ("turn finished", helper),
            ("tool call started", helper),
            ("tool call finished", helper),
            ("turn finished", helper),
        ]
        assert [event.type for event in events if event.parent == f"look of {helper}"] == ["hand-off"]
    assert [event.type for event in events if not event.parent] == [
        "run started",
        "turn finished",
        *["tool call started"] * 2,
        *["tool call finished"] * 2,
        "turn finished",
        "run finished",
    ]


async def test_a_run_within_a_tool_call_says_of_which_run_and_call(attempt: Attempts, start_agent: StartAgent) -> None:
    events: list[Event] = []
    inner_events: list[Event] = []

    async def delegate() -> str:
        """Ask another agent."""
        async with start_agent("inner", on_event=inner_events.append) as inner:
            await AgentTool(plain).call({}, call_id="inner call")
            await inner.finish("")
        return ""

    async def plain() -> str:
        """Do nothing."""
        return ""

    async def body() -> str:
        async with start_agent("outer", on_event=events.append) as outer:
            await AgentTool(delegate).call({}, call_id="delegated")
            async with start_agent("beside", on_event=inner_events.append):
                pass
            return outer.id

    outer = await attempt(body)
    started = [event for event in inner_events if isinstance(event, RunStarted)]
    assert [(event.name, event.parent_run, event.parent) for event in started] == [
        ("inner", outer, "delegated"),
        ("beside", outer, ""),
    ]
    others = [event for event in inner_events if not isinstance(event, RunStarted)]
    assert {event.parent for event in others} == {""}  # the call is one of the outer run's
    assert [(event.parent_run, event.parent) for event in events if isinstance(event, RunStarted)] == [("", "")]


async def test_calls_that_the_sdk_gives_no_id_have_different_ones(attempt: Attempts, start_agent: StartAgent) -> None:
    events: list[Event] = []

    async def plain() -> str:
        """Do nothing."""
        return ""

    async def body() -> None:
        async with start_agent(on_event=events.append):
            for _ in range(2):
                await AgentTool(plain).call({})

    await attempt(body)
    calls = [event.call for event in events if isinstance(event, (ToolCallStarted, ToolCallFinished))]
    assert calls == ["call 1", "call 1", "call 2", "call 2"]


async def test_a_body_that_ends_without_saying_so_has_ended(attempt: Attempts, start_agent: StartAgent) -> None:
    events: list[Event] = []

    async def body() -> None:
        async with start_agent("quiet", on_event=events.append):
            pass
        async with start_agent("said", on_event=events.append) as run:
            await run.finish("bye")

    await attempt(body)
    ends = [(event.agent, event.text) for event in events if isinstance(event, RunFinished)]
    assert ends == [("quiet", ""), ("said", "bye")]


def _facts(value: JSON) -> TurnFacts:
    return TurnFacts(text=str(value))
