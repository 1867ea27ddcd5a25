"""What the tests of the report share: tasks with a report, agents that say what a test wants, and a browser."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flyte
import flyte.storage
import pytest
import pytest_asyncio

from flyteplugins.agents.core import (
    JSON,
    AgentRun,
    ApprovalAnswered,
    ApprovalAsked,
    ErrorClass,
    HandOff,
    JsonCodec,
    MemoryNotice,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFacts,
    Usage,
    agent_run,
    as_agent_tool,
)
from flyteplugins.agents.core._report import _schedule

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

env = flyte.TaskEnvironment("report-tests")

Body = Callable[[], Awaitable[Any]]

_BODIES: dict[str, Body] = {}


@env.task(report=True)
async def reported(ticket: str) -> str:
    await _BODIES[ticket]()
    return ""


@env.task(report=True, retries=2)
async def retried(ticket: str) -> str:
    await _BODIES[ticket]()
    return ""


class Agent:
    """An agent run whose turns and tools are real leaves, and say what a test wants.

    Attributes:
        run: The agent run.
    """

    def __init__(self, run: AgentRun) -> None:
        self.run = run
        self._calls = 0

    async def turn(
        self,
        text: str = "",
        *,
        tokens: tuple[int, int] = (100, 10),
        calls: tuple[str, ...] = (),
        agent: str = "",
        model: str = "gpt-4.1",
        question: object = None,
        error: Exception | None = None,
    ) -> None:
        """One turn, as an adapter makes it."""

        async def ask() -> Any:
            if error is not None:
                raise error
            return {"text": text, "tokens": list(tokens), "calls": list(calls)}

        def facts(answer: Any) -> TurnFacts:
            return TurnFacts(answer["text"], tuple(answer["calls"]), Usage(1, *answer["tokens"]))

        fields = {"question": question or text}
        await self.run.turn(fields, ask, codec=JsonCodec(), facts=facts, model=model, agent=agent)

    async def tool(self, function: Callable[..., Any], *, agent: str = "", **arguments: Any) -> str:
        """One tool call."""
        self._calls += 1
        call = as_agent_tool(function).call(arguments, call_id=f"call_{self._calls}", agent=agent)
        return (await call).text


StartAgent = Callable[..., AbstractAsyncContextManager[Agent]]


@asynccontextmanager
async def start_agent(name: str = "agent", input: str = "Hello", **options: Any) -> AsyncIterator[Agent]:
    """An agent run with a report; what a test does not care about has a default."""
    options.setdefault("classify", lambda error: ErrorClass.RETRY_ATTEMPT)
    options.setdefault("memory_key", None)
    options.setdefault("configuration", {"model": "m"})
    async with agent_run(framework="test", name=name, input=input, **options) as run:
        yield Agent(run)


@pytest.fixture(name="start_agent")
def _start_agent() -> StartAgent:
    return start_agent


@dataclass
class Reported:
    """Runs a coroutine function as a task with a report.

    Attributes:
        run_task: Runs a task.
        folder: Where runs are, by name.
        written: Every report that was written, in order.
    """

    run_task: Callable[..., Awaitable[Any]]
    folder: Callable[[str], Path]
    written: list[bytes] = field(default_factory=list)

    async def __call__(self, body: Body, *, name: str = "", retries: bool = False) -> str:
        """The report, after the body returned; what it raises is raised."""
        ticket = f"{id(self)}-{name}"
        _BODIES[ticket] = body
        try:
            await self.run_task(retried if retries else reported, ticket=ticket, name=name)
        finally:
            del _BODIES[ticket]
        return self.page(name)

    async def failing(self, body: Body, *, name: str = "", retries: bool = False) -> str:
        """The report of a body that raises."""
        with pytest.raises(Exception, match=r"."):
            await self(body, name=name, retries=retries)
        return self.page(name)

    def file(self, name: str = "") -> Path:
        """Where the report is."""
        [file] = self.folder(name).rglob("report.html")
        return file

    def page(self, name: str = "") -> str:
        """The report."""
        return self.file(name).read_text(encoding="utf-8")


@pytest.fixture(name="reported")
def _reported(
    run_task: Callable[..., Awaitable[Any]], run_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Reported:
    """Runs a coroutine function as a task with a report, and gives the report."""
    runner = Reported(run_task, run_folder)
    put = flyte.storage.put_stream

    async def counted(data: bytes, *, to_path: str, **options: Any) -> str:
        if to_path.endswith("report.html"):
            runner.written.append(data)
        return await put(data, to_path=to_path, **options)

    monkeypatch.setattr(flyte.storage, "put_stream", counted)
    return runner


@dataclass
class Clock:
    """The clock that the report reads, which a test moves.

    Attributes:
        time: What it shows, in seconds.
    """

    time: float = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Stops the clock that the report reads."""
    stopped = Clock()
    for module in ("_schedule", "_task_report", "_run_report"):
        monkeypatch.setattr(f"flyteplugins.agents.core._report.{module}.now", stopped)
    assert _schedule.now is stopped
    return stopped


class _Outline(HTMLParser):
    """Reads the steps of a page: their titles, marks and depth."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._depth = 0
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._depth += tag == "ol"
        self._inside = tag if tag in ("b", "i") and self._depth else ""
        if tag == "li" and self._depth:
            self.lines.append("  " * (self._depth - 1))

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "ol"
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.lines[-1] += data if self._inside == "b" else f" [{data}]"


class _Words(HTMLParser):
    """Reads what a page says, without its tags, style and script."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._silent = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._silent = tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._silent = False

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.words += data.split()


@pytest.fixture
def outline() -> Callable[[str], list[str]]:
    """The steps of a page, one a line, indented as they are nested, with their marks in brackets."""

    def read(page: str) -> list[str]:
        parser = _Outline()
        parser.feed(page)
        return parser.lines

    return read


@pytest.fixture
def words() -> Callable[[str], str]:
    """What a page says, without its tags."""

    def read(page: str) -> str:
        parser = _Words()
        parser.feed(page)
        return " ".join(parser.words)

    return read


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium, which takes as long to start as most tests that look at something in it."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("The report is tested in Chromium, and there is none: `apt-get install chromium`.")
        pytest.skip("There is no Chromium here to show the report in: `apt-get install chromium`.")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        await chromium.close()


@dataclass
class Viewer:
    """Opens reports in a browser.

    Attributes:
        browser: The browser.
        requests: What pages asked for, besides themselves.
        errors: What went wrong in their scripts.
    """

    browser: Browser
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    async def open(self, file: Path, *, width: int = 1280, dark: bool = False, script: bool = True) -> Page:
        """Open a report that Flyte wrote."""
        context = await self.browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        page = await context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))

        async def only_the_page(route: Any) -> None:
            if route.request.url.startswith("file://"):
                await route.continue_()
            else:
                self.requests.append(route.request.url)
                await route.abort()

        await page.route("**/*", only_the_page)
        await page.goto(file.as_uri())
        return page


@pytest.fixture
def viewer(browser: Browser) -> Viewer:
    """Opens reports in a headless Chromium."""
    return Viewer(browser)


async def plan_a_trip(**options: Any) -> None:
    """A realistic agent run: tools in parallel, one that fails, hand-offs, an approval, a memory note."""

    def get_weather(city: str, days: int = 3) -> dict[str, Any]:
        """The weather."""
        return {"city": city, "days": [{"high": 24 - day, "sky": "sunny"} for day in range(days)]}

    def find_flights(origin: str, destination: str) -> list[dict[str, Any]]:
        """Flights."""
        return [{"flight": f"TP {1230 + n}", "from": origin, "to": destination, "eur": 180 + 15 * n} for n in range(6)]

    def find_hotels(city: str) -> str:
        """Hotels."""
        raise ConnectionError(f"hotels.example answered 503 for {city}")

    def book_trip(flight: str, hotel: str) -> str:
        """Book."""
        return f"Booked {flight} and {hotel}: reference AB12CD"

    question = "Plan a trip from Oslo to Lisbon next week, with a hotel near the river. Book it."
    async with start_agent("planner", question, **options) as agent:
        run = agent.run
        note = "The conversation of “ada” goes on: 12 messages were read."
        await run.emit(MemoryNotice(run=run.id, agent="planner", message=note))
        await agent.turn(
            "I will look at the weather, the flights and the hotels first.",
            tokens=(1240, 86),
            calls=("get_weather", "find_flights", "find_hotels"),
        )
        await asyncio.gather(
            agent.tool(get_weather, city="Lisbon"),
            agent.tool(find_flights, origin="Oslo", destination="Lisbon"),
            agent.tool(find_hotels, city="Lisbon"),
        )
        await run.emit(HandOff(run=run.id, agent="planner", source="planner", target="hotel finder"))
        await agent.turn(
            "The hotel service is away. From what I know, Hotel Tejo at Cais do Sodré is by the river.",
            tokens=(2210, 140),
            agent="hotel finder",
            model="gpt-4.1-mini",
        )
        await run.emit(HandOff(run=run.id, agent="hotel finder", source="hotel finder", target="planner"))
        plan = "The cheapest flight is TP 1230. I book it with Hotel Tejo."
        await agent.turn(plan, tokens=(2480, 95), calls=("book_trip",))
        asked: dict[str, Any] = {"run": run.id, "agent": "planner", "action": "book_trip", "digest": "3f" * 32}
        await run.emit(ApprovalAsked(**asked))
        await run.emit(ApprovalAnswered(**asked, decision="approved"))
        await agent.tool(book_trip, flight="TP 1230", hotel="Hotel Tejo")
        await agent.turn("Booked: flight TP 1230 and Hotel Tejo, reference AB12CD.", tokens=(2700, 60))
        await run.finish("Your trip is booked: flight TP 1230, and Hotel Tejo by the river. The reference is AB12CD.")


@pytest.fixture
def trip() -> Callable[..., Awaitable[None]]:
    """A realistic agent run; takes options of `agent_run`."""
    return plan_a_trip


async def ask_the_experts(**options: Any) -> None:
    """An agent that uses agents as tools, one of which is an agent run of its own, and whose first attempt is cut off."""

    async def look_up(word: str) -> str:
        """Look a word up."""
        return f"{word}: a noun"

    async def translate(text: str) -> str:
        """An agent run of its own."""
        async with start_agent("translator", text, **options) as translator:
            await translator.turn("Uma coruja.", tokens=(80, 8), model="my-own-model")
            await translator.run.finish("Uma coruja.")
        return "Uma coruja."

    async def research() -> JSON:
        await chief.turn("I look it up.", tokens=(300, 20), agent="researcher", calls=("look_up",))
        await chief.tool(look_up, agent="researcher", word="owl")
        await chief.turn("It is a noun.", tokens=(350, 9), agent="researcher")
        return "It is a noun."

    async with start_agent("chief", "What is “owl” in Portuguese?", **options) as chief:
        await chief.turn("I ask the experts.", tokens=(200, 30), calls=("researcher", "translate"))
        await chief.run.inline_tool(
            "researcher", {"word": "owl"}, research, codec=JsonCodec(), shown=str, call_id="r", is_agent=True
        )
        again: dict[str, Any] = {"run": chief.run.id, "agent": "chief", "call": "t", "name": "translate"}
        await chief.run.emit(ToolCallStarted(**again, arguments={"text": "An owl."}))
        await chief.run.emit(ToolCallRepeated(**again))
        with chief.run.inside("t"):
            await translate("An owl.")
        await chief.run.emit(ToolCallFinished(**again, arguments={"text": "An owl."}, result="Uma coruja.", seconds=1))
        await chief.turn("“Uma coruja.”", tokens=(400, 12))
        await chief.run.finish("“Uma coruja.”")


@pytest.fixture
def experts() -> Callable[..., Awaitable[None]]:
    """An agent that uses agents as tools; takes options of `agent_run`."""
    return ask_the_experts
