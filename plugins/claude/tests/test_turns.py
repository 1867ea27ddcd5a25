"""Turns: made once, streamed live, answered from records at no cost, and what becomes of the ones that go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import httpx2
import pytest
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, ResultMessage
from pydantic import BaseModel

from flyteplugins.agents.claude import AgentLimitError, _proxy, run_agent, tool
from flyteplugins.agents.claude._proxy import RecordingProxy
from flyteplugins.agents.claude._upstream import Upstream
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, Usage, call
from flyteplugins.agents.core import (
    AgentError,
    AgentResult,
    Budget,
    BudgetExceededError,
    Event,
    TextDelta,
    ToolCallFinished,
    TurnFinished,
)

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("turns")

MODEL = "claude-sonnet-5-5"


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


def a_sum(server: ModelServer) -> None:
    """Two calls side by side, one after them, and an answer."""
    server.script(
        "sum",
        Reply(text="Let me see.", calls=(call("add", a=1, b=2), call("add", a=3, b=4))),
        Reply(calls=(call("add", a=3, b=7),)),
        Reply("It is 10.", usage=Usage(input=90, output=4), pieces=3),
    )


RESULTS: list[AgentResult[Any]] = []
EVENTS: list[Event] = []


@pytest.fixture(autouse=True)
def emptied() -> None:
    RESULTS.clear()
    EVENTS.clear()


@env.task
async def sum_up(message: str, crash: bool = False) -> str:
    result = await run_agent(message, tools=[add], model=MODEL, full_result=True, on_event=EVENTS.append)
    RESULTS.append(result)
    if crash and len(RESULTS) == 1:
        raise Crash
    return result.output


async def test_a_failure_after_the_agent_finished_costs_nothing_on_the_retry(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """No request is made, nothing is paid, and whoever listens is told the same once more, marked."""
    a_sum(model_env)
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(sum_up, message="sum", crash=True)
    assert model_env.journal.per_turn() == {1: 1, 2: 1, 3: 1}
    told = list(EVENTS)
    EVENTS.clear()
    assert await run_task(sum_up, message="sum", crash=True) == "It is 10."
    assert model_env.journal.count() == 3
    first, again = RESULTS
    assert (first.usage.fresh.requests, first.usage.replayed.requests) == (3, 0)
    assert (again.usage.fresh.requests, again.usage.replayed.requests) == (0, 3)
    assert first.usage.fresh_cost
    assert (again.usage.fresh_cost, again.usage.replayed_cost) == (0.0, first.usage.fresh_cost)
    assert isinstance(again.native, ResultMessage)
    assert again.native.total_cost_usd == 0
    assert first.native.total_cost_usd == pytest.approx(first.usage.fresh_cost)
    assert again.usage.replayed == first.usage.fresh

    def texts(events: list[Event]) -> list[tuple[str, str]]:
        return [(event.type, event.text) for event in events if isinstance(event, (TextDelta, TurnFinished))]

    assert texts(EVENTS) == texts(told)
    assert [text for kind, text in texts(told) if kind == "text delta"] == ["Let me see.", "It ", "is ", "10."]
    assert {event.replayed for event in told if isinstance(event, (TextDelta, TurnFinished))} == {False}
    assert {event.replayed for event in EVENTS if isinstance(event, (TextDelta, TurnFinished, ToolCallFinished))} == {
        True
    }


async def test_what_the_model_is_given_is_the_runs_own_and_nothing_else(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """Built-in tools are off, and the tools are there from the first turn on, not to be searched for."""
    a_sum(model_env)
    await run_task(sum_up, message="sum")
    bodies = [entry.body for entry in model_env.journal.requests()]
    offered, *others = {json.dumps([one for one in body["tools"] if not one.get("defer_loading")]) for body in bodies}
    assert others == []
    [offered] = json.loads(offered)
    assert offered["name"] == "mcp__flyte_tools__add"
    assert offered["description"] == "Add two numbers."
    assert offered["input_schema"]["properties"]["a"] == {"type": "integer", "description": "One."}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault.overloaded(times=2), id="529", marks=pytest.mark.thorough),
        pytest.param(Fault.error(500, times=2), id="500"),
        pytest.param(Fault.cut(after=4, times=1), id="cut"),
        pytest.param(Fault.reset(times=1), id="reset", marks=pytest.mark.thorough),
    ],
)
async def test_what_went_wrong_on_the_way_is_never_recorded(
    model_env: ModelServer, run_task: RunTask, fault: Fault
) -> None:
    """The answer is right, and a retry makes no request: it finds answers only."""
    a_sum(model_env)
    model_env.fault(fault, turn=3)
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(sum_up, message="sum", crash=True)
    asked = model_env.journal.per_turn()
    assert asked == {1: 1, 2: 1, 3: 1 + (fault.times or 0)}
    assert RESULTS[0].output == "It is 10."
    assert await run_task(sum_up, message="sum", crash=True) == "It is 10."
    assert model_env.journal.per_turn() == asked


@env.task(retries=2)
async def limited(limit: str) -> str:
    options = ClaudeAgentOptions(max_turns=2) if limit == "turns" else ClaudeAgentOptions(max_budget_usd=0.000001)
    return await run_agent("sum", tools=[add], options=options if limit != "key" else None)


@pytest.mark.parametrize(("limit", "asked"), [("turns", 2), ("budget", 1)])
async def test_a_limit_ends_the_run_for_good(model_env: ModelServer, run_task: RunTask, limit: str, asked: int) -> None:
    a_sum(model_env)
    with pytest.raises(flyte.errors.RuntimeUserError, match=f"max_{limit}") as caught:
        await run_task(limited, limit=limit)
    assert model_env.journal.count() == asked
    assert caught.value.code == "NonRecoverableError"


async def test_a_wrong_key_is_asked_with_once(model_env: ModelServer, run_task: RunTask) -> None:
    """Claude Code by itself would ask for minutes, and Flyte would try twice more."""
    a_sum(model_env)
    model_env.fault(Fault.unauthorized())
    with pytest.raises(flyte.errors.RuntimeUserError, match="401") as caught:
        await run_task(limited, limit="key")
    assert model_env.journal.count() == 1
    assert caught.value.code == "NonRecoverableError"


async def test_a_limit_says_which_outside_of_a_task_as_well(model_env: ModelServer) -> None:
    a_sum(model_env)
    with pytest.raises(AgentLimitError, match="max_turns") as caught:
        await run_agent("sum", tools=[add], max_turns=1)
    assert caught.value.limit == "error_max_turns"
    assert model_env.journal.count() == 1


@env.task(retries=2)
async def on_a_budget() -> str:
    return await run_agent("sum", tools=[add], budget=Budget(turns=1))


async def test_a_budget_ends_the_run_before_the_turn_that_is_too_many(
    model_env: ModelServer, run_task: RunTask
) -> None:
    a_sum(model_env)
    with pytest.raises(flyte.errors.RuntimeUserError, match="turns may be 1"):
        await run_task(on_a_budget)
    assert model_env.journal.count() == 1


async def test_a_budget_that_is_used_up_carries_the_conversation(model_env: ModelServer) -> None:
    a_sum(model_env)
    with pytest.raises(BudgetExceededError) as caught:
        await run_agent("sum", tools=[add], budget=Budget(tool_calls=2))
    assert "Let me see." in json.dumps(caught.value.messages)
    assert caught.value.limit == "tool_calls"


class Answer(BaseModel):
    city: str
    degrees: int


@env.task
async def typed(many: bool, crash: bool) -> str:
    answer: Any
    if many:
        answer = await run_agent("which", output_type=list[Answer])
    else:
        answer = await run_agent("which", output_type=Answer)
    RESULTS.append(answer)
    if crash and len(RESULTS) == 1:
        raise Crash
    return str(answer)


@pytest.mark.parametrize("many", [False, True], ids=["a model", "a list"])
async def test_an_answer_has_the_type_that_was_asked_for(model_env: ModelServer, run_task: RunTask, many: bool) -> None:
    said: Any = {"city": "Oslo", "degrees": 5}
    wanted: Any = Answer(city="Oslo", degrees=5)
    if many:
        said, wanted = {"answer": [said]}, [wanted]
    model_env.script("which", Reply(calls=(call("StructuredOutput", **said),)), Reply("done"))
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(typed, many=many, crash=True)
    asked = model_env.journal.count()
    await run_task(typed, many=many, crash=True)
    assert [wanted, wanted] == RESULTS
    assert model_env.journal.count() == asked


@env.task
async def with_a_subagent(crash: bool = False) -> str:
    helper = AgentDefinition(description="Adds.", prompt="You add numbers.", tools=["mcp__flyte_tools__add"])
    result = await run_agent(
        "delegate", tools=[add], subagents={"adder": helper}, full_result=True, on_event=EVENTS.append
    )
    RESULTS.append(result)
    if crash and len(RESULTS) == 1:
        raise Crash
    return result.output


async def test_the_turns_of_a_subagent_are_recorded(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(
        "delegate",
        Reply(calls=(call("Agent", description="add", prompt="one and two", subagent_type="adder"),)),
        Reply("The helper said 3."),
    )
    model_env.script("one and two", Reply(calls=(call("add", a=1, b=2),)), Reply("It is 3."))
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(with_a_subagent, crash=True)
    assert model_env.journal.count() == 4
    assert await run_task(with_a_subagent, crash=True) == "The helper said 3."
    assert model_env.journal.count() == 4
    assert {event.name for event in EVENTS if isinstance(event, ToolCallFinished)} == {"add", "Agent"}


@pytest.mark.parametrize("told", ["", "0"], ids=["in the foreground", "in the background"])
async def test_a_subagent_of_the_background_reports_and_its_turns_are_recorded(
    model_env: ModelServer, run_task: RunTask, caplog: pytest.LogCaptureFixture, told: str
) -> None:
    """Unless the caller turns that on, with a warning, it runs in the foreground, where a retry finds each turn in its place."""
    env_of_it = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": told} if told else {}

    @env.task
    async def with_a_background(crash: bool = False) -> str:
        helper = AgentDefinition(
            description="Adds.", prompt="You add.", tools=["mcp__flyte_tools__add"], background=True
        )
        options = ClaudeAgentOptions(env=env_of_it)
        result = await run_agent(
            "delegate", tools=[add], subagents={"adder": helper}, options=options, full_result=True
        )
        RESULTS.append(result)
        if crash and len(RESULTS) == 1:
            raise Crash
        return result.output

    model_env.script(
        "^delegate$",
        Reply(calls=(call("Agent", description="add", prompt="one and two", subagent_type="adder"),)),
        Reply("The helper said 3."),
        Reply("The helper is ready."),
        anywhere=True,
    )
    model_env.script("one and two", Reply(calls=(call("add", a=1, b=2),)), Reply("It is 3."))
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(with_a_background, crash=True)
    asked = model_env.journal.count()
    assert "It is 3." in str([entry.body["messages"][-1] for entry in model_env.journal.requests()])
    assert ("run in the foreground" in caplog.text) == (not told)
    assert ("may run in the background" in caplog.text) == bool(told)
    assert await run_task(with_a_background, crash=True) == RESULTS[0].output
    if not told:  # else the report may come before or after another turn
        assert model_env.journal.count() == asked


async def test_a_foreign_request_is_refused(model_env: ModelServer) -> None:
    """Only who knows the path gets through, and the proxy listens on loopback alone."""

    class Unused:
        scope = None

    failures: list[BaseException] = []
    proxy = RecordingProxy(
        Unused(),  # type: ignore[arg-type]  # a refused request never reaches the run
        Upstream(str(model_env.env()["ANTHROPIC_BASE_URL"])),
        fail=failures.append,
        tool_prefix="",
    )
    async with proxy.serving(), httpx2.AsyncClient(trust_env=False) as client:
        address = httpx2.URL(proxy.url)
        assert address.host == "127.0.0.1"
        root = f"http://127.0.0.1:{address.port}"
        guessed = "/" + "x" * (len(address.path) - 1)
        for path in ("/v1/messages", "/", "/wrong/v1/messages", f"{guessed}/v1/messages", address.path):
            response = await client.post(root + path, json={"model": MODEL, "messages": []}, headers={"x-api-key": "k"})
            assert response.status_code == 404, path
        assert model_env.journal.count() == 0
        assert (await client.get(f"{proxy.url}/api/hello")).json() == {"message": "hello"}
    assert failures == []
    async with httpx2.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(root)


async def test_records_hold_no_credential(
    model_env: ModelServer, run_task: RunTask, run_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-a-very-secret-key")
    a_sum(model_env)
    await run_task(sum_up, message="sum")
    files = [path for path in run_folder("").rglob("*") if path.is_file()]
    assert any(b"It is 10." in path.read_bytes() for path in files)
    assert not [path for path in files if b"very-secret" in path.read_bytes()]


async def test_the_machines_proxy_is_not_asked_for_the_runs_own(
    model_env: ModelServer, run_task: RunTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API may be behind the machine's proxy; what is between Claude Code and the recorder never is."""
    a_sum(model_env)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model_env.env()["ANTHROPIC_BASE_URL"].replace("127.0.0.1", "localhost"))
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody is there
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "localhost")
    assert await run_task(sum_up, message="sum") == "It is 10."


async def test_outside_of_a_task_nothing_is_recorded_and_everything_works(model_env: ModelServer) -> None:
    a_sum(model_env)
    result = await run_agent("sum", tools=[add], full_result=True)
    assert (result.output, result.usage.fresh.requests) == ("It is 10.", 3)


async def test_a_long_answer_arrives_whole(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("sum", Reply("x" * (3 * 2**20)))
    assert len(await run_task(sum_up, message="sum")) == 3 * 2**20


ATTEMPTS: list[str] = []


@env.task(retries=2)
async def refused() -> str:
    ATTEMPTS.append("refused")
    return await run_agent("sum", tools=[add])


async def test_a_request_that_is_refused_fails_for_good(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("another", "nothing is scripted for what is asked")
    with pytest.raises(flyte.errors.RuntimeUserError) as caught:
        await run_task(refused)
    assert caught.value.code == "NonRecoverableError"
    assert ATTEMPTS == ["refused"]
    assert {entry.status for entry in model_env.journal.requests()} == {400}


def test_agent_error_is_flytes() -> None:
    assert issubclass(AgentLimitError, AgentError)
    assert issubclass(AgentError, flyte.errors.NonRecoverableError)


async def test_claude_code_is_shown_signs_of_life_while_an_answer_arrives(
    model_env: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyteplugins.agents.claude._proxy._PATIENCE", 0.0)
    sent: list[str] = []

    async def record(send: Any, events: Any) -> None:
        sent.append("\n".join(events))
        await given(send, events)

    given = _proxy._send_events
    monkeypatch.setattr(_proxy, "_send_events", record)
    model_env.script("hello", Reply("Hello to you.", pieces=4))
    told: list[Event] = []
    assert await run_agent("hello", on_event=told.append) == "Hello to you."
    *pings, answer = sent
    assert len(pings) > 4
    assert {ping.split("\n")[0] for ping in pings} == {"event: ping"}
    assert "message_start" in answer
    assert "message_stop" in answer
    assert len([event for event in told if isinstance(event, TextDelta)]) == 4
