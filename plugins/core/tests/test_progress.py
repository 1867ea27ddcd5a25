"""Whoever waits at a terminal sees turns and tools as they happen; nobody else does."""

from __future__ import annotations

import contextlib
import os
import pty
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from flyteplugins.agents.core import AgentRun, JsonCodec, TurnFacts, Usage, as_agent_tool, post_events

if TYPE_CHECKING:
    from .conftest import Attempts, Model, StartAgent


class Terminal:
    """A real pseudo-terminal in place of standard error."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", encoding="utf-8")

    def shown(self) -> str:
        self.stream.flush()
        os.set_blocking(self.master, False)
        found = b""
        try:
            while more := os.read(self.master, 65536):
                found += more
        except BlockingIOError:
            pass
        return found.decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name in ("FLYTE_AGENTS_PROGRESS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    made = Terminal()
    yield made
    made.stream.close()
    os.close(made.master)


def get_weather(city: str) -> str:
    """Get the weather."""
    if city == "Nowhere":
        raise LookupError("There is no such city.")
    return f"It is sunny in {city}.\x1b[2J\nAnd warm."


async def work(run: AgentRun, model: Model, city: str = "Paris") -> None:
    """Two turns with a tool between them."""

    async def turn(question: str, *calls: str) -> None:
        await run.turn(
            {"question": question},
            lambda: model.answer(question),
            codec=JsonCodec(),
            facts=lambda value: TurnFacts(
                text=str(value), tool_calls=calls, usage=Usage(input_tokens=30, output_tokens=5)
            ),
            model="m",
        )

    await turn("first", "get_weather")
    await as_agent_tool(get_weather).call({"city": city})
    await turn("second")
    await run.finish("done")


@pytest.fixture
def at_work(attempt: Attempts, start_agent: StartAgent, model: Model) -> Callable[..., Any]:
    """Makes an attempt of the agent run above."""

    async def run(city: str = "Paris", *, before: Terminal | None = None, **options: Any) -> None:
        async def body() -> None:
            async with start_agent("chat", **({"observability": True} | options)) as run:
                await work(run, model, city)

        shown = contextlib.nullcontext() if before is None else contextlib.redirect_stderr(before.stream)
        with shown:
            await attempt(body)

    return run


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("[flyte-agents]")]


async def test_a_terminal_shows_turns_and_tools(
    terminal: Terminal, at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await at_work(before=terminal)
    begins, first, starts, ends, second, done = lines(terminal.shown())
    assert begins == "chat ▶ begins"
    assert first.startswith("chat ● turn 1 (")
    assert first.endswith(" s), 35 tokens: calls get_weather")
    assert starts == 'chat → get_weather(city="Paris")'
    assert ends.startswith("chat ✓ get_weather (")
    assert ends.endswith(": It is sunny in Paris. [2J And warm.")
    assert second.startswith("chat ● turn 2 (")
    assert second.endswith(": answer to second")
    assert done.startswith("chat ■ done (")


async def test_a_replay_says_so(
    terminal: Terminal, at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await at_work(before=terminal)
    terminal.shown()
    await at_work(before=terminal)
    begins, *told, _ = lines(terminal.shown())
    assert begins == "chat ▶ goes on"
    assert len(told) == 4
    assert all("(replayed)" in line for line in told if "→" not in line)


async def test_there_are_colours_unless_nobody_wants_them(
    terminal: Terminal, at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_work(before=terminal)
    assert "\x1b[32m✓" in terminal.shown()
    monkeypatch.setenv("NO_COLOR", "1")
    await at_work("Rome", before=terminal)
    assert "\x1b[3" not in terminal.shown()


async def test_a_line_stays_one_line(
    terminal: Terminal, at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    await at_work("Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch", before=terminal)
    shown = lines(terminal.shown())
    assert len(shown) == 6
    assert max(map(len, shown)) <= 40
    assert [line[-1] for line in shown if "get_weather(city" in line] == ["…"]


async def test_a_tool_that_failed_is_marked(
    terminal: Terminal, at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await at_work("Nowhere", before=terminal)
    [failed] = [line for line in lines(terminal.shown()) if "✗" in line]
    assert failed.startswith("chat ✗ get_weather failed: ")
    assert "There is no such city." in failed


async def test_without_contents_only_names_and_numbers_are_shown(
    terminal: Terminal, at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await at_work(before=terminal, observability="structure")
    shown = terminal.shown()
    assert "chat → get_weather()" in shown
    assert "Paris" not in shown
    assert "answer to" not in shown


@pytest.mark.parametrize("hushed", ["the switch", "no observability", "a listener of the caller's"])
async def test_it_is_quiet_where_nobody_asked_for_it(
    hushed: str, terminal: Terminal, at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {}
    if hushed == "the switch":
        monkeypatch.setenv("FLYTE_AGENTS_PROGRESS", "0")
    elif hushed == "no observability":
        options["observability"] = False
    else:
        options["on_event"] = lambda event: None
    await at_work(before=terminal, **options)
    assert lines(terminal.shown()) == []


async def test_events_that_are_posted_are_shown_as_well(terminal: Terminal, at_work: Callable[..., Any]) -> None:
    await at_work(before=terminal, on_event=post_events("http://127.0.0.1:9/", tries=1))
    assert "get_weather" in terminal.shown()


async def test_without_a_terminal_it_is_quiet_unless_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYTE_AGENTS_PROGRESS", raising=False)
    await at_work()
    assert lines(capsys.readouterr().err) == []
    monkeypatch.setenv("FLYTE_AGENTS_PROGRESS", "1")
    await at_work("Rome")
    shown = capsys.readouterr()
    assert 'get_weather(city="Rome")' in shown.err
    assert "\x1b" not in shown.err
    assert shown.out == ""


async def test_a_switch_that_is_neither_on_nor_off_is_refused(
    at_work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYTE_AGENTS_PROGRESS", "yes")
    with pytest.raises(ValueError, match="FLYTE_AGENTS_PROGRESS is 'yes'; set it to 1"):
        await at_work()
