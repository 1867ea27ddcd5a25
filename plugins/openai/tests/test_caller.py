"""What the caller passed is as it was, and what the program set up for the whole process still works."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agents
import flyte
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, RunHooks, Runner
from agents.run import get_default_agent_runner
from agents.tracing import TracingProcessor, get_trace_provider, set_trace_processors, set_trace_provider
from agents.tracing.processors import default_processor
from agents.tracing.provider import DefaultTraceProvider
from openai import AsyncOpenAI

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import (
    Event,
    HandOff,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    TurnFinished,
    register_instrumentor,
    unregister_instrumentor,
)
from flyteplugins.agents.openai import run_agent, tool

RunTask = Callable[..., Any]
Folder = Callable[..., Path]

env = flyte.TaskEnvironment("caller")


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


def state_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, with the identity of each value and the content of lists."""
    return {name: (id(item), list(item) if isinstance(item, list) else None) for name, item in vars(value).items()}


@pytest.fixture
def tracing_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The SDK's tracing as it is in a program that has set nothing; the model server's environment switches it off."""
    before = get_trace_provider()
    monkeypatch.delenv("OPENAI_AGENTS_DISABLE_TRACING")
    provider = DefaultTraceProvider()
    provider.register_processor(default_processor())
    set_trace_provider(provider)
    yield
    set_trace_provider(before)


@pytest.fixture
def seen_spans(model_env: ModelServer, tracing_on: None) -> list[str]:
    """The names of spans that a processor of the program's own was told of."""
    spans: list[str] = []

    class Processor(TracingProcessor):
        def on_trace_start(self, trace: Any) -> None:
            spans.append("trace")

        def on_trace_end(self, trace: Any) -> None: ...

        def on_span_start(self, span: Any) -> None: ...

        def on_span_end(self, span: Any) -> None:
            spans.append(span.span_data.type)

        def shutdown(self) -> None: ...

        def force_flush(self) -> None: ...

    set_trace_processors([Processor()])
    return spans


async def test_agent_run_config_functions_and_globals_are_unchanged(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"), call("shout", text="hi"))), Reply("done"))

    def shout(text: str) -> str:
        """Shout."""
        return text.upper()

    agent = Agent(name="a", model="gpt-4.1", tools=[tool(lookup)], model_settings=ModelSettings(temperature=0.3))
    config = RunConfig(tracing_disabled=True, model_settings=ModelSettings(top_p=0.9))
    conversation: list[Any] = [{"role": "user", "content": "go"}]
    before = (state_of(agent), state_of(config), copy.deepcopy(conversation), dict(vars(shout)), dict(vars(agents.run)))
    runner, processors = get_default_agent_runner(), get_trace_provider()._multi_processor._processors  # type: ignore[attr-defined]

    @env.task
    async def chat() -> str:
        return str(await run_agent(conversation, agent=agent, tools=[shout], run_config=config))

    assert await run_task(chat) == "done"
    after = (state_of(agent), state_of(config), conversation, dict(vars(shout)), dict(vars(agents.run)))
    assert before == after
    assert get_default_agent_runner() is runner
    assert get_trace_provider()._multi_processor._processors == processors  # type: ignore[attr-defined]


async def test_the_sdk_by_itself_is_as_it_was_in_a_process_that_ran_a_durable_agent(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply("hello"), repeat_last=True)

    @env.task
    async def chat() -> str:
        await run_agent("durable")
        model = OpenAIResponsesModel(
            "gpt-4.1", AsyncOpenAI()
        )  # connections of its own: the SDK's belong to another test's loop
        result = await Runner.run(Agent(name="bare", model=model), "bare")
        return str(result.final_output)

    assert await run_task(chat) == "hello"
    assert await run_task(chat) == "hello"
    assert model_env.journal.count(user="durable") == 1
    assert model_env.journal.count(user="bare") == 2
    assert len([*run_folder().rglob("turn.*")]) == 1


async def test_a_processor_of_the_programs_own_gets_its_spans(
    model_env: ModelServer, run_task: RunTask, seen_spans: list[str]
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"))

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", tools=[lookup]))

    await run_task(chat)
    assert {"trace", "agent", "function", "response"} <= set(seen_spans)


async def test_nothing_is_uploaded_by_accident(model_env: ModelServer, run_task: RunTask, tracing_on: None) -> None:
    """Without a processor of the program's own, the SDK's tracing is off unless the caller asks for it."""
    model_env.script(None, Reply("hello"), repeat_last=True)
    traces: list[Any] = []

    class Hooks(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            traces.append(agents.tracing.get_current_trace().export())  # type: ignore[union-attr]

    @env.task
    async def chat() -> str:
        return str(await run_agent("Hi?", hooks=Hooks()))

    await run_task(chat)
    assert traces == [None]


async def test_hooks_see_the_callers_own_agents(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("transfer_to_closer"),)), Reply("bye"))
    closer = Agent(name="closer", model="gpt-4.1")
    start = Agent(name="start", model="gpt-4.1", handoffs=[closer])
    seen: list[tuple[str, Any]] = []

    class Hooks(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append(("start", agent))

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            seen.append(("turn", agent))

        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
            seen.append(("hand-off", (from_agent, to_agent)))

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", agent=start, hooks=Hooks()))

    assert await run_task(chat) == "bye"
    assert [kind for kind, _ in seen] == ["start", "turn", "hand-off", "start", "turn"]
    assert seen[0][1] is start
    assert seen[3][1] is closer
    assert seen[2][1] == (start, closer)


@pytest.mark.parametrize("kind", ["hooks", "no hooks", "raises"])
async def test_a_package_that_registered_for_the_sdk_adds_its_hooks_to_the_callers(
    model_env: ModelServer, run_task: RunTask, kind: str
) -> None:
    model_env.script(None, Reply("hello"), repeat_last=True)
    seen: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append("caller")

    def watch(options: dict[str, Any]) -> Any:
        inner = options.get("hooks", RunHooks())

        class Both(RunHooks[Any]):
            async def on_agent_start(self, context: Any, agent: Any) -> None:
                seen.append("package")
                await inner.on_agent_start(context, agent)

        if kind == "raises":
            raise LookupError
        return {"hooks": Both() if kind == "hooks" else "no hooks"}

    @env.task
    async def chat() -> str:
        return str(await run_agent("Hi?", hooks=Hooks()))

    register_instrumentor("openai", watch)
    try:
        assert await run_task(chat) == "hello"
    finally:
        unregister_instrumentor("openai")
    assert seen == (["package", "caller"] if kind == "hooks" else ["caller"])


async def test_an_event_stream_tells_the_run_and_marks_what_is_replayed(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(
        "go", Reply(calls=(call("lookup", city="Oslo"),)), Reply(calls=(call("transfer_to_closer"),)), Reply("bye")
    )
    start = Agent(name="start", model="gpt-4.1", tools=[tool(lookup)], handoffs=[Agent(name="closer", model="gpt-4.1")])
    runs: list[list[Event]] = []

    @env.task
    async def chat() -> str:
        runs.append([])
        return str(await run_agent("go", agent=start, on_event=runs[-1].append))

    await run_task(chat)
    await run_task(chat)
    assert model_env.journal.count() == 3
    told = [[event for event in run if not isinstance(event, RunStarted | RunFinished)] for run in runs]
    assert [event.type for event in runs[0]] == [
        "run started", "turn finished", "tool call started", "tool call finished", "turn finished", "hand-off", "text delta",
        "turn finished", "run finished",
    ]  # fmt: skip
    assert [event.type for event in runs[0]] == [event.type for event in runs[1]]
    assert [event.agent for event in told[0] if isinstance(event, TurnFinished)] == ["start", "start", "closer"]
    recorded = (TurnFinished, ToolCallFinished)
    assert [event.replayed for event in told[0] if isinstance(event, recorded)] == [False] * 4
    assert [event.replayed for event in told[1] if isinstance(event, recorded)] == [True] * 4
    assert [event.usage for event in told[0] if isinstance(event, TurnFinished)] == [
        event.usage for event in told[1] if isinstance(event, TurnFinished)
    ]
    assert any(isinstance(event, HandOff) and event.target == "closer" for event in told[1])


async def test_the_report_is_written_when_the_run_fails(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="<script>alert(1)</script>"),)), Reply("never"))
    model_env.fault(Fault.error(500, times=None), turn=2)

    @env.task(report=True)
    async def chat() -> str:
        return str(await run_agent("go", tools=[lookup], name="reporter"))

    with pytest.raises(Exception, match="500"):
        await run_task(chat)
    (report,) = run_folder().rglob("report.html")
    page = report.read_text()
    assert "reporter: failed" in page
    assert "found &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "InternalServerError" in page


def test_arguments_that_a_pre_built_agent_has_itself_are_refused() -> None:
    from flyteplugins.agents.openai import run_agent_sync

    with pytest.raises(ValueError, match="agent= together with model, name"):
        run_agent_sync("Hi?", agent=Agent(name="a"), model="gpt-4.1", name="b")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"Use agent\.as_tool"):
        run_agent_sync("Hi?", tools=[Agent(name="a")])
