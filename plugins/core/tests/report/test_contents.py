"""What was said is shown as text, or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import pytest

from flyteplugins.agents.core import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    HandOff,
    MemoryNotice,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFinished,
    digest,
)
from flyteplugins.agents.core._report._timeline import Timeline

if TYPE_CHECKING:
    from .conftest import Reported, StartAgent

Read = Callable[[str], str]
Emit = Callable[[Event], Awaitable[None]]

HOSTILE = "</dd></section></script><script>alert('%s')</script><img src=x onerror=\"alert(1)\">&lt;"


@pytest.fixture(autouse=True)
def nothing_goes_wrong(caplog: pytest.LogCaptureFixture) -> Any:
    """A report that cannot be rendered is only logged: here it is a failure."""
    yield
    assert [
        record.message for record in caplog.records if record.levelno >= logging.ERROR and "report" in record.message
    ] == []


async def say_everywhere(
    emit: Emit, text: Callable[[str], str], *, name: Callable[[str], str] = lambda word: word
) -> None:
    """Every event that there is, with a text of one's own in each place that can hold contents or a name."""
    agent: dict[str, Any] = {"agent": name("agent")}
    await emit(RunStarted(**agent, name=name("run"), input=text("input")))
    await emit(TurnFinished(**agent, model=name("model"), text=text("answer"), tool_calls=(name("tool"),)))
    await emit(TurnFinished(**agent, model=name("model"), error=f"ValueError: {text('turn error')}"))
    for call, arguments in (("1", {text("key"): [text("value")]}), ("2", text("raw arguments"))):
        await emit(ToolCallStarted(**agent, call=call, name=name("tool"), arguments=arguments))  # type: ignore[arg-type]
    await emit(ToolCallRepeated(**agent, call="1", name=name("tool")))
    await emit(ToolCallFinished(**agent, call="1", name=name("tool"), result=text("result")))
    await emit(ToolCallFinished(**agent, call="2", name=name("tool"), error=f"OSError: {text('tool error')}"))
    await emit(HandOff(**agent, source=name("source"), target=name("target")))
    asked: Any = {text("asked key"): [text("asked value")]}
    await emit(ApprovalAsked(**agent, action=name("action"), digest="d", arguments=asked))
    await emit(
        ApprovalAnswered(
            **agent, action=name("action"), digest="d", decision=text("decision"), by=text("who"), reason=text("reason")
        )
    )
    await emit(MemoryNotice(**agent, message=text("notice")))
    await emit(RunFinished(**agent, text=text("final answer")))


async def test_everything_that_was_said_is_escaped(reported: Reported, start_agent: StartAgent, words: Read) -> None:
    told: list[str] = []

    def hostile(word: str) -> str:
        told.append(HOSTILE % word)
        return told[-1]

    async def body() -> None:
        async with start_agent(HOSTILE % "name") as agent:
            await say_everywhere(agent.run.emit, hostile, name=hostile)

    page = await reported(body)
    assert re.findall("<script", page) == ["<script", "<script"]  # ours, and Flyte's own
    assert "<img" not in page
    assert 'onerror="' not in page
    shown = words(page)
    for text in told:
        if not re.search(
            "'(run|(asked )?(key|value))'", text
        ):  # the name is the report's already; JSON escapes quotes of its own
            assert " ".join(text.split()) in shown, text


async def test_the_test_above_reaches_every_field_of_every_event() -> None:
    texts = {
        "run",
        "agent",
        "name",
        "input",
        "model",
        "text",
        "tool_calls",
        "error",
        "arguments",
        "result",
        "source",
        "target",
    }
    texts |= {"action", "digest", "decision", "by", "reason", "message", "call"}
    plain = {"replayed", "resumed", "usage", "seconds", "parent", "parent_run", "cost", "request", "deadline", "at"}
    known = {
        field.name
        for kind in Event.__subclasses__()
        for field in dataclasses.fields(kind)
        if kind.__module__.endswith("core._events")
    }
    assert known <= texts | plain


@pytest.mark.parametrize("outcome", ["finished", "failed"])
async def test_structure_alone_has_no_content_anywhere(
    reported: Reported, start_agent: StartAgent, words: Read, outcome: str
) -> None:
    secrets: list[str] = []

    def secret(word: str) -> str:
        secrets.append(f"the secret {word} of Ada")
        return secrets[-1]

    async def body() -> None:
        async with start_agent("teller", secret("question"), observability="structure") as agent:
            await say_everywhere(agent.run.emit, secret)
            if outcome == "failed":
                await agent.turn(error=ConnectionError(secret("outage")))

    page = await (reported(body) if outcome == "finished" else reported.failing(body, retries=True))
    for text in secrets:
        assert text not in page
    assert "secret" not in page
    assert "Ada" not in page
    said = words(page)
    data = b"the secret result of Ada"
    assert f"result {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}" in said
    arguments = {"the secret key of Ada": ["the secret value of Ada"]}
    assert f"bytes, SHA-256 {digest(arguments)[:16]}" in said
    for structure in (
        "teller",
        "Tool · tool",
        "calls tool",
        "Turn 1 · model",
        "source → target",
        "error OSError",
        "error ValueError",
    ):
        assert structure in said
    if outcome == "failed":
        assert "Error ConnectionError" in said
        assert said.count("failed ConnectionError") == 3, "each attempt, with the class alone"


async def test_structure_alone_tells_usual_decisions(reported: Reported, start_agent: StartAgent, words: Read) -> None:
    async def body() -> None:
        async with start_agent(observability="structure") as agent:
            for decision in ("approved", "Refused", "timed out"):
                await agent.run.emit(ApprovalAnswered(action="pay", digest="d", decision=decision))

    said = words(await reported(body))
    for decision in ("approved", "Refused", "timed out"):
        assert f"{decision} · arguments SHA-256 d" in said


async def test_an_attempt_with_contents_is_not_told_by_a_later_one_without(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    modes: list[Literal["structure"] | bool] = ["structure", True]

    async def body() -> None:
        async with start_agent(observability=modes.pop()) as agent:
            await agent.turn(error=ConnectionError("the secret"))

    await reported.failing(body)
    page = await reported.failing(body)
    assert "Attempt 2" in words(page)
    assert "secret" not in page


@pytest.mark.parametrize("observability", [True, "structure"])
async def test_odd_text_does_not_stop_the_report(
    reported: Reported, start_agent: StartAgent, words: Read, observability: Any
) -> None:
    odd = "a\ud800b\x00c\x1b[31md\r\ne\u202e"

    async def body() -> None:
        async with start_agent(f"name {odd}", odd, observability=observability) as agent:
            await say_everywhere(agent.run.emit, lambda word: f"{odd} {word}", name=lambda word: f"{odd} {word}")

    said = words(await reported(body))
    assert "finished" in said
    if observability is True:
        assert "a\\ud800b␀c␛[31md e\u202e final answer" in said


def test_arguments_that_are_nested_very_deep_are_no_reason_to_fail() -> None:
    arguments: Any = "bottom"
    for _ in range(100_000):
        arguments = [arguments]
    timeline = Timeline(contents=True)
    timeline.take(ToolCallStarted(call="1", name="t", arguments=arguments), 0)
    [step] = timeline.steps
    assert step.blocks[0].text.kept == "(nested too deep to be shown)"
    while isinstance(arguments, list):  # else the interpreter would free it recursively
        arguments = arguments[0]
