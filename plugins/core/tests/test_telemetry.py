"""OpenTelemetry spans of agent runs: nested, complete, and none of what was replayed or must not leave."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from flyteplugins.agents.core import (
    JSON,
    AgentRun,
    AgentTool,
    HandOff,
    JsonCodec,
    TurnFacts,
    Usage,
)
from flyteplugins.agents.core._telemetry import CONTENT_VARIABLE

if TYPE_CHECKING:
    from .conftest import Attempts, StartAgent

SECRET = "the secret word of Ada"
TOKENS = Usage(requests=1, input_tokens=1000, output_tokens=100)


class Spans:
    """What was exported.

    Attributes:
        provider: The program's provider.
    """

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        """In the order in which they ended."""
        return list(self._exporter.get_finished_spans())

    def names(self) -> list[str]:
        return [span.name for span in self.all()]

    def one(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.all() if span.name == name]
        return span

    def attributes(self, name: str) -> dict[str, Any]:
        return dict(self.one(name).attributes or {})

    def parent(self, name: str) -> str | None:
        """The name of the span that one is inside of."""
        parent = self.one(name).parent
        if parent is None:
            return None
        [outer] = [span for span in self.all() if span.context is not None and span.context.span_id == parent.span_id]
        return outer.name

    def text(self) -> str:
        """Everything that was exported."""
        return "".join(str(span.to_json()) for span in self.all())

    def clear(self) -> None:
        self._exporter.clear()


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """A program that has configured a provider, and what that exports."""
    exported = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: exported.provider)
    monkeypatch.delenv(CONTENT_VARIABLE, raising=False)
    return exported


async def turn(
    run: AgentRun, text: str, *, agent: str = "", error: Exception | None = None, usage: Usage = TOKENS
) -> None:
    async def ask() -> JSON:
        if error is not None:
            raise error
        return text

    await run.turn(
        {"question": text},
        ask,
        codec=JsonCodec(),
        facts=lambda value: TurnFacts(str(value), ("look",), usage),
        model="gpt-4.1",
        agent=agent,
    )


async def look(city: str) -> str:
    """Look at a city."""
    if city == "Atlantis":
        raise LookupError(f"{SECRET}: no {city}")
    return f"{city} is large. {SECRET}"


LOOK = AgentTool(look)


async def test_the_spans_of_a_run_are_nested_and_say_what_the_conventions_ask_for(
    attempt: Attempts, start_agent: StartAgent, spans: Spans
) -> None:
    usage = Usage(requests=1, input_tokens=1000, output_tokens=100, cached_tokens=30, reasoning_tokens=7)

    async def body() -> None:
        async with start_agent("guide", observability=True) as run:
            await turn(run, SECRET, usage=usage)
            await LOOK.call({"city": "Oslo"}, call_id="call_1")
            await run.emit(HandOff(run=run.id, agent="guide", source="guide", target="expert"))
            await run.finish(SECRET)

    await attempt(body)
    assert spans.names() == ["chat gpt-4.1", "execute_tool look", "invoke_agent guide"]
    assert spans.parent("chat gpt-4.1") == spans.parent("execute_tool look") == "invoke_agent guide"
    assert spans.parent("invoke_agent guide") is None
    assert spans.one("chat gpt-4.1").kind is trace.SpanKind.CLIENT
    chat = spans.attributes("chat gpt-4.1")
    assert chat == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "test",
        "gen_ai.agent.name": "guide",
        "gen_ai.request.model": "gpt-4.1",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.reasoning.output_tokens": 7,
        "flyte.agents.cost_usd": chat["flyte.agents.cost_usd"],
    }
    assert 0 < chat["flyte.agents.cost_usd"] < 0.0028
    assert spans.attributes("execute_tool look") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.provider.name": "test",
        "gen_ai.agent.name": "guide",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
    }
    root = spans.attributes("invoke_agent guide")
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert root["gen_ai.agent.name"] == "guide"
    assert root["flyte.run"] == attempt.name
    assert root["flyte.agents.resumed"] is False
    [event] = spans.one("invoke_agent guide").events
    assert (event.name, dict(event.attributes or {})) == (
        "hand-off",
        {"agent": "guide", "source": "guide", "target": "expert"},
    )
    assert all(span.status.status_code is StatusCode.UNSET for span in spans.all())
    assert SECRET not in spans.text(), "contents have to be asked for"


async def test_agents_within_agents_and_the_programs_own_spans_are_inside_of_the_calls(
    attempt: Attempts, start_agent: StartAgent, spans: Spans
) -> None:
    tracer = spans.provider.get_tracer("the program")

    async def delegate(who: str, both: asyncio.Barrier) -> str:
        async with start_agent(f"inner {who}", observability=True) as inner:
            await both.wait()
            with tracer.start_as_current_span(f"own {who}"):
                await both.wait()
                await turn(inner, f"turn of {who}")
        return ""

    async def body() -> None:
        both = asyncio.Barrier(2)

        async def ask_a() -> str:
            """Ask."""
            return await delegate("a", both)

        async def ask_b() -> str:
            """Ask."""
            return await delegate("b", both)

        with tracer.start_as_current_span("request"):
            async with start_agent("outer", observability=True) as run:

                async def research() -> JSON:
                    await turn(run, "researched", agent="researcher")
                    await LOOK.call({"city": "Oslo"}, call_id="look")
                    return ""

                await asyncio.gather(AgentTool(ask_a).call({}, call_id="1"), AgentTool(ask_b).call({}, call_id="2"))
                await run.inline_tool(
                    "research", {}, research, codec=JsonCodec(), shown=str, call_id="3", is_agent=True
                )
        assert trace.get_current_span() is trace.INVALID_SPAN, "nothing is left behind"

    await attempt(body)
    for who in "ab":
        assert spans.parent(f"own {who}") == f"invoke_agent inner {who}"
        assert spans.parent(f"invoke_agent inner {who}") == f"execute_tool ask_{who}"
        assert spans.parent(f"execute_tool ask_{who}") == "invoke_agent outer"
    assert spans.parent("execute_tool look") == "execute_tool research"
    chats = {(span.attributes or {})["gen_ai.agent.name"]: span for span in spans.all() if span.name == "chat gpt-4.1"}
    research = spans.one("execute_tool research").context
    parent = chats["researcher"].parent
    assert research is not None
    assert parent is not None
    assert parent.span_id == research.span_id
    assert spans.parent("invoke_agent outer") == "request"
    assert len({span.context.trace_id for span in spans.all() if span.context is not None}) == 1


async def test_what_failed_says_so_with_its_class_alone(
    attempt: Attempts, start_agent: StartAgent, spans: Spans
) -> None:
    async def body() -> None:
        async with start_agent("guide", observability=True) as run:
            await LOOK.call({"city": "Atlantis"}, call_id="1")
            await turn(run, "?", error=ConnectionError(SECRET))

    with pytest.raises(ConnectionError):
        await attempt(body)
    failed = {span.name: span.status for span in spans.all()}
    assert {status.status_code for status in failed.values()} == {StatusCode.ERROR}
    assert failed["execute_tool look"].description == "LookupError"
    assert failed["chat gpt-4.1"].description == failed["invoke_agent guide"].description == "ConnectionError"
    assert spans.attributes("chat gpt-4.1")["error.type"] == "ConnectionError"
    assert "gen_ai.usage.input_tokens" not in spans.attributes("chat gpt-4.1")
    assert SECRET not in spans.text()


async def test_what_was_replayed_is_not_exported_again(
    attempt: Attempts, start_agent: StartAgent, spans: Spans, killed: type[BaseException]
) -> None:
    async def body() -> None:
        async with start_agent("guide", observability=True) as run:
            await turn(run, "first")
            await LOOK.call({"city": "Oslo"}, call_id="1")
            if not attempt.died:
                raise killed
            await turn(run, "second")
            await LOOK.call({"city": "Rome"}, call_id="2")

    await attempt(body)
    assert spans.names() == ["chat gpt-4.1", "execute_tool look", "invoke_agent guide"]
    spans.clear()
    await attempt(body)
    assert spans.names() == ["chat gpt-4.1", "execute_tool look", "invoke_agent guide"]
    assert spans.attributes("execute_tool look")["gen_ai.tool.call.id"] == "2"
    assert spans.attributes("invoke_agent guide")["flyte.agents.resumed"] is True


async def test_a_call_that_is_run_again_says_so(
    attempt: Attempts, start_agent: StartAgent, spans: Spans, killed: type[BaseException]
) -> None:
    async def pay() -> str:
        """Pay."""
        if not attempt.died:
            raise killed
        return "paid"

    async def body() -> None:
        async with start_agent("guide", observability=True):
            await AgentTool(pay).call({}, call_id="1")

    await attempt(body)
    spans.clear()
    await attempt(body)
    assert spans.attributes("execute_tool pay")["flyte.agents.run_again"] is True


@pytest.mark.parametrize("observability", [True, "structure", False])
async def test_contents_are_exported_only_where_they_were_asked_for(
    attempt: Attempts,
    start_agent: StartAgent,
    spans: Spans,
    monkeypatch: pytest.MonkeyPatch,
    observability: Any,
) -> None:
    monkeypatch.setenv(CONTENT_VARIABLE, "true")

    async def body() -> None:
        async with start_agent("guide", f"question, {SECRET}", observability=observability) as run:
            await turn(run, SECRET)
            await LOOK.call({"city": "Oslo"}, call_id="1")
            await LOOK.call({"city": "Atlantis"}, call_id="2")
            await run.finish(SECRET)

    await attempt(body)
    if observability is False:
        assert spans.all() == []
        return
    if observability == "structure":
        assert len(spans.all()) == 4
        assert "secret" not in spans.text()
        assert "Oslo" not in spans.text()
        return
    chat = spans.attributes("chat gpt-4.1")
    assert json.loads(chat["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": SECRET}, {"type": "tool_call", "name": "look"}]}
    ]
    root = spans.attributes("invoke_agent guide")
    assert json.loads(root["gen_ai.input.messages"])[0]["parts"][0]["content"] == f"question, {SECRET}"
    called: list[dict[str, Any]] = [dict(span.attributes or {}) for span in spans.all()]
    [oslo] = [attributes for attributes in called if attributes.get("gen_ai.tool.call.id") == "1"]
    assert json.loads(oslo["gen_ai.tool.call.arguments"]) == {"city": "Oslo"}
    assert json.loads(oslo["gen_ai.tool.call.result"]) == f"Oslo is large. {SECRET}"


class Broken(SpanProcessor):
    """A processor of the program's that fails."""

    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self.where == "start":
            raise OSError("no collector")

    def on_end(self, span: ReadableSpan) -> None:
        if self.where == "end":
            raise OSError("no collector")


@pytest.mark.parametrize("where", ["start", "end"])
async def test_a_broken_processor_of_the_programs_changes_nothing(
    attempt: Attempts, start_agent: StartAgent, spans: Spans, where: str
) -> None:
    spans.provider.add_span_processor(Broken(where))

    async def body() -> str:
        async with start_agent("guide", observability=True) as run:
            await turn(run, "first")
            outcome = await LOOK.call({"city": "Oslo"}, call_id="1")
            await run.finish("bye")
            return outcome.text

    assert (await attempt(body)).startswith("Oslo is large.")


PROGRAM = """
import asyncio, sys
from flyteplugins.agents.core import *
from flyteplugins.agents.core import agent_run
assert not [name for name in sys.modules if name.startswith("opentelemetry")], "importing core loads no telemetry"

async def main():
    async with agent_run(framework="test", name="guide", input="Hi", memory_key=None, configuration={},
                         classify=lambda error: ErrorClass.RETRY_ATTEMPT) as run:
        await run.finish("bye")

SETUP
asyncio.run(main())
print([span.name for span in exporter.get_finished_spans()] if "exporter" in globals() else
      [name for name in sys.modules if name.startswith("opentelemetry")])
"""

SETUP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
"""


@pytest.mark.parametrize(("setup", "told"), [(SETUP, "['invoke_agent guide']"), ("", "[]")])
def test_spans_go_to_the_provider_of_the_program_and_without_one_nothing_is_loaded(setup: str, told: str) -> None:
    program = PROGRAM.replace("SETUP", setup)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == told


async def test_without_a_provider_there_are_no_spans(
    attempt: Attempts, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    monkeypatch.setattr(trace.ProxyTracer, "start_span", lambda self, name, *a, **k: started.append(name))

    async def body() -> None:
        async with start_agent("guide", observability=True) as run:
            await turn(run, "first")

    await attempt(body)
    assert started == []
