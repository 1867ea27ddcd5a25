"""What a report tells of an agent run."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from flyteplugins.agents.core import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    Usage,
    digest,
)

if TYPE_CHECKING:
    from .conftest import Reported, StartAgent

Read = Callable[[str], str]
Outline = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def nothing_goes_wrong(caplog: pytest.LogCaptureFixture) -> Any:
    """A report that cannot be rendered is only logged: here it is a failure."""
    yield
    assert [
        record.message for record in caplog.records if record.levelno >= logging.ERROR and "report" in record.message
    ] == []


def turn(text: str, *, agent: str = "agent", **fields: Any) -> TurnFinished:
    return TurnFinished(agent=agent, model="m", text=text, usage=Usage(1, 100, 10), **fields)


async def test_a_report_tells_everything_in_order_and_nested(
    reported: Reported, trip: Callable[..., Awaitable[None]], outline: Outline, words: Read
) -> None:
    page = await reported(trip)
    assert outline(page) == [
        "Memory",
        "Turn 1 · gpt-4.1",
        "  Tool · get_weather",
        "  Tool · find_flights",
        "  Tool · find_hotels [failed]",
        "Hand-off · planner → hotel finder",
        "Turn 2 · gpt-4.1-mini",
        "Hand-off · hotel finder → planner",
        "Turn 3 · gpt-4.1",
        "  Approval · book_trip",
        "  Tool · book_trip",
        "Turn 4 · gpt-4.1",
    ]
    said = words(page)
    assert "Input Plan a trip from Oslo to Lisbon" in said
    assert "Answer Your trip is booked: flight TP 1230" in said
    assert "The conversation of “ada” goes on" in said
    assert '{"origin": "Oslo", "destination": "Lisbon"}' in said
    assert '"flight":"TP 1235"' in said
    assert "error Error: the tool find_hotels failed. ConnectionError: hotels.example answered 503 for Lisbon" in said
    assert f"approved · arguments SHA-256 {'3f' * 32}" in said
    assert "Booked TP 1230 and Hotel Tejo: reference AB12CD" in said
    assert "calls get_weather, find_flights, find_hotels · 1,240 tokens in, 86 out" in said
    assert "Spent in this attempt 9,011 tokens 8,630 in, 381 out" in said
    assert "Tool calls 4 1 failed" in said


async def test_the_hash_of_arguments_and_the_size_of_a_result_are_shown(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await agent.run.emit(ToolCallStarted(agent="agent", call="1", name="t", arguments={"b": 1, "a": "é"}))
            await agent.run.emit(ToolCallFinished(agent="agent", call="1", name="t", result="é" * 1000, seconds=61))

    said = words(await reported(body))
    assert f"arguments SHA-256 {digest({'a': 'é', 'b': 1})[:16]}" in said
    assert "took 1 min 1 s · result 2.0 kB" in said


async def test_what_was_replayed_is_marked_and_is_no_spend(
    reported: Reported, start_agent: StartAgent, outline: Outline, words: Read
) -> None:
    def look(city: str) -> str:
        """Look."""
        return f"{city} is large"

    async def body() -> None:
        async with start_agent() as agent:
            await agent.turn("first", tokens=(1000, 100), calls=("look",))
            await agent.tool(look, city="Oslo")
            if len(reported.written) > 0:
                await agent.turn("second", tokens=(30, 4))
            else:
                raise ConnectionError("the provider is away")

    page = await reported(body, retries=True)
    assert outline(page) == ["Turn 1 · gpt-4.1 [replayed]", "  Tool · look [replayed]", "Turn 2 · gpt-4.1 [fresh]"]
    said = words(page)
    assert "Spent in this attempt 34 tokens 30 in, 4 out" in said
    assert "Replayed, not spent again 1,100 tokens 1,000 in, 100 out, paid by an earlier attempt" in said
    assert "Turns 2 1 asked now, 1 replayed" in said
    assert "Tool calls 1 1 replayed" in said


async def test_where_nothing_was_replayed_nothing_is_said_of_it(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await agent.turn("first")
            await agent.run.finish("done")

    said = words(await reported(body))
    assert "eplayed" not in said
    assert "fresh" not in said


async def test_a_price_that_is_unknown_is_not_shown_as_nothing(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    async def body() -> None:
        async with start_agent("unpriced") as agent:
            await agent.run.emit(turn("a"))
        async with start_agent("priced") as agent:
            await agent.run.emit(turn("a", cost=0.0125))
            await agent.run.emit(turn("b", replayed=True, cost=0.5))
        async with start_agent("partly priced") as agent:
            await agent.run.emit(turn("a", cost=0.0125))
            await agent.run.emit(turn("b"))

    unpriced, priced, partly = (await reported(body)).split('<section class="fla"')[1:]
    assert "$" not in words(f"<p {unpriced}")
    assert "100 in, 10 out $0.0125 Replayed" in words(f"<p {priced}")
    assert "paid by an earlier attempt ($0.5000)" in words(f"<p {priced}")
    assert "at least $0.0125; the price of 1 turn is unknown" in words(f"<p {partly}")


async def test_a_sub_agents_turns_are_inside_of_the_call_that_ran_it(
    reported: Reported, start_agent: StartAgent, outline: Outline
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            say = agent.run.emit
            await say(turn("ask the others"))
            for call in "12":
                await say(ToolCallStarted(agent="agent", call=call, name=f"helper {call}", arguments={}))
            for call in "12":  # at the same time, under one name
                await say(turn("hm", agent="helper", parent=call))
            for call in "21":
                inner: dict[str, Any] = {"agent": "helper", "parent": call}
                await say(ToolCallStarted(**inner, call=f"inner {call}", name=f"look {call}", arguments={}))
                await say(ApprovalAsked(**inner, action=f"look {call}", digest="d"))
            for call in "12":
                await say(ToolCallFinished(agent="helper", call=f"inner {call}", name=f"look {call}", result="x"))
                await say(ToolCallFinished(agent="agent", call=call, name=f"helper {call}", result="x"))
            await say(turn("done"))
            await agent.run.finish("done")

    assert outline(await reported(body)) == [
        "Turn 1 · m",
        "  Tool · helper 1",
        "    Turn 2 · m",
        "      Tool · look 1",
        "      Approval · look 1 [no outcome]",
        "  Tool · helper 2",
        "    Turn 3 · m",
        "      Tool · look 2",
        "      Approval · look 2 [no outcome]",
        "Turn 4 · m",
    ]


async def test_agents_that_work_at_once_keep_their_own_tools(
    reported: Reported, start_agent: StartAgent, outline: Outline
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            for name in ("a", "b"):
                await agent.run.emit(turn("hm", agent=name))
            for name in ("a", "b"):
                await agent.run.emit(ToolCallStarted(agent=name, call="", name=f"look {name}", arguments={}))
            for name in ("b", "a"):
                await agent.run.emit(ToolCallFinished(agent=name, call="", name=f"look {name}", result=name))

    assert outline(await reported(body)) == ["Turn 1 · m", "  Tool · look a", "Turn 2 · m", "  Tool · look b"]


async def test_a_call_without_an_outcome_says_so_when_the_run_ends(
    reported: Reported, start_agent: StartAgent, outline: Outline, words: Read
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await agent.run.emit(ToolCallStarted(agent="agent", call="1", name="slow", arguments={}))
            await agent.run.emit(ApprovalAsked(agent="agent", action="slow", digest="d"))
            raise ConnectionError("the provider is away")

    page = await reported.failing(body)
    assert outline(page) == ["Tool · slow [no outcome]", "Approval · slow [no outcome]"]
    assert "agent: failed" in words(page)
    assert "Error ConnectionError: the provider is away" in words(page)


async def test_a_refusal_is_told_with_its_words(reported: Reported, start_agent: StartAgent, words: Read) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            asked: dict[str, Any] = {"agent": "agent", "action": "pay", "digest": "d"}
            await agent.run.emit(ApprovalAsked(**asked))
            await agent.run.emit(ApprovalAnswered(**asked, decision="refused: too expensive"))

    assert "refused: too expensive · arguments SHA-256 d" in words(await reported(body))


@dataclass(frozen=True, kw_only=True)
class LaterEvent(Event):
    """An event of a later version."""

    type: ClassVar[str] = "budget"
    used: int
    why: str


async def test_an_event_that_the_report_has_no_words_for_is_shown_as_it_is(
    reported: Reported, start_agent: StartAgent, outline: Outline, words: Read
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await agent.run.emit(LaterEvent(used=7, why="<b>"))

    page = await reported(body)
    assert outline(page) == ["Budget"]
    assert '{"used": 7, "why": "<b>"}' in words(page)


async def test_a_long_text_is_cut_and_says_how_much_is_missing(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await agent.turn("x" * 50_000 + "the end")

    said = words(await reported(body))
    assert f"{'x' * 8000} … 42,007 more characters" in said
    assert "the end" not in said


async def test_a_run_within_a_run_is_a_step_of_it_and_has_a_tab_of_its_own(
    reported: Reported, start_agent: StartAgent, outline: Outline
) -> None:
    async def ask_inner() -> str:
        """Ask another agent."""
        async with start_agent("inner") as inner:
            await inner.turn("inner turn")
        return "!"

    async def body() -> None:
        async with start_agent("outer") as agent:
            await agent.turn("ask")
            await agent.tool(ask_inner)

    outer, inner = (await reported(body)).split('<section class="fla"')[1:]
    assert outline(f"<p {outer}") == ["Turn 1 · gpt-4.1", "  Tool · ask_inner", "    Agent run · inner"]
    assert outline(f"<p {inner}") == ["Turn 1 · gpt-4.1"]


async def test_a_run_of_no_tool_call_within_a_run_is_a_step_of_it(
    reported: Reported, start_agent: StartAgent, outline: Outline
) -> None:
    async def body() -> None:
        async with start_agent("outer") as agent:
            await agent.turn("ask")
            with contextlib.suppress(ConnectionError):
                async with start_agent("inner"):
                    raise ConnectionError("the provider is away")

    outer, _ = (await reported(body)).split('<section class="fla"')[1:]
    assert outline(f"<p {outer}") == ["Turn 1 · gpt-4.1", "Agent run · inner [failed]"]
