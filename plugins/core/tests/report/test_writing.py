"""When a report is written, how large it gets, and what becomes of one that cannot be written."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import flyte.report
import flyte.storage
import pytest

from flyteplugins.agents.core import (
    AgentRun,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    Usage,
)
from flyteplugins.agents.core._report._schedule import Schedule

if TYPE_CHECKING:
    from .conftest import Clock, Reported, StartAgent

Read = Callable[[str], str]
Outline = Callable[[str], list[str]]

MEGABYTE = 1_000_000


async def work(run: AgentRun, number: int, *, size: int = 300) -> None:
    """A turn and a tool call, as large as they often are, with what takes most room in HTML."""
    text = f'"Look" at <item> & "{number}". ' * (size // 30)
    await run.emit(
        TurnFinished(
            agent=run.name, model="m", text=text, tool_calls=("look",), usage=Usage(1, 500 + number, 40), seconds=2
        )
    )
    call: dict[str, Any] = {"agent": run.name, "call": f"call {number}", "name": "look"}
    await run.emit(ToolCallStarted(**call, arguments={"item": number, "detail": text}))
    failed = "ValueError: no such item" if number % 10 == 7 else None
    await run.emit(ToolCallFinished(**call, result=text * 3, error=failed, seconds=1))
    for _ in range(5):
        await asyncio.sleep(0)  # what else happens in a real agent's loop


@pytest.mark.parametrize(("size", "seconds"), [(300, 4), (20_000, 90)])
async def test_a_thousand_turns_stay_below_a_megabyte_and_twenty_megabytes_of_writes(
    reported: Reported, start_agent: StartAgent, clock: Clock, words: Read, size: int, seconds: float
) -> None:
    shown_late: list[float] = []

    async def body() -> None:
        async with start_agent() as agent:
            began = clock.time
            for number in range(1000):
                clock.time += seconds
                await work(agent.run, number, size=size)
                if reported.written:
                    shown_late.append((clock.time - began) / seconds - _turns(reported.written[-1]))
            await agent.run.finish("done")

    said = words(await reported(body))
    sizes = [len(page) for page in reported.written]
    assert max(sizes) <= MEGABYTE
    assert sum(sizes) <= 20 * MEGABYTE
    assert "Turns 1,000 1,000 asked now" in said
    assert "Tool calls 1,000 100 failed" in said
    assert "Turns 451 to 500 50 tool calls" in said, "all turns are there, folded"
    assert "Turn 1000 · m" in said
    assert len(sizes) > 10, "it can be watched"
    assert max(shown_late) <= 100, "what is shown is never more than a tenth of the run behind"


def _turns(page: bytes) -> int:
    return int(page.partition(b"<dt>Turns<dd>")[2].partition(b"\n")[0].replace(b",", b""))


async def test_a_run_of_any_length_stays_bounded(
    reported: Reported, start_agent: StartAgent, clock: Clock, words: Read, outline: Outline
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            for number in range(4000):
                clock.time += 30
                await work(agent.run, number)
            await agent.run.finish("done")

    page = await reported(body)
    sizes = [len(page) for page in reported.written]
    assert max(sizes) <= MEGABYTE
    assert sum(sizes) <= 20 * MEGABYTE
    said = words(page)
    assert "Turns 4,000" in said
    assert "steps left out here" in said
    titles = outline(page)
    assert titles[0] == "Turn 1 · m"
    assert titles[-2] == "Turn 4000 · m"


async def test_many_agent_runs_share_the_megabyte(reported: Reported, start_agent: StartAgent, words: Read) -> None:
    async def body() -> None:
        for name in range(8):
            async with start_agent(f"agent {name}") as agent:
                for number in range(120):
                    await work(agent.run, number)
                await agent.run.finish("done")

    page = await reported(body)
    assert max(len(page) for page in reported.written) <= MEGABYTE
    tabs = [words(f"<p {part}") for part in page.split('<section class="fla"')[1:]]
    assert len(tabs) == 8
    for number, said in enumerate(tabs):
        assert f"agent {number}: finished" in said
        assert "Turns 120" in said
        assert "Turn 1 · m" in said
        assert "Turn 120 · m" in said


async def test_a_short_run_writes_little(reported: Reported, start_agent: StartAgent, clock: Clock) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await work(agent.run, 0)
            for _ in range(100):
                await agent.run.emit(TextDelta(text="x"))
            await agent.run.finish("done")

    await reported(body)
    assert len(reported.written) == 2  # at its end, and Flyte at the task's end


async def test_while_nothing_happens_what_happened_is_written_when_that_is_due(
    reported: Reported, start_agent: StartAgent, clock: Clock, outline: Outline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyteplugins.agents.core._report._schedule.FIRST_SECONDS", 0.01)
    written = asyncio.Event()
    flush = flyte.report.flush.aio

    async def noticed() -> None:
        await flush()
        written.set()

    async def body() -> None:
        monkeypatch.setattr(flyte.report.flush, "aio", noticed)
        async with start_agent() as agent:
            await agent.run.emit(ToolCallStarted(agent="agent", call="1", name="an hour of work", arguments={}))
            clock.time += 1
            await written.wait()
            assert outline(reported.page()) == ["Tool · an hour of work [running]"]

    await reported(body)


async def test_no_timer_and_no_task_outlives_the_run(reported: Reported, start_agent: StartAgent) -> None:
    async def body() -> None:
        before = asyncio.all_tasks()
        async with start_agent() as agent:
            await agent.turn("hello")
        assert asyncio.all_tasks() == before
        loop: Any = asyncio.get_running_loop()
        assert [timer for timer in loop._scheduled if not timer.cancelled() and "_on_time" in repr(timer)] == []

    await reported(body)


async def test_a_failed_run_writes_its_report(reported: Reported, start_agent: StartAgent, words: Read) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await agent.turn("hello")
            raise ConnectionError("the provider is away")

    said = words(await reported.failing(body))
    assert "agent: failed" in said
    assert "Error ConnectionError: the provider is away" in said
    assert len(reported.written) == 1


@pytest.mark.parametrize("part", ["storage", "page"])
async def test_a_report_that_cannot_be_written_is_logged_and_loses_no_work(
    reported: Reported,
    start_agent: StartAgent,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    clock: Clock,
    part: str,
) -> None:
    def fail(*args: object, **options: object) -> Any:
        raise OSError("no space left")

    answers: list[str] = []

    async def body() -> None:
        if part == "storage":
            monkeypatch.setattr(flyte.report.flush, "aio", fail)
        else:
            monkeypatch.setattr("flyteplugins.agents.core._report._run_report.render", fail)
        async with start_agent() as agent:
            for number in range(3):
                clock.time += 10
                await agent.turn(f"turn {number}")
            answers.append("an answer")
            await agent.run.finish("an answer")
        monkeypatch.undo()

    with caplog.at_level(logging.ERROR, "flyteplugins.agents"):
        try:
            await reported(body)
        except ValueError:  # no report is there to read
            assert not list(reported.folder("").rglob("report.html"))
    assert answers == ["an answer"]
    assert "no space left" in caplog.text
    assert "The report of agent run 'agent' could not be" in caplog.text


async def test_runs_in_several_threads_write_one_at_a_time(
    reported: Reported, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = most = 0
    flush = flyte.report.flush.aio

    async def counted() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.02)
        await flush()
        at_once -= 1

    monkeypatch.setattr(flyte.report.flush, "aio", counted)

    async def one(name: str) -> None:
        async with start_agent(name) as agent:
            await agent.turn(f"answer of {name}")
            await agent.run.finish("done")

    async def body() -> None:
        in_threads = (asyncio.to_thread(asyncio.run, one(name)) for name in "abc")
        await asyncio.gather(one("d"), one("e"), *in_threads)

    page = await reported(body)
    assert most == 1
    for name in "abcde":
        assert f"answer of {name}" in page
    assert threading.active_count() < 50


def test_writes_become_rare_but_never_stop(clock: Clock) -> None:
    schedule = Schedule(began=clock.time)
    times: list[float] = []
    while len(times) < 1000:
        clock.time = schedule.due
        times.append(clock.time)
        schedule.wrote(20_000)
    steps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert steps[0] == 5
    assert steps == sorted(steps)


def test_a_report_of_any_size_has_a_next_time(clock: Clock) -> None:
    schedule = Schedule(began=clock.time)
    clock.time += 10
    schedule.wrote(10**13)
    assert schedule.due > clock.time
