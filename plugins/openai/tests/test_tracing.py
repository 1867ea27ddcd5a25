"""The SDK's tracing: one processor for the process, which tells each agent run of its own guardrails and spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    OpenAIResponsesModel,
    OutputGuardrail,
    RunConfig,
    Runner,
    custom_span,
    function_tool,
)
from agents.tracing import TracingProcessor, get_trace_provider, set_trace_provider
from agents.tracing.processors import default_processor
from agents.tracing.provider import DefaultTraceProvider
from openai import AsyncOpenAI

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import Event
from flyteplugins.agents.openai import FlyteTracingProcessor, SpanFinished, install_flyte_tracing, run_agent

RunTask = Callable[..., Any]
Folder = Callable[..., Path]

env = flyte.TaskEnvironment("tracing")


class Noting(TracingProcessor):
    """A processor of the program's own."""

    def __init__(self) -> None:
        self.spans: list[str] = []

    def on_trace_start(self, trace: Any) -> None: ...

    def on_trace_end(self, trace: Any) -> None: ...

    def on_span_start(self, span: Any) -> None: ...

    def on_span_end(self, span: Any) -> None:
        self.spans.append(span.span_data.type)

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


@pytest.fixture
def provider(model_env: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[DefaultTraceProvider]:
    """The SDK's tracing as it is in a program that has set nothing."""
    before = get_trace_provider()
    monkeypatch.delenv("OPENAI_AGENTS_DISABLE_TRACING")
    provider = DefaultTraceProvider()
    provider.register_processor(default_processor())
    set_trace_provider(provider)
    yield provider
    set_trace_provider(before)


def processors(provider: DefaultTraceProvider) -> list[TracingProcessor]:
    return list(provider._multi_processor._processors)


def test_installing_takes_the_upload_out_and_leaves_the_programs_own(provider: DefaultTraceProvider) -> None:
    own = Noting()
    provider.register_processor(own)
    install_flyte_tracing()
    install_flyte_tracing()
    assert [type(processor) for processor in processors(provider)] == [Noting, FlyteTracingProcessor]
    assert processors(provider)[0] is own


def test_the_upload_stays_where_it_is_asked_for(provider: DefaultTraceProvider) -> None:
    install_flyte_tracing(upload=True)
    assert processors(provider)[0] is default_processor()
    assert len(processors(provider)) == 2


def test_a_provider_of_the_programs_own_is_not_guessed_at(provider: DefaultTraceProvider) -> None:
    class Other:
        pass

    set_trace_provider(Other())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"is a .*Other, whose processors cannot be listed"):
        install_flyte_tracing()


def allow(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, tripwire_triggered=False)


async def test_each_run_is_told_of_its_own_guardrails_and_spans_and_the_programs_processor_gets_all(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder, provider: DefaultTraceProvider
) -> None:
    model_env.script(None, Reply(calls=(call("work"),)), Reply("done"), repeat_last=True)
    own = Noting()
    provider.register_processor(own)
    install_flyte_tracing()
    told: dict[str, list[Event]] = {name: [] for name in ("a", "b", "c")}

    @function_tool
    async def work() -> str:
        """Work."""
        with custom_span("digging"):
            await asyncio.sleep(0)
        return "worked"

    async def one(name: str) -> str:
        agent = Agent(
            name=name,
            model="gpt-4.1",
            tools=[work],
            input_guardrails=[InputGuardrail(allow, name=f"input of {name}")],
            output_guardrails=[OutputGuardrail(allow, name=f"output of {name}")],
        )
        return str(await run_agent(f"go {name}", agent=agent, on_event=told[name].append))

    @env.task(report=True)
    async def chat() -> str:
        return " ".join(await asyncio.gather(*(one(name) for name in told)))

    assert await run_task(chat) == "done done done"
    for name, events in told.items():
        spans = [event for event in events if isinstance(event, SpanFinished)]
        assert sorted((event.kind, event.name) for event in spans) == [
            ("custom", "digging"),
            ("guardrail", f"input of {name}"),
            ("guardrail", f"output of {name}"),
        ]
        assert {event.agent for event in spans} == {name}
        assert len({event.run for event in events}) == 1
        assert [event.type for event in events][-1] == "run finished"
    assert own.spans.count("guardrail") == 6
    assert {"agent", "function", "response", "custom"} <= set(own.spans)
    (report,) = run_folder().rglob("report.html")
    assert "input of a" in report.read_text()


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_guardrail_that_stops_the_run_fails_the_task_at_once_and_is_told_of(
    model_env: ModelServer, run_task: RunTask, provider: DefaultTraceProvider, streamed: bool
) -> None:
    model_env.script(None, Reply("never"), repeat_last=True)
    install_flyte_tracing()
    told: list[Event] = []
    attempts: list[int] = []

    def refuse(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    @env.task(retries=2)
    async def chat() -> str:
        attempts.append(1)
        agent = Agent(
            name="a", model="gpt-4.1", input_guardrails=[InputGuardrail(refuse, name="no", run_in_parallel=False)]
        )
        return str(await run_agent("go", agent=agent, on_event=told.append if streamed else None))

    with pytest.raises(flyte.errors.RuntimeUserError, match="InputGuardrailTripwireTriggered") as raised:
        await run_task(chat)
    assert raised.value.code == "NonRecoverableError"
    assert len(attempts) == 1
    if streamed:
        assert [event.error for event in told if isinstance(event, SpanFinished)] == ["The guardrail stopped the run."]
    assert model_env.journal.count() == 0


async def test_runs_outside_of_an_agent_run_are_not_its_business(
    model_env: ModelServer, provider: DefaultTraceProvider
) -> None:
    model_env.script(None, Reply("done"), repeat_last=True)
    install_flyte_tracing()
    model = OpenAIResponsesModel("gpt-4.1", AsyncOpenAI())
    agent = Agent(name="a", model=model, input_guardrails=[InputGuardrail(allow, name="fine")])
    result = await Runner.run(agent, "go", run_config=RunConfig())
    assert result.final_output == "done"
