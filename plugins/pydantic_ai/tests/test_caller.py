"""What the caller passed is as it was, and what happens is told."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.capabilities import AbstractCapability, Hooks, Instrumentation
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.toolsets import FunctionToolset

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import Event, RunFinished, RunStarted, ToolCallFinished, TurnFinished
from flyteplugins.agents.pydantic_ai import run_agent, run_agent_sync, tool

RunTask = Callable[..., Any]
Folder = Callable[..., Path]
MODEL = "openai:gpt-4.1"

env = flyte.TaskEnvironment("caller")


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


def state_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, with the identity of each value and the content of lists."""
    return {
        name: (id(item), list(item) if isinstance(item, list) else None)
        for name, item in vars(value).items()
        if name != "_entered_count"
    }


async def test_agent_history_functions_and_toolsets_are_unchanged(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"), call("shout", text="hi"))), "done")

    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    agent = Agent(MODEL, name="a", tools=[tool(lookup)], defer_model_check=True)
    toolset = FunctionToolset([shout])
    history: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("Hi")]), ModelResponse(parts=[TextPart("Hello")])]
    before = (state_of(agent), dict(vars(toolset)), copy.deepcopy(history), dict(vars(shout)))

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", agent=agent, toolsets=[toolset], message_history=history))

    assert await run_task(chat) == "done"
    after = (state_of(agent), dict(vars(toolset)), history, dict(vars(shout)))
    assert [name for name, value in after[0].items() if before[0].get(name) != value] == []
    assert before[1:] == after[1:]


async def test_an_agent_without_a_name_gets_none(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, "hello")
    unnamed: list[Agent[Any, str]] = [Agent(MODEL, defer_model_check=True)]

    @env.task
    async def chat() -> str:
        return str(await run_agent("Hi", agent=unnamed[0]))

    assert await run_task(chat) == "hello"
    assert unnamed[0].name is None


async def test_the_sdk_by_itself_is_as_it_was_in_a_process_that_ran_a_durable_agent(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, "hello", repeat_last=True)

    @env.task
    async def chat() -> str:
        await run_agent("durable", model=MODEL)
        return (await Agent(MODEL, name="bare").run("bare")).output

    assert await run_task(chat) == await run_task(chat) == "hello"
    assert model_env.journal.count(user="durable") == 1
    assert model_env.journal.count(user="bare") == 2
    assert len([*run_folder().rglob("turn.*")]) == 1


async def test_capabilities_of_the_callers_own_see_every_turn_of_a_replayed_run_too(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), "done")
    seen: list[str] = []

    class Watching(AbstractCapability[Any]):
        async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
            seen.append(response.parts[0].part_kind)
            return response

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", model=MODEL, tools=[lookup], capabilities=[Watching(), Hooks()]))

    assert await run_task(chat) == await run_task(chat) == "done"
    assert seen == ["tool-call", "text"] * 2
    assert model_env.journal.count() == 2


async def test_an_event_stream_tells_the_run_and_marks_what_is_replayed(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), "bye")
    runs: list[list[Event]] = []

    @env.task
    async def chat() -> str:
        runs.append([])
        return str(await run_agent("go", model=MODEL, tools=[lookup], name="teller", on_event=runs[-1].append))

    await run_task(chat)
    await run_task(chat)
    assert model_env.journal.count() == 2
    for run in runs:
        assert [event.type for event in run] == [
            "run started", "turn finished", "tool call started", "tool call finished",
            "text delta", "turn finished", "run finished",
        ]  # fmt: skip
        assert {event.agent for event in run} == {"teller"}
    recorded = (TurnFinished, ToolCallFinished)
    assert [[event.replayed for event in run if isinstance(event, recorded)] for run in runs] == [
        [False] * 3,
        [True] * 3,
    ]
    assert next(event for event in runs[1] if isinstance(event, RunStarted)).resumed
    assert next(event for event in runs[1] if isinstance(event, RunFinished)).text == "bye"


async def test_the_report_is_written_when_the_run_fails(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="<script>alert(1)</script>"),)), "never")
    model_env.fault(Fault.error(500, times=None), turn=2)

    @env.task(report=True)
    async def chat() -> str:
        return str(await run_agent("go", model=MODEL, tools=[lookup], name="reporter"))

    with pytest.raises(Exception, match="500"):
        await run_task(chat)
    (report,) = run_folder().rglob("report.html")
    page = report.read_text()
    assert "reporter: failed" in page
    assert "found &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "ModelServerError" in page


async def test_spans_of_replayed_turns_are_not_exported_again(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", "done", repeat_last=True)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentation = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
    agent = Agent(MODEL, name="traced", capabilities=[instrumentation], defer_model_check=True)

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", agent=agent))

    await run_task(chat)
    names = [span.name for span in exporter.get_finished_spans()]
    assert any(name.startswith("chat") for name in names), names
    exporter.clear()
    await run_task(chat)
    assert not [span.name for span in exporter.get_finished_spans() if span.name.startswith("chat")]


def test_arguments_that_a_pre_built_agent_has_itself_are_refused() -> None:
    with pytest.raises(ValueError, match="agent= together with model, name"):
        run_agent_sync("Hi?", agent=Agent("test", name="a"), model="test", name="b")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"give a pydantic_ai\.Agent"):
        run_agent_sync("Hi?", agent="a")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="made of a Flyte task or a callable"):
        run_agent_sync("Hi?", model="test", tools=[3])
