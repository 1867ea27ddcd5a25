"""Turns: like those of the bare SDK, made once, streamed or not, and what becomes of the ones that go wrong."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import flyte
import flyte.errors
import httpx2
import pytest
from mistralai.client import Mistral
from mistralai.client.utils import BackoffStrategy, RetryConfig
from mistralai.extra.run.context import RunContext
from mistralai.extra.run.result import RunResult
from pydantic import BaseModel

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, ToolCall, Usage, call
from flyteplugins.agents.core import (
    AgentError,
    AgentResult,
    Budget,
    BudgetExceededError,
    Event,
    HandOff,
    TextDelta,
    ToolCallFinished,
    TurnFinished,
)
from flyteplugins.agents.mistral import run_agent, tool

RunTask = Callable[..., Any]

QUICKLY = RetryConfig("backoff", BackoffStrategy(1, 10, 1, 30_000, jitter_ms=0), retry_connection_errors=True)
"""Repeats at once, so that no test waits."""

BOTH = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
EVERY_MODE = pytest.mark.parametrize(
    ("streaming", "server_state"),
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["whole", "streamed", "whole, server state", "streamed, server state"],
)

env = flyte.TaskEnvironment("turns")


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


def a_sum(server: ModelServer) -> None:
    """Two calls side by side, one after them, and an answer; with text beside a call."""
    server.script(
        "sum",
        Reply(text="Let me see.", calls=(call("add", a=1, b=2), call("add", a=3, b=4))),
        Reply(calls=(call("add", a=3, b=7),), thinking="That is not all.", pieces=3),
        Reply("It is 10.", usage=Usage(input=90, output=4)),
    )


async def bare(server: ModelServer, streaming: bool) -> RunResult:
    """The same with the SDK alone."""
    async with Mistral(api_key="k", server_url=server.mistral_server_url) as client:
        conversations = client.beta.conversations
        context = RunContext(model="mistral-large-latest")
        context.register_func(add)
        if not streaming:
            return cast(
                RunResult, await conversations.run_async(run_ctx=context, inputs="sum", instructions="Be brief.")
            )
        stream = await conversations.run_stream_async(run_ctx=context, inputs="sum", instructions="Be brief.")
        items = [item async for item in stream]
        return cast(RunResult, items[-1])


def bodies(server: ModelServer) -> list[Any]:
    return [entry.body for entry in server.journal.requests()]


def seen(result: RunResult) -> list[Any]:
    """What a result shows of a run, without what the server made up."""
    entries = [entry.model_dump(mode="json", exclude={"id", "created_at", "completed_at"}) for entry in result.entries]
    return [entry | {"type": entry["type"]} for entry in entries]


@EVERY_MODE
async def test_a_run_comes_out_as_with_the_bare_sdk_and_once_more_from_its_records(
    model_env: ModelServer, run_task: RunTask, streaming: bool, server_state: bool
) -> None:
    """With server state the requests are the bare SDK's, byte for byte; without it the server sees the same conversation."""
    a_sum(model_env)
    expected = await bare(model_env, streaming)
    asked = bodies(model_env)
    model_env.journal.clear()
    results: list[AgentResult[str]] = []

    @env.task
    async def ask() -> str:
        context = RunContext(model="mistral-large-latest")
        context.register_func(add)
        result = await run_agent(
            "sum",
            agent=context,
            instructions="Be brief.",
            streaming=streaming,
            server_state=server_state,
            full_result=True,
        )
        results.append(result)
        return str(result.output)

    assert await run_task(ask) == "It is 10."
    now = bodies(model_env)
    assert len(now) == len(asked) == 3
    if server_state:
        assert [_meant(body) for body in now] == [_meant(body) for body in asked]
    else:
        assert all(body["store"] is False for body in now)
        assert now[-1]["tools"] == asked[0]["tools"]
        assert [entry["type"] for entry in now[-1]["inputs"]][:4] == [
            "message.input", "message.output", "function.call", "function.call",
        ]  # fmt: skip
    assert await run_task(ask) == "It is 10."
    assert model_env.journal.count() == 3
    live, replayed = results
    assert seen(live.native) == seen(expected)
    assert seen(replayed.native) == seen(live.native)
    assert replayed.native.conversation_id == live.native.conversation_id
    assert (live.usage.fresh.requests, replayed.usage.fresh.requests) == (3, 0)
    assert replayed.usage.fresh.total_tokens == 0
    assert replayed.usage.replayed == live.usage.fresh
    assert live.usage.fresh.total_tokens > 94


def _meant(body: dict[str, Any]) -> dict[str, Any]:
    """A body without fields that say what is so anyway, and ids that the server has made up."""
    body = {name: value for name, value in body.items() if value is not None and value != []}
    body.pop("store", None)
    body.pop("handoff_execution", None)
    inputs = body["inputs"]
    body["inputs"] = [{**entry, "tool_call_id": ""} for entry in inputs] if isinstance(inputs, list) else inputs
    for entry in body["inputs"]:
        entry.pop("object", None)
    return body


async def test_the_answer_is_the_last_message_and_not_all_of_them(model_env: ModelServer) -> None:
    a_sum(model_env)
    assert await run_agent("sum", tools=[add]) == "It is 10."


@pytest.mark.parametrize("first", [False, True], ids=["whole first", "streamed first"])
async def test_a_turn_is_the_same_leaf_streamed_or_not(model_env: ModelServer, run_task: RunTask, first: bool) -> None:
    """Thinking and its signature included, which the strict server compares with what it sent."""
    a_sum(model_env)
    state: dict[str, Any] = {"streaming": first, "max_turns": 2}
    events: list[Event] = []

    @env.task
    async def ask() -> str:
        return str(await run_agent("sum", tools=[add], on_event=events.append, **state))

    with pytest.raises(flyte.errors.RuntimeUserError, match="took 2 turns"):
        await run_task(ask)
    state.update(streaming=not first, max_turns=3)
    events.clear()
    assert await run_task(ask) == "It is 10."
    assert model_env.journal.per_turn(user="sum") == {1: 1, 2: 1, 3: 1}
    assert [event.replayed for event in events if isinstance(event, TurnFinished)] == [True, True, False]


async def test_streamed_text_arrives_in_pieces_and_again_when_it_is_replayed(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("story", Reply("Once upon a time there was a fox.", pieces=5))
    events: list[Event] = []

    @env.task
    async def ask() -> str:
        return str(await run_agent("story", streaming=True, on_event=events.append))

    for replayed in (False, True):
        events.clear()
        await run_task(ask)
        deltas = [event for event in events if isinstance(event, TextDelta)]
        assert "".join(event.text for event in deltas) == "Once upon a time there was a fox."
        assert len(deltas) > 2
        assert all(event.replayed == replayed for event in deltas)
    assert model_env.journal.count() == 1


@EVERY_MODE
@pytest.mark.parametrize("fault", [Fault.rate_limit(), Fault.error(500), Fault.error(503), Fault.reset()], ids=str)
async def test_a_request_that_the_provider_did_not_answer_is_repeated_in_place(
    model_env: ModelServer, fault: Fault, streaming: bool, server_state: bool, caplog: pytest.LogCaptureFixture
) -> None:
    a_sum(model_env)
    model_env.fault(fault, turn=1)
    model_env.fault(fault, turn=3)
    answer = await run_agent(
        "sum", tools=[add], streaming=streaming, server_state=server_state, retries=QUICKLY, full_result=True
    )
    assert answer.text == "It is 10."
    assert [turn.error for turn in answer.turns] == [None] * 3
    assert model_env.journal.per_turn(user="sum") == {1: 2, 2: 1, 3: 2}
    assert caplog.text.count("Mistral is asked again, for the first time: ") == 2


@BOTH
async def test_a_request_that_no_repetition_mends_is_made_once_and_fails_for_good(
    model_env: ModelServer, run_task: RunTask, streaming: bool
) -> None:
    model_env.script(None, Reply("never"))
    model_env.fault(Fault.unauthorized())

    @env.task(retries=2)
    async def ask() -> str:
        return str(await run_agent("Hi", streaming=streaming))

    with pytest.raises(flyte.errors.RuntimeUserError, match="Status 401"):
        await run_task(ask)
    assert model_env.journal.count() == 1


async def test_retries_that_are_off_leave_the_failure_to_the_next_attempt(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, Reply("Hello."))
    model_env.fault(Fault.error(500))
    off = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), retry_connection_errors=False)

    @env.task(retries=1)
    async def ask() -> str:
        return str(await run_agent("Hi", retries=off))

    assert await run_task(ask) == "Hello."
    assert [entry.status for entry in model_env.journal.requests()] == [500, 200]


@pytest.mark.parametrize("server_state", [False, True], ids=["stateless", "server state"])
async def test_a_stream_that_breaks_is_no_answer(model_env: ModelServer, run_task: RunTask, server_state: bool) -> None:
    """The next attempt asks again, or finds the answer in the conversation's history."""
    a_sum(model_env)
    model_env.fault(Fault.cut(after=2), turn=2)

    @env.task(retries=1)
    async def ask() -> str:
        return str(await run_agent("sum", tools=[add], streaming=True, server_state=server_state))

    assert await run_task(ask) == "It is 10."
    asked = model_env.journal.per_turn(user="sum")
    assert asked == ({1: 1, 2: 1, 3: 1} if server_state else {1: 1, 2: 2, 3: 1})


async def test_an_error_in_the_middle_of_a_stream_is_no_answer(model_env: ModelServer) -> None:
    """The SDK's own runner takes what came before it for the answer."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        started = 'data: {"type": "conversation.response.started", "conversation_id": "conv_1"}'
        piece = (
            'data: {"type": "message.output.delta", "id": "msg_1", "content": "Half an", "role": "assistant", '
            '"output_index": 0}'
        )
        failed = 'data: {"type": "conversation.response.error", "message": "Overloaded", "code": 3505}'
        names = ("conversation.response.started", "message.output.delta", "conversation.response.error")
        text = "".join(f"event: {name}\n{data}\n\n" for name, data in zip(names, (started, piece, failed), strict=True))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=text)

    http = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
    client = Mistral(api_key="k", async_client=http)
    with pytest.raises(ConnectionError, match=r"Overloaded \(code 3505\)"):
        await run_agent("Hi", client=client, streaming=True)


async def test_an_event_of_a_type_that_the_sdk_does_not_know_is_kept(run_task: RunTask) -> None:
    asked: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        events: list[dict[str, Any]] = [
            {"type": "conversation.response.started", "conversation_id": "conv_1"},
            {"type": "future.thing", "weight": 3},
            {"type": "message.output.delta", "id": "m", "content": "Hi.", "role": "assistant", "output_index": 0},
            {"type": "conversation.response.done", "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
        ]  # fmt: skip
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text=text)

    @env.task
    async def ask() -> str:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
        return str(await run_agent("Hi", client=Mistral(api_key="k", async_client=http), streaming=True))

    assert await run_task(ask) == await run_task(ask) == "Hi."
    assert len(asked) == 1


class Weather(BaseModel):
    city: str
    degrees: int


@dataclass
class Place:
    city: str


@BOTH
@pytest.mark.parametrize(
    ("output_type", "said", "expected"),
    [
        (Weather, '{"city": "Oslo", "degrees": 3}', Weather(city="Oslo", degrees=3)),
        (Place, '{"answer": {"city": "Oslo"}}', Place("Oslo")),
        (list[int], '{"answer": [1, 2]}', [1, 2]),
    ],
    ids=["model", "dataclass", "list"],
)
async def test_an_answer_has_the_type_that_was_asked_for(
    model_env: ModelServer, output_type: Any, said: str, expected: object, streaming: bool
) -> None:
    model_env.script("Oslo", Reply(said))
    arguments = {"temperature": 0.1}
    answer = await run_agent("Oslo", output_type=output_type, streaming=streaming, completion_args=arguments)
    assert answer == expected
    sent = model_env.journal.requests()[0].body["completion_args"]
    assert (sent["temperature"], sent["response_format"]["type"]) == (0.1, "json_schema")
    assert arguments == {"temperature": 0.1}


async def test_an_answer_that_does_not_fit_its_type_fails_for_good(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("Oslo", Reply('{"city": "Oslo"}'))

    @env.task(retries=2)
    async def ask() -> str:
        return str(await run_agent("Oslo", output_type=Weather))

    with pytest.raises(flyte.errors.RuntimeUserError, match="degrees"):
        await run_task(ask)
    assert model_env.journal.count() == 1


async def test_a_run_that_does_not_come_to_an_end_is_stopped_at_its_limit(model_env: ModelServer) -> None:
    model_env.script("loop", Reply(calls=(call("add", a=1, b=1),)), repeat_last=True)
    with pytest.raises(AgentError, match="took 3 turns and has no answer"):
        await run_agent("loop", tools=[add], max_turns=3)
    assert model_env.journal.count() == 3


# -- agents on the server


def on_server(server: ModelServer) -> Mistral:
    """A client to make agents with."""
    return Mistral(api_key="k", server_url=server.mistral_server_url)


def counted(server: ModelServer, asked: list[tuple[str, str]]) -> Mistral:
    """A client, for one event loop, whose requests are written down."""

    async def note(request: httpx2.Request) -> None:
        asked.append((request.method, request.url.path.removeprefix("/mistral/v1/").split("/")[0]))

    http = httpx2.AsyncClient(event_hooks={"request": [note]})
    return Mistral(api_key="k", server_url=server.mistral_server_url, async_client=http)


@EVERY_MODE
async def test_an_agent_on_the_server_is_asked_and_never_changed(
    model_env: ModelServer, run_task: RunTask, streaming: bool, server_state: bool
) -> None:
    """It is read once, not written (no PATCH), and on a replay it is not even read."""
    a_sum(model_env)
    agents = on_server(model_env).beta.agents
    agent = await agents.create_async(model="mistral-small-latest", name="counter", instructions="Be brief.")
    asked: list[tuple[str, str]] = []

    @env.task
    async def ask() -> str:
        return str(
            await run_agent(
                "sum",
                agent_id=agent.id,
                tools=[add],
                client=counted(model_env, asked),
                streaming=streaming,
                server_state=server_state,
            )
        )

    assert await run_task(ask) == await run_task(ask) == "It is 10."
    assert asked == [("GET", "agents"), *[("POST", "conversations")] * 3]
    after = await agents.get_async(agent_id=agent.id)
    assert (after.version, after.tools or []) == (0, [])


async def test_a_tool_that_the_agent_on_the_server_declares_is_not_declared_again(model_env: ModelServer) -> None:
    a_sum(model_env)
    client = on_server(model_env)
    declared: Any = RunContext(model="m")
    declared.register_func(add)
    agent = await client.beta.agents.create_async(model="m", name="counter", tools=declared.get_tools())
    assert await run_agent("sum", agent=agent, tools=[add], client=client) == "It is 10."
    assert all("tools" not in body or body["tools"] is None for body in bodies(model_env))


@EVERY_MODE
async def test_agents_on_the_server_hand_over(
    model_env: ModelServer, run_task: RunTask, streaming: bool, server_state: bool
) -> None:
    model_env.script("bill", Reply(calls=(call("transfer_to_billing"),)), model="large")
    model_env.script("bill", Reply(calls=(call("add", a=1, b=2),)), Reply("You owe 3."), model="small", anywhere=True)
    client = on_server(model_env)
    add_tool: Any = RunContext(model="m")
    add_tool.register_func(add)
    billing = await client.beta.agents.create_async(model="small", name="billing", tools=add_tool.get_tools())
    triage = await client.beta.agents.create_async(model="large", name="triage", handoffs=[billing.id])
    events: list[Event] = []

    @env.task
    async def ask() -> str:
        return str(
            await run_agent(
                "bill",
                agent=triage,
                tools=[add],
                client=client,
                on_event=events.append,
                streaming=streaming,
                server_state=server_state,
            )
        )

    for _ in range(2):
        events.clear()
        assert await run_task(ask) == "You owe 3."
        assert [(event.source, event.target) for event in events if isinstance(event, HandOff)] == [
            ("triage", "billing")
        ]


# -- tools


async def test_sync_tools_run_beside_each_other(model_env: ModelServer) -> None:
    meeting = threading.Barrier(2, timeout=30)

    def wait(name: str) -> str:
        """Wait for the other."""
        meeting.wait()
        return name

    model_env.script("meet", Reply(calls=(call("wait", name="a"), call("wait", name="b"))), Reply("met"))
    assert await run_agent("meet", tools=[wait]) == "met"
    results = [entry["result"] for entry in bodies(model_env)[1]["inputs"] if entry["type"] == "function.result"]
    assert results == ["a", "b"]


@EVERY_MODE
async def test_a_call_that_cannot_be_made_is_told_to_the_model(
    model_env: ModelServer, streaming: bool, server_state: bool
) -> None:
    """The SDK's own runner ends the conversation with an empty request, or raises."""
    model_env.script(
        "try",
        Reply(calls=(ToolCall("subtract", {"a": 1}, unlisted=True), ToolCall("add", '{"a": 1', unlisted=True))),
        lambda conversation: Reply(" | ".join(result.text for result in conversation.results)),
    )
    finished: list[ToolCallFinished] = []

    def watch(event: Event) -> None:
        if isinstance(event, ToolCallFinished):
            finished.append(event)

    said = await run_agent("try", tools=[add], on_event=watch, streaming=streaming, server_state=server_state)
    assert "there is no tool subtract. There are: add." in said
    assert "The arguments are not valid JSON" in said.split(" | ")[1]
    assert all(event.error for event in finished)
    assert len(finished) == 2


async def test_what_a_built_in_tool_did_goes_back_to_a_server_that_keeps_nothing(model_env: ModelServer) -> None:
    executed = {"type": "tool.execution", "name": "web_search", "arguments": '{"query": "x"}', "info": {"hits": 2}}
    model_env.script("search", Reply(items=(executed,), calls=(call("add", a=1, b=1),)), Reply("done"))
    for streaming in (False, True):
        assert await run_agent("search", tools=[{"type": "web_search"}, add], streaming=streaming) == "done"
        sent = bodies(model_env)[-1]
        assert [tool["type"] for tool in sent["tools"]] == ["web_search", "function"]
        [again] = [entry for entry in sent["inputs"] if entry["type"] == "tool.execution"]
        assert (again["arguments"], again["info"]) == (executed["arguments"], executed["info"])


# -- the caller's objects


@BOTH
async def test_a_shared_client_serves_runs_at_once_and_is_unchanged_afterwards(
    model_env: ModelServer, run_task: RunTask, streaming: bool
) -> None:
    model_env.script(None, lambda conversation: Reply(f"you said {conversation.user}"), repeat_last=True)
    client = Mistral(api_key="k", server_url=model_env.mistral_server_url)
    conversations = client.beta.conversations
    before = (dict(vars(conversations)), dict(vars(client.sdk_configuration)))
    http = client.sdk_configuration.async_client

    @env.task
    async def ask() -> list[str]:
        words = [f"word {number}" for number in range(5)]
        runs = (run_agent(word, client=client, streaming=streaming) for word in words)
        return [str(answer) for answer in await asyncio.gather(*runs)]

    assert await run_task(ask) == [f"you said word {number}" for number in range(5)]
    assert client.beta.conversations is conversations
    assert (dict(vars(conversations)), dict(vars(client.sdk_configuration))) == before
    assert client.sdk_configuration.async_client is http
    assert (await client.beta.conversations.start_async(model="m", inputs="bare")).outputs[0].content == "you said bare"  # type: ignore[union-attr]


async def test_the_callers_run_context_and_arguments_stay_as_they_were(model_env: ModelServer) -> None:
    a_sum(model_env)
    context = RunContext(model="mistral-large-latest")
    context.register_func(add)
    before = (dict(context._callable_tools), context.conversation_id, context.request_count)
    entries = [{"type": "message.input", "role": "user", "content": "sum"}]
    assert await run_agent(entries, agent=context) == "It is 10."
    assert (dict(context._callable_tools), context.conversation_id, context.request_count) == before
    assert entries == [{"type": "message.input", "role": "user", "content": "sum"}]


async def test_a_tool_of_ours_can_be_registered_in_a_run_context(model_env: ModelServer, run_task: RunTask) -> None:
    a_sum(model_env)
    ran: list[int] = []

    @env.task(cache="disable")
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        ran.append(a)
        return a + b

    plus: Any = tool(add)

    @env.task
    async def ask() -> str:
        context = RunContext(model="mistral-large-latest")
        context.register_func(plus)
        return str(await run_agent("sum", agent=context))

    assert await run_task(ask) == await run_task(ask) == "It is 10."
    assert sorted(ran) == [1, 3, 3]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"model": "m", "agent_id": "ag_1"}, ValueError, "agent_id= together with model"),
        ({"agent": RunContext(model="m"), "model": "m"}, ValueError, "agent= together with model"),
        ({"conversation_id": "c", "instructions": "x"}, ValueError, "conversation_id= together with instructions"),
        ({"conversation_id": "c", "memory_key": "k"}, ValueError, "conversation_id= and memory_key="),
        ({"conversation_id": "c", "tools": [{"type": "web_search"}]}, ValueError, "a conversation keeps its tools"),
        ({"metadata": {"a": 1}}, ValueError, "metadata= for a conversation that the server does not keep"),
        ({"agent_version": 2}, ValueError, "agent_version= without an agent"),
        ({"tools": [add, add]}, ValueError, "two tools named 'add'"),
        ({"tools": [3]}, TypeError, "3 is a int"),
        ({"agent": "triage"}, TypeError, "agent is a str"),
        ({"client": "me"}, TypeError, "client is a str"),
    ],
)
async def test_arguments_that_make_no_sense_are_refused_with_a_sentence(
    model_env: ModelServer, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await run_agent("Hi", **arguments)
    assert model_env.journal.count() == 0


async def test_a_missing_key_is_said_so_and_not_retried(
    model_env: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MISTRAL_API_KEY")
    with pytest.raises(AgentError, match="MISTRAL_API_KEY is not set"):
        await run_agent("Hi")
    monkeypatch.setenv("OTHER", "k")
    model_env.script(None, Reply("Hello."))
    assert await run_agent("Hi", api_key_env_var="OTHER") == "Hello."


# -- budgets


@EVERY_MODE
async def test_a_budget_stops_the_run_with_the_whole_conversation_so_far(
    model_env: ModelServer, run_task: RunTask, streaming: bool, server_state: bool
) -> None:
    a_sum(model_env)

    with pytest.raises(BudgetExceededError, match="turns may be 2") as caught:
        await run_agent(
            "sum", tools=[add], budget=Budget(turns=2), streaming=streaming, server_state=server_state, max_turns=None
        )
    said = cast("list[dict[str, Any]]", caught.value.messages)
    assert [entry["type"] for entry in said[:4]] == [
        "message.input",
        "message.output",
        "function.call",
        "function.call",
    ]
    assert [entry["type"] for entry in said].count("function.result") == 3
    assert model_env.journal.count() == 2


async def test_turns_cost_what_the_price_list_says(model_env: ModelServer, run_task: RunTask) -> None:
    a_sum(model_env)
    costs: list[float | None] = []

    def watch(event: Event) -> None:
        if isinstance(event, TurnFinished):
            costs.append(event.cost)

    await run_agent("sum", tools=[add], on_event=watch)
    assert all(cost is not None and cost > 0 for cost in costs)


async def test_an_address_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="The server's address is 'not a url'; give one that begins with https://"):
        await run_agent("Hi", model="mistral-large-latest", server_url="not a url")
