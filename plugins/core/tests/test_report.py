"""The report tab tells what an agent run did and what it cost."""

from __future__ import annotations

import asyncio
import functools
import html.parser
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import flyte
import flyte.report
import pytest

from flyteplugins.agents import core
from flyteplugins.agents.core import (
    AgentRun,
    AgentTool,
    Event,
    HandOff,
    JsonCodec,
    MemoryNotice,
    TextDelta,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFinished,
    Usage,
)

if TYPE_CHECKING:
    from .conftest import Attempts, StartAgent

SCRIPT = "<script>alert('x')</script>"


class Page(html.parser.HTMLParser):
    """What a browser makes of a report: its text, and its elements."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text = ""
        self.elements: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.text += " "

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


Tell = Callable[[AgentRun], Awaitable[None]]


@pytest.fixture
def report_of(attempt: Attempts, start_agent: StartAgent) -> Callable[..., Awaitable[str]]:
    """The report of an agent run of which a function tells the events."""

    async def report(tell: Tell, **options: Any) -> str:
        async def body() -> None:
            async with start_agent(**({"observability": True} | options)) as run:
                await tell(run)

        await attempt(body)
        return attempt.report()

    return report


ReportOf = Callable[..., Awaitable[str]]


async def a_conversation(run: AgentRun) -> None:
    await run.emit(TextDelta(agent="agent", text="not a row"))
    usage = Usage(requests=1, input_tokens=100, output_tokens=20)
    await run.emit(
        TurnFinished(
            agent="agent", model="gpt-x", text="Let me look.", tool_calls=("search",), usage=usage, seconds=1.5
        )
    )
    await run.emit(ToolCallStarted(agent="agent", call="1", name="search", arguments={"query": "owls"}))
    await run.emit(ToolCallFinished(agent="agent", call="1", name="search", result="three owls", seconds=0.25))
    await run.emit(HandOff(agent="agent", source="agent", target="expert"))
    await run.emit(MemoryNotice(agent="agent", message="It goes on."))
    await run.emit(TurnFinished(agent="expert", model="gpt-x", text="Three.", usage=usage, seconds=2, replayed=True))
    await run.finish("Three owls.")


async def test_each_thing_that_happened_is_a_row(report_of: ReportOf) -> None:
    words = Page(await report_of(a_conversation, input="How many owls?")).words
    told = (
        "agent: finished",
        "How many owls?",
        "gpt-x",
        "Let me look.",
        "search",
        '{"query": "owls"}',
        "three owls",
        "expert",
        "It goes on.",
        "replayed",
        "Three.",
        "Three owls.",
    )
    places = [words.find(part) for part in told]
    assert -1 not in places, told[places.index(-1)]
    order = [words.rindex(part) for part in ("Let me look.", "three owls", "It goes on.", "Three.")]
    assert order == sorted(order)
    assert "not a row" not in words


async def test_replayed_turns_are_no_spend_of_this_attempt(report_of: ReportOf) -> None:
    async def tell(run: AgentRun) -> None:
        for tokens, replayed in ((11, False), (22, False), (4400, True)):
            usage = Usage(requests=1, input_tokens=tokens, output_tokens=tokens)
            await run.emit(TurnFinished(model="gpt-x", text="Hi.", usage=usage, replayed=replayed))
        await run.finish("Hi.")

    words = Page(await report_of(tell)).words
    assert "33 in, 33 out" in words
    assert "4433" not in words
    assert "4,433" not in words


async def test_everything_that_was_said_is_escaped(report_of: ReportOf) -> None:
    async def tell(run: AgentRun) -> None:
        await run.emit(TurnFinished(agent=SCRIPT, model=SCRIPT, text=SCRIPT, tool_calls=(SCRIPT,), error=SCRIPT))
        await run.emit(ToolCallStarted(call="1", name=SCRIPT, arguments={SCRIPT: SCRIPT}))
        await run.emit(ToolCallFinished(call="1", name=SCRIPT, result=SCRIPT, error=SCRIPT))
        await run.emit(HandOff(source=SCRIPT, target=SCRIPT))
        await run.emit(MemoryNotice(message=SCRIPT))
        await run.finish(SCRIPT)

    empty = Page(await report_of(_nothing, name="agent")).elements.count("script")
    source = await report_of(tell, name=SCRIPT, input=SCRIPT)
    assert Page(source).elements.count("script") == empty
    assert "&lt;script&gt;alert" in source


async def _nothing(run: AgentRun) -> None:
    await run.finish("")


async def test_a_tools_result_is_escaped(report_of: ReportOf) -> None:
    async def fetch() -> str:
        """Fetch a page."""
        return SCRIPT

    async def tell(run: AgentRun) -> None:
        outcome = await AgentTool(fetch).call({}, call_id="1")
        assert outcome.text == SCRIPT  # to the model it is what it is

    assert SCRIPT not in await report_of(tell)


async def test_a_failing_run_leaves_its_report(attempt: Attempts, start_agent: StartAgent) -> None:
    async def body() -> None:
        async with start_agent(observability=True) as run:
            await run.emit(TurnFinished(model="gpt-x", text="so far"))
            raise ConnectionError("the provider is away")

    with pytest.raises(ConnectionError):
        await attempt(body)
    words = Page(attempt.report()).words
    assert "agent: failed" in words
    assert "so far" in words
    assert "ConnectionError: the provider is away" in words


async def test_a_cancelled_run_leaves_its_report(attempt: Attempts, start_agent: StartAgent) -> None:
    async def agent() -> None:
        async with asyncio.timeout(None) as limit, start_agent(observability=True) as run:
            await run.emit(TurnFinished(model="gpt-x", text="so far"))
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()

    async def body() -> None:
        with pytest.raises(TimeoutError):
            await agent()

    await attempt(body)
    words = Page(attempt.report()).words
    assert "agent: failed" in words
    assert "so far" in words


async def test_concurrent_runs_have_a_tab_each_and_never_mix(attempt: Attempts, start_agent: StartAgent) -> None:
    tabs: dict[str, str] = {}

    async def one(who: str, both: asyncio.Barrier) -> None:
        async with start_agent("twin", input=f"input of {who}", observability=True) as run:
            for number in range(3):
                await both.wait()
                await run.emit(TurnFinished(model="gpt-x", text=f"turn {number} of {who}"))
            await run.finish(f"answer of {who}")

    async def body() -> None:
        both = asyncio.Barrier(2)
        await asyncio.gather(one("a", both), one("b", both))
        tabs.update({name: tab.get_html() for name, tab in flyte.report.current_report().tabs.items()})

    await attempt(body)
    assert set(tabs) == {"main", "twin", "twin (2)"}
    whose = {name: {who for who in "ab" if f" of {who}" in tabs[name]} for name in ("twin", "twin (2)")}
    assert sorted(whose.values(), key=str) == [{"a"}, {"b"}]
    for name, (who,) in whose.items():
        for said in ("input", "turn 0", "turn 2", "answer"):
            assert f"{said} of {who}" in tabs[name]


async def test_a_run_may_be_named_like_the_first_tab(attempt: Attempts, start_agent: StartAgent) -> None:
    async def body() -> str:
        flyte.report.get_tab("main").log("the user's own")
        async with start_agent("main", observability=True) as run:
            await run.finish("bye")
        return flyte.report.get_tab("main").get_html()

    assert await attempt(body) == "the user's own"


async def test_with_observability_off_there_is_no_report(
    attempt: Attempts, start_agent: StartAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body() -> None:
        async with start_agent(observability=False) as run:
            await run.finish("bye")

    await attempt(body)
    assert list(attempt.folder.parent.rglob("report.html")) == []
    assert "[flyte-agents]" not in capsys.readouterr().err


async def test_structure_only_keeps_contents_out(report_of: ReportOf) -> None:
    secret = "the secret word"

    async def tell(run: AgentRun) -> None:
        await run.emit(TurnFinished(agent="agent", model="gpt-x", text=secret, tool_calls=("search",), error=secret))
        await run.emit(ToolCallStarted(call="1", name="search", arguments={"query": secret}))
        await run.emit(ToolCallFinished(call="1", name="search", result=secret, error=secret))
        await run.finish(secret)

    source = await report_of(tell, observability="structure", input=secret)
    assert "secret" not in source
    words = Page(source).words
    assert f"answer {len(secret)} bytes, SHA-256 " in words
    assert "Tool · search" in words


async def test_structure_only_keeps_the_memory_key_out(report_of: ReportOf) -> None:
    async def tell(run: AgentRun) -> None:
        await run.emit(MemoryNotice(message="The conversation 'alice@example.com' goes on after 2 earlier messages."))

    assert "alice@example.com" not in await report_of(tell, observability="structure")


async def test_a_long_run_stays_small(report_of: ReportOf) -> None:
    async def tell(run: AgentRun) -> None:
        for number in range(1000):
            await run.emit(TurnFinished(model="gpt-x", text=f"<{number}>" + "x" * 10_000))
        await run.finish("bye")

    source = await report_of(tell)
    words = Page(source).words
    assert len(source) < 1_500_000
    assert "<0>" in words
    assert "<999>" in words
    assert "bye" in words


@pytest.mark.parametrize("kind", ["tool", "inline tool of the SDK"])
async def test_a_call_that_a_crash_cut_off_and_that_is_run_again_is_marked(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException], kind: str
) -> None:
    calls: list[int] = []
    again: list[ToolCallRepeated] = []

    async def pay(amount: int) -> str:
        """Pay."""
        calls.append(amount)
        if amount == 2 and not attempt.died:
            raise killed
        return "paid"

    def listen(event: Event) -> None:
        if isinstance(event, ToolCallRepeated):
            again.append(event)
            assert calls == [1, 2], "it is said before the effect happens"

    async def body() -> None:
        async with start_agent(observability=True, on_event=listen) as run:
            for amount in (1, 2, 3):
                if kind == "tool":
                    await AgentTool(pay).call({"amount": amount}, call_id=f"call {amount}")
                else:
                    await run.inline_tool(
                        "pay",
                        {"amount": amount},
                        functools.partial(pay, amount),
                        codec=JsonCodec(),
                        shown=str,
                        call_id=f"call {amount}",
                    )

    await attempt(body)
    assert "run again" not in Page(attempt.report()).words
    await attempt(body)
    words = Page(attempt.report()).words
    first, second, third = words.partition("Timeline")[2].split("Tool · pay")[1:]
    assert "replayed" in first
    assert "run again" in second
    assert "an earlier attempt had started it and left no outcome" in second
    assert "run again" not in first + third
    assert "Tool calls 3 1 replayed, 1 run again" in words
    assert [(event.call, event.name, event.parent) for event in again] == [("call 2", "pay", "")]
    await attempt(body)
    assert "run again" not in Page(attempt.report()).words


async def test_odd_characters_do_not_stop_the_report(report_of: ReportOf) -> None:
    async def tell(run: AgentRun) -> None:
        await run.finish("lone \ud83d, nul \x00, dollar $BODY_HTML ${NAV_HTML}, braces {{ name }}")

    words = Page(await report_of(tell)).words
    assert "dollar $BODY_HTML ${NAV_HTML}, braces {{ name }}" in words


async def test_a_report_that_cannot_be_written_costs_nothing_but_the_report(
    attempt: Attempts, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def aio(self) -> None:
            raise OSError("no space left on device")

    monkeypatch.setattr(flyte.report, "flush", Broken())

    async def body() -> str:
        async with start_agent(observability=True) as run:
            await run.finish("bye")
        return "the answer"

    assert await attempt(body) == "the answer"
    assert "could not be written" in caplog.text


async def test_arguments_that_are_no_json_do_not_stop_the_report(report_of: ReportOf) -> None:
    async def later(data: bytes) -> str:
        """Take bytes."""
        return "done"

    async def tell(run: AgentRun) -> None:
        await AgentTool(later).call({"data": b"\x00"}, call_id="1")
        await run.finish("bye")

    assert "agent: finished" in Page(await report_of(tell)).words


# rows of a program's own


async def test_a_program_adds_rows_of_its_own_under_the_names_that_it_knows(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def body() -> None:
        timeline = core.ReportTimeline()
        timeline.heading(SCRIPT)
        timeline.row(label="search", meta="12 ms", error="no owls")
        async with start_agent(observability=True) as run:
            await run.finish("bye")
        timeline.row(label="after the agent")
        await core.flush_report()
        page = Page(attempt.report())  # while the task runs
        assert "search 12 ms" in page.words
        assert "after the agent" in page.words

    await attempt(body)
    source = attempt.report()
    assert ">Agent</li>" in source
    assert SCRIPT not in source
    assert "agent: finished" in Page(source).words


async def test_outside_of_a_task_rows_and_flushing_do_nothing() -> None:
    core.ReportTimeline("mine").heading("nobody sees it")
    await core.flush_report()


async def test_a_body_that_ends_without_saying_so_is_not_shown_as_running(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def body() -> None:
        async with start_agent(observability=True) as run:
            await run.emit(ToolCallStarted(call="1", name="never ends", arguments={}))

    await attempt(body)
    words = Page(attempt.report()).words
    assert "running" not in words
    assert "agent: finished" in words
    assert "never ends no outcome" in words
