"""Turns of agents that stream, fail, fall back, swap models, run at once, and are reached in every way the SDK knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelResponse,
    NativeOutput,
    PromptedOutput,
    RunContext,
    ToolOutput,
    UsageLimits,
    WebSearchTool,
)
from pydantic_ai.capabilities import ModelFallback, NativeTool
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, TextPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider
from typing_extensions import TypedDict

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import AgentResult, Event, TextDelta, TurnFinished
from flyteplugins.agents.pydantic_ai import durable_run, run_agent, tool

RunTask = Callable[..., Any]
Folder = Callable[..., Path]
MODEL = "openai:gpt-4.1"

env = flyte.TaskEnvironment("turns")


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


class Attempts:
    """Crashes after the first."""

    def __init__(self) -> None:
        self.made = 0

    def crash_once(self) -> None:
        self.made += 1
        if self.made == 1:
            raise Crash("Crash")


async def twice(run_task: RunTask, task: Any, **inputs: Any) -> Any:
    with pytest.raises(Exception, match="Crash"):
        await run_task(task, name="run", **inputs)
    return await run_task(task, name="run", **inputs)


class Counting(WrapperModel):
    """Counts the requests that get to a model."""

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        self.asked = 0

    async def request(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.asked += 1
        return await super().request(*args, **kwargs)


def said(text: str) -> FunctionModel:
    """A model that says one thing, streamed or not."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(text)])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        for word in text.split():
            yield word + " "

    return FunctionModel(answer, stream_function=stream, model_name=text)


# -- every way to ask a model


async def test_a_model_given_by_name_is_not_looked_at_before_the_run(model_env: ModelServer, run_task: RunTask) -> None:
    agent = Agent(MODEL, name="deferred", defer_model_check=True)
    model_env.script("Hi", "Hello.")
    attempts = Attempts()

    @env.task
    async def asking() -> str:
        answer = await run_agent("Hi", agent=agent)
        attempts.crash_once()
        return str(answer)

    assert await twice(run_task, asking) == "Hello."
    assert model_env.journal.count() == 1


@pytest.mark.parametrize("how", ["model object", "override", "run-time", "agent without a model", "TestModel override"])
async def test_the_callers_choice_of_a_model_wins_and_is_recorded(run_task: RunTask, how: str) -> None:
    mine = Counting(TestModel(custom_output_text="mine") if how == "TestModel override" else said("mine"))
    agent = Agent(None if how == "agent without a model" else said("default"), name="a")
    attempts = Attempts()

    @env.task
    async def asking() -> str:
        match how:
            case "model object":
                answer = await run_agent("Hi", model=mine)
            case "override" | "TestModel override":
                with agent.override(model=mine):
                    answer = await run_agent("Hi", agent=agent)
            case _:
                async with durable_run("Hi"):
                    answer = (await agent.run("Hi", model=mine)).output
        attempts.crash_once()
        return str(answer)

    assert await twice(run_task, asking) == "mine"
    assert mine.asked == 1


async def test_a_fallback_model_is_one_turn_and_asks_nobody_on_a_resume(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Hi", "Hello.", "Hello.")
    model_env.fault(Fault.error(500, times=None), model="first")
    provider = OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0))
    model = FallbackModel(OpenAIChatModel("first", provider=provider), OpenAIChatModel("second", provider=provider))
    attempts = Attempts()

    @env.task
    async def asking() -> str:
        answer = await run_agent("Hi", model=model)
        attempts.crash_once()
        return str(answer)

    assert await twice(run_task, asking) == "Hello."
    assert [(entry.model, entry.status) for entry in model_env.journal.requests()] == [("first", 500), ("second", 200)]


async def test_a_failure_that_a_capability_goes_past_is_raised_again_on_a_resume_without_a_call(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Hi", "Hello.", "Hello.")
    model_env.fault(Fault.error(500, times=None), model="first")
    provider = OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0))
    models = [OpenAIChatModel(name, provider=provider) for name in ("first", "second")]
    agent = Agent(models[0], name="a", capabilities=[ModelFallback(models[1])])
    attempts = Attempts()

    @env.task
    async def asking() -> str:
        answer = await run_agent("Hi", agent=agent)
        attempts.crash_once()
        return str(answer)

    assert await twice(run_task, asking) == "Hello."
    assert [(entry.model, entry.status) for entry in model_env.journal.requests()] == [("first", 500), ("second", 200)]


async def test_native_tools_are_asked_for_and_replayed(model_env: ModelServer, run_task: RunTask) -> None:
    agent = Agent(
        "openai-responses:gpt-4.1", name="a", capabilities=[NativeTool(WebSearchTool())], defer_model_check=True
    )
    model_env.script("Hi", "Hello.")
    attempts = Attempts()

    @env.task
    async def asking() -> str:
        answer = await run_agent("Hi", agent=agent)
        attempts.crash_once()
        return str(answer)

    assert await twice(run_task, asking) == "Hello."
    [request] = model_env.journal.requests()
    assert [offered["type"] for offered in request.body["tools"]] == ["web_search"]


# -- streams


async def test_a_streamed_run_is_told_live_and_replays_as_the_same_events(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("One two three four five six.", pieces=4))
    attempts = Attempts()
    events: list[list[str]] = []
    deltas: list[list[TextDelta]] = []

    async def handler(ctx: RunContext[Any], stream: Any) -> None:
        async for event in stream:
            events[-1].append(type(event).__name__)

    @env.task
    async def asking() -> str:
        events.append([])
        deltas.append([])
        answer = await run_agent(
            "go",
            model=MODEL,
            tools=[lookup],
            event_stream_handler=handler,
            on_event=lambda event: deltas[-1].append(event) if isinstance(event, TextDelta) else None,
        )
        attempts.crash_once()
        return str(answer)

    assert await twice(run_task, asking) == "One two three four five six."
    assert model_env.journal.count() == 2
    assert all(entry.streamed for entry in model_env.journal.requests())
    assert events[0] == events[1]
    assert {"PartStartEvent", "FunctionToolCallEvent", "FunctionToolResultEvent", "FinalResultEvent"} <= set(events[0])
    assert "".join(delta.text for delta in deltas[0]) == "One two three four five six."
    assert [delta.text for delta in deltas[0]] == [delta.text for delta in deltas[1]]
    assert len(deltas[0]) > 1
    assert [{delta.replayed for delta in told} for told in deltas] == [{False}, {True}]


async def test_a_listener_gets_text_as_it_arrives_and_the_same_pieces_on_a_replay(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("One two three four five six.", pieces=4))
    attempts = Attempts()
    told: list[list[tuple[str, str, bool]]] = []

    def listen(event: Event) -> None:
        if isinstance(event, (TextDelta, TurnFinished)):
            told[-1].append((event.type, event.text, event.replayed))

    @env.task
    async def asking() -> str:
        told.append([])
        answer = await run_agent("go", model=MODEL, tools=[lookup], on_event=listen, full_result=True)
        attempts.crash_once()
        assert answer.usage.replayed.total_tokens > 0
        return answer.text

    assert await twice(run_task, asking) == "One two three four five six."
    assert [entry.streamed for entry in model_env.journal.requests()] == [True, True]
    assert [kind for kind, _, _ in told[0]] == ["turn finished", *["text delta"] * 4, "turn finished"]
    assert [(kind, text) for kind, text, _ in told[0]] == [(kind, text) for kind, text, _ in told[1]]
    assert ({replayed for _, _, replayed in told[0]}, {replayed for _, _, replayed in told[1]}) == ({False}, {True})


@pytest.mark.parametrize("fallback", [False, True])
async def test_a_model_that_cannot_stream_is_asked_for_the_whole_where_somebody_listens(
    run_task: RunTask, fallback: bool
) -> None:
    whole: Any = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("the whole")]))

    @env.task
    async def asking() -> str:
        return str(
            await run_agent("go", model=FallbackModel(whole, whole) if fallback else whole, on_event=lambda event: None)
        )

    assert await run_task(asking) == "the whole"


@pytest.mark.parametrize("how", ["run_stream", "run_stream_events", "iter"])
async def test_the_sdks_other_ways_to_run_are_durable_in_a_durable_run(
    model_env: ModelServer, run_task: RunTask, how: str
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), "Well done.")
    agent = Agent(MODEL, name="a", defer_model_check=True, tools=[tool(lookup)])
    attempts = Attempts()
    turns: list[list[bool]] = []

    async def answer() -> str:
        if how == "run_stream":
            async with agent.run_stream("go") as stream:
                pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
                return "".join(pieces)
        if how == "run_stream_events":
            async with agent.run_stream_events("go") as events:
                last = [event async for event in events][-1]
                return str(last.result.output)  # type: ignore[union-attr]
        async with agent.iter("go") as steps:
            nodes = [node async for node in steps]
            assert len(nodes) > 3
            assert steps.result is not None
            return steps.result.output

    @env.task
    async def asking() -> str:
        async with durable_run("go", name="writer") as run:
            text = await answer()
        turns.append([turn.replayed for turn in run.turns])
        attempts.crash_once()
        return text

    assert await twice(run_task, asking) == "Well done."
    assert model_env.journal.count() == 2
    assert turns == [[False, False], [True, True]]


async def test_a_turn_that_was_recorded_streamed_answers_one_that_is_not_and_the_other_way_round(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", "Well done.")
    state = {"streamed": True, "crash": True}
    agent = Agent(MODEL, name="a", defer_model_check=True)

    @env.task
    async def asking() -> str:
        async with durable_run("go"):
            if state["streamed"]:
                async with agent.run_stream("go") as stream:
                    text = await stream.get_output()
            else:
                text = (await agent.run("go")).output
        if state["crash"]:
            raise Crash("Crash")
        return text

    for name, first in (("one", True), ("two", False)):
        state.update(streamed=first, crash=True)
        with pytest.raises(Exception, match="Crash"):
            await run_task(asking, name=name)
        state.update(streamed=not first, crash=False)
        model_env.journal.clear()
        assert await run_task(asking, name=name) == "Well done."
        assert model_env.journal.count() == 0


async def test_a_stream_that_breaks_leaves_no_record(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply("One two three four.", pieces=4), repeat_last=True)
    model_env.fault(Fault.cut(after=3, times=1))
    agent = Agent(MODEL, name="a", defer_model_check=True)

    @env.task
    async def asking() -> str:
        async with durable_run("go"), agent.run_stream("go") as stream:
            return await stream.get_output()

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the client raises
        await run_task(asking, name="run")
    assert await run_task(asking, name="run") == "One two three four."
    assert model_env.journal.count() == 2


# -- outputs


class City(BaseModel):
    name: str
    people: int


@dataclass
class Town:
    name: str


class Village(TypedDict):
    name: str


OUTPUTS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "str": (str, {"text": "Oslo"}, "Oslo"),
    "bool": (bool, {"response": False}, False),
    "model": (City, {"name": "Oslo", "people": 3}, City(name="Oslo", people=3)),
    "dataclass": (Town, {"name": "Oslo"}, Town("Oslo")),
    "typed dictionary": (Village, {"name": "Oslo"}, {"name": "Oslo"}),
    "list": (list[int], {"response": [1, 2]}, [1, 2]),
    "tool output": (ToolOutput(City, name="answer"), {"name": "Oslo", "people": 3}, City(name="Oslo", people=3)),
    "native output": (NativeOutput(City), {"name": "Oslo", "people": 3}, City(name="Oslo", people=3)),
    "prompted output": (PromptedOutput(City), {"name": "Oslo", "people": 3}, City(name="Oslo", people=3)),
}


@pytest.mark.parametrize("kind", OUTPUTS)
async def test_an_output_comes_back_typed_and_the_same_on_a_resume(
    model_env: ModelServer, run_task: RunTask, kind: str
) -> None:
    output_type, values, expected = OUTPUTS[kind]
    if kind == "str":
        model_env.script("Where", Reply(values["text"]))
    elif kind in ("native output", "prompted output"):
        model_env.script("Where", Reply(structured=values))
    else:
        name = "answer" if kind == "tool output" else "final_result"
        model_env.script("Where", Reply(calls=(call(name, **values),)))
    found: list[AgentResult[Any]] = []
    attempts = Attempts()

    @env.task
    async def asking() -> None:
        found.append(await run_agent("Where?", model=MODEL, output_type=output_type, full_result=True))
        attempts.crash_once()

    await twice(run_task, asking)
    assert [result.output for result in found] == [expected] * 2
    assert type(found[1].output) is type(expected)
    assert found[0].usage.total == found[1].usage.total
    assert model_env.journal.count() == 1


async def test_a_union_of_outputs_comes_back_as_the_one_that_was_chosen(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Where", Reply(calls=(call("final_result_Town", name="Oslo"),)))

    @env.task
    async def asking() -> str:
        return repr(await run_agent("Where?", model=MODEL, output_type=[City, Town]))

    assert await run_task(asking, name="run") == await run_task(asking, name="run") == "Town(name='Oslo')"


# -- approvals


def later(city: str) -> str:
    """Be answered later."""
    raise CallDeferred


async def test_a_call_that_needs_approval_comes_back_as_such_and_goes_on_when_it_is_given(
    model_env: ModelServer, run_task: RunTask
) -> None:
    approved: list[str] = []

    def careful(city: str) -> str:
        """Do something dangerous."""
        approved.append(city)
        return "done"

    model_env.script("go", Reply(calls=(call("careful", city="Oslo"), call("later", city="Rome"))), "all done")
    tools = [tool(careful, requires_approval=True), later]
    found: list[AgentResult[Any]] = []

    @env.task
    async def asking() -> str:
        result = await run_agent(
            "go", model=MODEL, tools=tools, output_type=[str, DeferredToolRequests], full_result=True
        )
        found.append(result)
        assert isinstance(result.output, DeferredToolRequests)
        answers = DeferredToolResults(
            approvals={one.tool_call_id: True for one in result.output.approvals},
            calls={one.tool_call_id: "answered" for one in result.output.calls},
        )
        return str(
            await run_agent(
                model=MODEL,
                tools=tools,
                output_type=[str, DeferredToolRequests],
                message_history=result.native.all_messages(),
                deferred_tool_results=answers,
            )
        )

    assert await run_task(asking, name="run") == "all done"
    assert sorted(found[0].pending) == ["careful", "later"]
    assert approved == ["Oslo"]
    assert await run_task(asking, name="run") == "all done"
    assert approved == ["Oslo"]
    assert isinstance(found[1].output, DeferredToolRequests)
    assert model_env.journal.count() == 2


async def test_a_deferred_call_that_nobody_asked_to_be_told_of_is_a_clear_error(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("later", city="Oslo"),)))
    made = tool(later)

    @env.task(retries=2)
    async def asking() -> str:
        return str(await run_agent("go", model=MODEL, tools=[made]))

    with pytest.raises(
        flyte.errors.RuntimeUserError, match="DeferredToolRequests` is not among output types"
    ) as raised:
        await run_task(asking)
    assert raised.value.code == "NonRecoverableError"
    assert model_env.journal.count() == 1


# -- failures


async def test_a_bad_key_fails_the_task_at_once(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, "never")
    model_env.fault(Fault.unauthorized())
    attempts = []

    @env.task(retries=3)
    async def asking() -> str:
        attempts.append(1)
        return str(await run_agent("Hi?", model=MODEL))

    with pytest.raises(flyte.errors.RuntimeUserError, match="ModelAuthenticationError") as raised:
        await run_task(asking)
    assert raised.value.code == "NonRecoverableError"
    assert len(attempts) == model_env.journal.count() == 1


async def test_retries_of_the_providers_client_are_inside_one_leaf(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, "Hello.", repeat_last=True)
    model_env.fault(Fault.rate_limit(retry_after=0, times=2))

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi?", model=MODEL))

    assert await run_task(asking) == await run_task(asking) == "Hello."
    assert [entry.status for entry in model_env.journal.requests()] == [429, 429, 200]
    assert len([*run_folder().rglob("turn.*")]) == 1


async def test_a_failing_server_is_asked_again_by_the_next_attempt(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, "Hello.", repeat_last=True)
    model_env.fault(Fault.error(500, times=3))
    attempts = []

    @env.task(retries=1)
    async def asking() -> str:
        attempts.append(1)
        return str(await run_agent("Hi?", model=MODEL))

    assert await run_task(asking) == "Hello."
    assert (len(attempts), model_env.journal.count()) == (2, 4)


async def test_outside_of_a_task_the_sdk_runs_as_it_would_by_itself(model_env: ModelServer) -> None:
    model_env.script("Hi", Reply(calls=(call("measure", city="Oslo"),)), "20")
    told: list[TurnFinished] = []

    def measure(city: str) -> City:
        """Measure."""
        return City(name=city, people=1)

    agent = Agent(MODEL, name="a", defer_model_check=True, tools=[measure])
    result = await run_agent(
        "Hi",
        agent=agent,
        full_result=True,
        on_event=lambda event: told.append(event) if isinstance(event, TurnFinished) else None,
    )
    [part] = [
        part for message in result.native.all_messages() for part in message.parts if part.part_kind == "tool-return"
    ]
    assert part.content == City(name="Oslo", people=1)  # the object itself: nothing was recorded
    assert [turn.tool_calls for turn in told] == [("measure",), ()]
    model_env.fault(Fault.unauthorized())
    with pytest.raises(ModelHTTPError):
        await run_agent("Hi", agent=agent)


async def test_a_limit_of_the_sdk_fails_the_run_at_once(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), repeat_last=True)

    @env.task(retries=2)
    async def asking() -> str:
        return str(await run_agent("go", model=MODEL, tools=[lookup], usage_limits=UsageLimits(request_limit=2)))

    with pytest.raises(flyte.errors.RuntimeUserError, match="UsageLimitExceeded") as raised:
        await run_task(asking)
    assert raised.value.code == "NonRecoverableError"
    assert model_env.journal.count() == 2


async def test_what_cannot_be_part_of_a_key_is_an_error_that_names_it(
    model_env: ModelServer, run_task: RunTask
) -> None:
    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi?", model=MODEL, model_settings={"extra_body": {"odd": object()}}))

    with pytest.raises(flyte.errors.RuntimeUserError, match="settings"):
        await run_task(asking)
    assert model_env.journal.count() == 0


async def test_a_damaged_record_is_an_error_that_names_it_and_no_second_call(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, "Hello.", repeat_last=True)

    @env.task(retries=2)
    async def asking() -> str:
        return str(await run_agent("Hi?", model=MODEL))

    await run_task(asking)
    (record,) = run_folder().rglob("turn.*")
    record.write_bytes(record.read_bytes().replace(b"Hello.", b"Jello."))
    with pytest.raises(flyte.errors.RuntimeUserError, match=record.name):
        await run_task(asking)
    assert model_env.journal.count() == 1


async def test_agents_that_run_at_once_do_not_swap_answers_when_they_start_in_another_order(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, lambda conversation: Reply(f"{conversation.model} {conversation.system}"), repeat_last=True)
    state = {"flipped": False, "crash": True}

    @env.task
    async def both() -> list[str]:
        jobs = [("gpt-4.1", "a"), ("gpt-5", "a"), ("gpt-4.1", "b")]
        order = list(reversed(jobs)) if state["flipped"] else jobs
        answers = await asyncio.gather(
            *(
                run_agent("Which?", model=f"openai:{model}", name=name, instructions=f"I am {name}.")
                for model, name in order
            )
        )
        if state["crash"]:
            raise Crash("Crash")
        found = dict(zip(order, answers, strict=True))
        return [found[job] for job in jobs]

    with pytest.raises(Exception, match="Crash"):
        await run_task(both)
    state.update(flipped=True, crash=False)
    assert await run_task(both) == ["gpt-4.1 I am a.", "gpt-5 I am a.", "gpt-4.1 I am b."]
    assert model_env.journal.count() == 3


async def test_run_agent_sync_works_in_a_sync_task_beside_async_ones(model_env: ModelServer, run_task: RunTask) -> None:
    from flyteplugins.agents.pydantic_ai import run_agent_sync

    model_env.script(None, "Hello.", repeat_last=True)

    @env.task
    def asking(number: int) -> str:
        return str(run_agent_sync(f"Hi {number}", model=MODEL))

    @env.task
    async def asking_too(number: int) -> str:
        return str(await run_agent(f"Ho {number}", model=MODEL))

    for number in range(2):
        assert await run_task(asking, number=number, name=f"sync {number}") == "Hello."
        assert await run_task(asking_too, number=number, name=f"async {number}") == "Hello."
    with pytest.raises(RuntimeError, match="inside a running event loop"):
        run_agent_sync("Hi", model=MODEL)


async def test_an_unknown_keyword_is_refused(model_env: ModelServer) -> None:
    with pytest.raises(TypeError, match="no keyword max_turns"):
        await run_agent("Hi", model=MODEL, max_turns=3)  # type: ignore[call-overload]


def test_parameters_of_a_request_that_are_sets_have_one_form() -> None:
    from flyteplugins.agents.pydantic_ai._request import request_fields

    names = [f"tool_{number}" for number in range(20)]
    forms = [
        request_fields(
            model=TestModel(),
            messages=[],
            settings=None,
            parameters=ModelRequestParameters(revealed_tool_names=set(order)),
        )
        for order in (names, names[::-1])
    ]
    assert forms[0] == forms[1]
