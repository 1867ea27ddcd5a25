"""Streamed turns: live pieces, the same ones on a replay, and one record for streamed turns and others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from agents import (
    Agent,
    ModelBehaviorError,
    ModelRetrySettings,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
    retry_policies,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseCompletedEvent

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, Usage, call
from flyteplugins.agents.core import AgentResult, Event, TextDelta, TurnFinished
from flyteplugins.agents.openai import run_agent, tool

RunTask = Callable[..., Any]
Folder = Callable[..., Path]
MakeModel = Callable[[], Any]

env = flyte.TaskEnvironment("streaming")

TELL_USAGE = RunConfig(tracing_disabled=True, model_settings=ModelSettings(include_usage=True))
"""The SDK asks only OpenAI's own server for the usage of a streamed chat completion."""

ANSWER = "It is a sunny day in Oslo, and nobody has to stay inside."


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


@pytest.fixture(params=[OpenAIResponsesModel, OpenAIChatCompletionsModel], ids=["responses", "chat"])
def make_model(request: pytest.FixtureRequest) -> MakeModel:
    """Makes a model with connections of the running loop."""
    return lambda: request.param("gpt-4.1", AsyncOpenAI(max_retries=0))


def weather(server: ModelServer, **last: Any) -> None:
    server.script(
        "Weather",
        Reply("Let me see.", calls=(call("lookup", city="Oslo"), call("lookup", city="Rome")), pieces=2),
        Reply(ANSWER, pieces=7, usage=Usage(input=100, output=7, cached=40, reasoning=3), **last),
    )


def comparable(events: list[Event]) -> list[dict[str, Any]]:
    """What has to be the same on a replay: all but what says that it is one. Tools that run side by side end in any order."""
    volatile = {"replayed", "resumed", "seconds"}
    values = [{name: value for name, value in event.as_dict().items() if name not in volatile} for event in events]
    return [value for value in values if not value["type"].startswith("tool")] + sorted(
        (value for value in values if value["type"].startswith("tool")), key=str
    )


async def test_text_arrives_in_pieces_and_the_same_pieces_come_on_a_replay_marked(
    model_env: ModelServer, run_task: RunTask, make_model: MakeModel
) -> None:
    weather(model_env)
    runs: list[list[Event]] = []
    results: list[AgentResult[str]] = []

    @env.task
    async def chat() -> str:
        runs.append([])
        results.append(
            await run_agent(
                "Weather",
                tools=[lookup],
                model=make_model(),
                run_config=TELL_USAGE,
                on_event=runs[-1].append,
                full_result=True,
            )
        )
        return results[-1].output

    assert await run_task(chat) == await run_task(chat) == ANSWER
    assert model_env.journal.count() == 2
    assert all(entry.streamed for entry in model_env.journal.requests())
    deltas = [[event for event in events if isinstance(event, TextDelta)] for events in runs]
    assert len(deltas[0]) == 9
    assert "".join(event.text for event in deltas[0]) == f"Let me see.{ANSWER}"
    assert comparable(runs[0]) == comparable(runs[1])
    assert {event.replayed for event in deltas[0]} == {False}
    assert {event.replayed for event in deltas[1]} == {True}
    assert results[0].usage.total == results[1].usage.total
    assert results[0].native.context_wrapper.usage == results[1].native.context_wrapper.usage
    turn = next(event for event in reversed(runs[1]) if isinstance(event, TurnFinished))
    assert (turn.usage.input_tokens, turn.usage.cached_tokens, turn.usage.reasoning_tokens) == (100, 40, 3)


async def test_the_first_piece_is_there_before_the_answer_is(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply(ANSWER, pieces=5))
    on_record: list[int] = []

    def listen(event: Event) -> None:
        if isinstance(event, TextDelta | TurnFinished):
            on_record.append(len([*run_folder().rglob("turn.*")]))

    @env.task
    async def chat() -> str:
        return str(await run_agent("Hi?", on_event=listen))

    await run_task(chat)
    assert on_record == [0, 0, 0, 0, 0, 1]


def raw_events(sink: list[Any]) -> Callable[..., Any]:
    """A run as a program by itself makes it, whose raw events are noted."""

    async def run(agent: Agent[Any], question: str) -> str:
        result = Runner.run_streamed(agent, question, run_config=RunConfig(tracing_disabled=True))
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                sink.append(event.data)
        return str(result.final_output)

    return run


async def test_a_program_that_streams_by_itself_gets_the_very_same_raw_events_on_a_replay(
    model_env: ModelServer, run_task: RunTask, make_model: MakeModel
) -> None:
    """Inside of a tool of the agent's, as pre-built code does it; the tool itself is not on record when the run dies."""
    weather(model_env)
    model_env.script("Start", Reply(calls=(call("inner", question="Weather"),)), Reply("done"))
    runs: list[list[Any]] = []
    state = {"crash": True}

    @function_tool
    def look(city: str) -> str:
        """Look."""
        return city

    @env.task
    async def chat() -> str:
        @function_tool(failure_error_function=None)
        async def inner(question: str) -> str:
            """Ask."""
            runs.append([])
            agent = Agent(
                name="inner", model=make_model(), tools=[function_tool(name_override="lookup")(look.__wrapped__)]
            )
            answer = await raw_events(runs[-1])(agent, question)
            if state["crash"]:
                raise Crash("Crash")
            return str(answer)

        return str(await run_agent("Start", tools=[inner], model=make_model()))

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    state["crash"] = False
    assert await run_task(chat) == "done"
    assert model_env.journal.count(user="Weather") == 2
    live, again = runs
    assert len(live) > 15
    assert [event.model_dump() for event in live] == [event.model_dump() for event in again]
    assert [type(event) for event in live] == [type(event) for event in again]
    assert [event.model_fields_set for event in live] == [event.model_fields_set for event in again]


@pytest.mark.parametrize("first", [True, False], ids=["streamed first", "plain first"])
async def test_a_streamed_turn_and_one_that_is_not_answer_from_each_others_record(
    model_env: ModelServer, run_task: RunTask, make_model: MakeModel, first: bool
) -> None:
    weather(model_env)
    state = {"streamed": first, "crash": True}
    results: list[AgentResult[str]] = []
    events: list[list[Event]] = []

    @env.task
    async def chat() -> str:
        events.append([])
        results.append(
            await run_agent(
                "Weather",
                tools=[lookup],
                model=make_model(),
                run_config=TELL_USAGE,
                on_event=events[-1].append if state["streamed"] else None,
                full_result=True,
            )
        )
        if state["crash"]:
            raise Crash("Crash")
        return results[-1].output

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    state.update(streamed=not first, crash=False)
    assert await run_task(chat) == ANSWER
    assert model_env.journal.count() == 2
    one, other = results
    assert one.native.to_input_list() == other.native.to_input_list()
    assert one.usage.total == other.usage.total
    assert other.usage.fresh.requests == 0
    streamed = events[0] if first else events[1]
    assert "".join(event.text for event in streamed if isinstance(event, TextDelta)) == f"Let me see.{ANSWER}"


async def test_a_retry_of_the_runner_and_a_crash_leave_one_leaf(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder, make_model: MakeModel
) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)
    model_env.fault(Fault.error(500, times=2))
    retry = ModelRetrySettings(max_retries=2, backoff={"initial_delay": 0.01}, policy=retry_policies.http_status([500]))
    state = {"crash": True}
    results: list[AgentResult[str]] = []

    @env.task
    async def chat() -> str:
        agent = Agent(name="retrying", model=make_model(), model_settings=ModelSettings(retry=retry))
        results.append(await run_agent("Hi?", agent=agent, on_event=lambda event: None, full_result=True))
        if state["crash"]:
            raise Crash("Crash")
        return results[-1].output

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    state["crash"] = False
    assert await run_task(chat) == "Hello."
    assert [entry.status for entry in model_env.journal.requests()] == [500, 500, 200]
    assert [path.name.rpartition(".")[2] for path in run_folder().rglob("turn.*")] == ["0"]
    assert [len(result.turns) for result in results] == [1, 1]
    assert [result.native.context_wrapper.usage.requests for result in results] == [3, 3]


@pytest.mark.parametrize("fault", [Fault.cut(after=4), Fault.error(500)], ids=["cut", "500"])
async def test_a_stream_that_breaks_is_asked_for_again_by_the_next_attempt(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder, make_model: MakeModel, fault: Fault
) -> None:
    model_env.script(None, Reply(ANSWER, pieces=20), repeat_last=True)
    model_env.fault(fault)
    attempts: list[list[Event]] = []

    @env.task(retries=1)
    async def chat() -> str:
        attempts.append([])
        return str(await run_agent("Hi?", model=make_model(), on_event=attempts[-1].append))

    assert await run_task(chat) == ANSWER
    assert len(attempts) == 2
    assert model_env.journal.count() == 2
    failed = [event for event in attempts[0] if isinstance(event, TurnFinished)]
    assert [bool(event.error) for event in failed] == [True]
    assert len([*run_folder().rglob("turn.*")]) == 1


async def test_an_answer_that_the_provider_gives_up_on_is_no_answer(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    """The stream ends with `response.incomplete`: the SDK's own exception, the event before it, and no record."""
    model_env.script(None, Reply("It is", stop="length"), repeat_last=True)
    seen: list[list[str]] = []

    async def stream() -> str:
        seen.append([])
        result = Runner.run_streamed(Agent(name="a", model=OpenAIResponsesModel("gpt-4.1", AsyncOpenAI())), "Hi?")
        async for event in result.stream_events():
            if event.type == "raw_response_event":
                seen[-1].append(event.data.type)
        return str(result.final_output)

    @env.task
    async def chat() -> str:
        return str(await run_agent("Hi?", on_event=lambda event: None))

    with pytest.raises(Exception, match=r"incomplete") as bare:
        await stream()
    with pytest.raises(Exception, match=r"incomplete") as durable:
        await run_task(chat)
    assert str(bare.value) in str(durable.value)
    assert "response.incomplete" in seen[0]
    assert not [*run_folder().rglob("turn.*")]


async def test_concurrent_runs_of_which_one_is_streamed_do_not_mix(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(
        None, lambda conversation: Reply(f"Answer to {conversation.user}, all of it.", pieces=6), repeat_last=True
    )
    state = {"crash": True}
    told: dict[str, list[Event]] = {}

    async def one(question: str, streamed: bool) -> str:
        told[question] = []
        return str(await run_agent(question, on_event=told[question].append if streamed else None))

    @env.task
    async def both() -> list[str]:
        jobs = [("one", True), ("two", False), ("three", True)]
        if not state["crash"]:
            jobs.reverse()
        answers = dict(zip([job[0] for job in jobs], await asyncio.gather(*(one(*job) for job in jobs)), strict=True))
        if state["crash"]:
            raise Crash("Crash")
        return [answers[name] for name in ("one", "two", "three")]

    expected = [f"Answer to {name}, all of it." for name in ("one", "two", "three")]
    with pytest.raises(Exception, match="Crash"):
        await run_task(both)
    state["crash"] = False
    assert await run_task(both) == expected
    assert model_env.journal.count() == 3
    assert "".join(event.text for event in told["one"] if isinstance(event, TextDelta)) == expected[0]
    assert "".join(event.text for event in told["three"] if isinstance(event, TextDelta)) == expected[2]
    assert {event.run for event in told["one"]}.isdisjoint({event.run for event in told["three"]})


async def test_an_item_of_an_unknown_type_survives_in_a_stream(model_env: ModelServer, run_task: RunTask) -> None:
    item = {"type": "future_thing", "id": "ft_1", "content": [], "made_by": {"whom": [1, 2.5, None]}}
    model_env.script(None, Reply("Hello.", items=(item,)), repeat_last=True)
    seen: list[list[Any]] = []

    @env.task
    async def chat() -> str:
        result = await run_agent("Hi?", on_event=lambda event: None, full_result=True)
        seen.append([output.model_dump(exclude_unset=True) for output in result.native.raw_responses[0].output])
        return str(result.text)

    assert await run_task(chat) == await run_task(chat) == "Hello."
    assert model_env.journal.count() == 1
    assert item in seen[0]
    assert seen[0] == seen[1]


async def test_a_reader_that_leaves_early_leaves_no_record_and_no_task(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script("Start", Reply(calls=(call("inner", question="x"),)), Reply("done"))
    model_env.script("x", Reply(ANSWER, pieces=50))
    left: list[int] = []

    @function_tool(failure_error_function=None)
    async def inner(question: str) -> str:
        """Ask."""
        before = asyncio.all_tasks()
        result = Runner.run_streamed(Agent(name="inner", model="gpt-4.1"), question)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                result.cancel()
        if result.run_loop_task is not None:
            await asyncio.wait([result.run_loop_task])
        left.append(len({task for task in asyncio.all_tasks() - before if not task.done()}))
        return "enough"

    @env.task
    async def chat() -> str:
        return str(await run_agent("Start", tools=[inner]))

    assert await run_task(chat) == "done"
    assert len([*run_folder().rglob("turn.*")]) == 2
    assert left == [0]


async def test_without_durability_and_outside_of_a_task_text_arrives_in_pieces_as_well(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply(ANSWER, pieces=4), repeat_last=True)
    runs: list[list[Event]] = []

    @env.task
    async def chat() -> str:
        runs.append([])
        return str(await run_agent("Hi?", durable=False, on_event=runs[-1].append))

    await run_task(chat)
    await run_task(chat)
    runs.append([])
    await run_agent("Hi?", on_event=runs[-1].append)
    assert [len([event for event in run if isinstance(event, TextDelta)]) for run in runs] == [4, 4, 4]
    assert model_env.journal.count() == 3
    assert not [*run_folder().rglob("turn.*")]


async def test_the_completed_event_carries_usage_and_request_id_on_a_replay(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Start", Reply(calls=(call("inner", question="x"),)), Reply("done"))
    model_env.script("x", Reply("yes", usage=Usage(input=10, output=2)))
    completed: list[Any] = []
    responses: list[Any] = []
    state = {"crash": True}

    @function_tool(failure_error_function=None)
    async def inner(question: str) -> str:
        """Ask."""
        settings = ModelSettings(preserve_raw_usage=True)
        result = Runner.run_streamed(Agent(name="inner", model="gpt-4.1", model_settings=settings), question)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(event.data, ResponseCompletedEvent):
                completed.append(event.data.response)
        responses.append(result.raw_responses[0])
        if state["crash"]:
            raise Crash("Crash")
        return str(result.final_output)

    @env.task
    async def chat() -> str:
        return str(await run_agent("Start", tools=[inner]))

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    state["crash"] = False
    await run_task(chat)
    assert model_env.journal.count(user="x") == 1
    assert responses[0] == responses[1]
    assert responses[0].usage.input_tokens == 10
    assert completed[0].usage.model_dump() == completed[1].usage.model_dump()


async def test_a_stream_without_an_answer_that_a_program_goes_past_replays_without_a_call(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """The tool is no leaf, so that its inside runs again on a resume."""
    model_env.script("Start", Reply(calls=(call("inner", question="x"),)), Reply("Without it, then."))
    model_env.script("^x$", Reply("It is", stop="length"), repeat_last=True)
    state = {"crash": True}
    seen: list[list[str]] = []
    failures: list[str] = []

    async def inner(question: str) -> str:
        """Ask."""
        seen.append([])
        result = Runner.run_streamed(Agent(name="inner", model="gpt-4.1"), question)
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    seen[-1].append(event.data.type)
        except ModelBehaviorError as error:
            failures.append(str(error))
        return "no answer"

    @env.task
    async def chat() -> str:
        answer = await run_agent("Start", tools=[tool(inner, durable=False)])
        if state["crash"]:
            raise Crash("Crash")
        return str(answer)

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    state["crash"] = False
    assert await run_task(chat) == "Without it, then."
    assert model_env.journal.count(user="x") == 1
    assert failures[0] == failures[1]
    assert [kinds[-1] for kinds in seen] == ["response.incomplete"] * 2
