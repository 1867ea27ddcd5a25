"""One agent run: its identity, its events and usage, and what its errors mean for the attempt."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import flyte
import flyte.errors
import pytest

from flyteplugins.agents.core import (
    JSON,
    AgentError,
    AgentResult,
    AgentTool,
    ErrorClass,
    JsonCodec,
    RecordError,
    TurnFinished,
    UnserializableError,
    Usage,
    agent_run,
    current_run,
)

if TYPE_CHECKING:
    from .conftest import Attempts, Model, StartAgent

env = flyte.TaskEnvironment("core-run-tests")

_ATTEMPTS: list[Any] = []


# identity


async def test_what_a_run_is_tells_it_from_others(attempt: Attempts, start_agent: StartAgent) -> None:
    async def body() -> list[str]:
        ids: list[str] = []
        for options in (
            {},
            {},
            {"name": "other"},
            {"input": "other"},
            {"input": [{"role": "user", "content": "Hello"}]},
            {"memory_key": "alice"},
            {"configuration": {"model": "other"}},
        ):
            async with start_agent(**options) as run:
                ids.append(run.id)
        return ids

    first = await attempt(body)
    assert len(set(first)) == 7
    assert await attempt(body) == first


async def test_a_nested_run_belongs_to_the_call_that_made_it(attempt: Attempts, start_agent: StartAgent) -> None:
    ids: list[str] = []

    async def delegate(number: int) -> str:
        """Ask another agent."""
        async with start_agent("inner") as inner:
            ids.append(inner.id)
            assert current_run() is inner
        return ""

    async def body() -> None:
        for _ in range(2):
            async with start_agent("outer") as outer:
                await AgentTool(delegate).call({"number": 1})
                await AgentTool(delegate).call({"number": 2})
                assert current_run() is outer
                async with start_agent("inner") as inner:
                    ids.append(inner.id)
            assert current_run() is None

    await attempt(body)
    assert len(ids) == len(set(ids)) == 6


async def test_nested_runs_of_parallel_tools_do_not_swap_answers_in_another_order(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    drawn: list[str] = []
    hands: dict[str, list[JSON]] = {}
    both_have_drawn = asyncio.Event()

    async def draw() -> JSON:
        drawn.append(f"card {len(drawn)}")
        return drawn[-1]

    async def hand(who: str) -> str:
        """Let an agent draw two cards.

        Args:
            who: Whose hand.
        """
        async with start_agent("inner") as inner:
            hands[who] = []
            for number in range(2):
                fields = {"question": "draw", "number": number}
                hands[who].append((await inner.recorder.record("turn", fields, draw, codec=_CODEC)).value)
            if not attempt.died:
                if sum(map(len, hands.values())) == 4:
                    both_have_drawn.set()
                await asyncio.Event().wait()  # the outer calls have not ended when the process dies
            return ""

    def body(order: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            async with start_agent("outer"):
                calls = [asyncio.create_task(AgentTool(hand).call({"who": who})) for who in order]
                if not attempt.died:
                    await both_have_drawn.wait()
                    for call in calls:
                        call.cancel()
                    await asyncio.gather(*calls, return_exceptions=True)
                    raise killed
                await asyncio.gather(*calls)

        return run

    await attempt(body("xy"))
    before = dict(hands)
    await attempt(body("yx"))
    assert hands == before
    assert len(drawn) == 4


class _Plain:
    def encode(self, value: JSON) -> JSON:
        return value

    def decode(self, payload: JSON) -> JSON:
        return payload


_CODEC = _Plain()


async def test_concurrent_runs_are_each_current_in_their_own_task(attempt: Attempts, start_agent: StartAgent) -> None:
    async def one(name: str, both: asyncio.Barrier) -> bool:
        async with start_agent(name) as run:
            await both.wait()
            return current_run() is run

    async def body() -> bool:
        both = asyncio.Barrier(2)
        return all(await asyncio.gather(one("a", both), one("b", both)))

    assert await attempt(body)


async def test_outside_of_a_task_a_runs_id_is_its_name(start_agent: StartAgent) -> None:
    async with start_agent("assistant", object()) as run:  # an input that nobody has to write down
        assert run.id == "assistant"
        assert run.scope is None
        assert current_run() is run
    assert current_run() is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"max_concurrent_tools": 0}, "max_concurrent_tools is 0; give 1 or more"),
        ({"on_tool_error": "ignore"}, "on_tool_error is 'ignore'; give 'model' or 'raise'"),
        ({"observability": "all"}, "observability is 'all'; give True, False or 'structure'"),
    ],
)
async def test_a_bad_argument_is_an_error_that_says_what_to_give(
    start_agent: StartAgent, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        async with start_agent(**options):
            pass


# usage and result


async def test_the_result_keeps_fresh_and_replayed_turns_apart(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    async def add(one: int, two: int) -> int:
        """Add."""
        return one + two

    async def body() -> AgentResult[str]:
        async with start_agent() as run:
            for number in range(3):
                recorded = await model.ask(run.recorder, f"turn {number}")
                usage = Usage(requests=1, input_tokens=10, output_tokens=number, cached_tokens=5, reasoning_tokens=1)
                event = TurnFinished(
                    run=run.id,
                    agent="agent",
                    model="gpt-x",
                    text=str(recorded.value),
                    tool_calls=("add",),
                    usage=usage,
                    seconds=recorded.seconds,
                    replayed=recorded.replayed,
                )
                await run.emit(event)
                await AgentTool(add).call({"one": number, "two": 1}, call_id=f"call {number}")
                if number == 1 and not attempt.died:
                    raise killed
            return run.result("the answer", "the answer", object())

    await attempt(body)
    result = await attempt(body)
    assert result.usage.replayed == Usage(2, 20, 1, 10, 2)
    assert result.usage.fresh == Usage(1, 10, 2, 5, 1)
    assert result.usage.total == Usage(3, 30, 3, 15, 3)
    assert result.usage.total.total_tokens == 33
    assert [turn.replayed for turn in result.turns] == [True, True, False]
    assert [(call.arguments, call.result) for call in result.tool_calls] == [
        ({"one": number, "two": 1}, str(number + 1)) for number in range(3)
    ]
    assert [call.replayed for call in result.tool_calls] == [True, True, False]
    values = json.loads(json.dumps(result.as_dict()))
    assert values["output"] == "the answer"
    assert values["usage"]["fresh"]["input_tokens"] == 10
    assert values["turns"][2]["text"] == "answer to turn 2"
    assert values["tool_calls"][0]["name"] == "add"
    assert "native" not in values
    assert Usage.from_dict(values["usage"]["replayed"]) == result.usage.replayed


async def test_usage_that_a_provider_does_not_tell_is_zero() -> None:
    assert Usage.from_dict({"input_tokens": None, "output_tokens": 3, "other": 5}) == Usage(output_tokens=3)


# errors


def fails_now(error: BaseException) -> ErrorClass:
    return ErrorClass.FAIL_NOW if isinstance(error, PermissionError) else ErrorClass.RETRY_ATTEMPT


async def test_an_error_that_no_attempt_can_change_becomes_non_recoverable(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    cause = PermissionError("bad key")

    async def body() -> None:
        async with start_agent(classify=fails_now):
            raise cause

    with pytest.raises(flyte.errors.NonRecoverableError, match="PermissionError: bad key") as caught:
        await attempt(body)
    assert caught.value.__cause__ is cause


async def test_an_error_that_another_attempt_may_not_have_passes_as_it_is(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    error = ConnectionError("the provider is away")

    async def body() -> None:
        async with start_agent(classify=fails_now):
            raise error

    with pytest.raises(ConnectionError) as caught:
        await attempt(body)
    assert caught.value is error


async def test_outside_of_a_task_every_error_is_the_sdks_own(start_agent: StartAgent) -> None:
    with pytest.raises(PermissionError, match="bad key"):
        async with start_agent(classify=fails_now):
            raise PermissionError("bad key")


@env.task(retries=2)
async def fails(kind: str) -> str:
    _ATTEMPTS.append(kind)
    async with agent_run(
        framework="test",
        name="agent",
        input=object() if kind == "input" else "Hello",
        memory_key=None,
        configuration={},
        classify=fails_now,
        observability=False,
    ) as run:
        if kind == "key":
            raise PermissionError("bad key")
        if kind == "request":

            async def call() -> JSON:
                return None

            await run.recorder.record("turn", {"messages": [object()]}, call, codec=_CODEC)
        if kind == "wrapped":
            try:
                raise AgentError("the tool failed")
            except AgentError as error:
                raise RuntimeError("Error running tool") from error
    return ""


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("key", "bad key"),
        ("request", r"messages\[0\]"),
        ("wrapped", "the tool failed"),
        pytest.param(
            "input",
            "input",
        ),
    ],
)
async def test_what_no_attempt_can_change_fails_the_task_at_once(
    run_task: Callable[..., Awaitable[Any]], kind: str, message: str
) -> None:
    _ATTEMPTS.clear()
    with pytest.raises(flyte.errors.RuntimeUserError, match=message) as caught:
        await run_task(fails, kind=kind)
    assert caught.value.code == "NonRecoverableError"
    assert len(_ATTEMPTS) == 1


async def test_an_error_of_the_runtime_that_the_sdk_wrapped_is_found(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def body() -> None:
        async with start_agent():
            try:
                raise RecordError("the record x is damaged")
            except RecordError as error:
                raise ExceptionGroup("tools failed", [ValueError("other"), RuntimeError(str(error))]) from error

    with pytest.raises(AgentError, match="the record x is damaged"):
        await attempt(body)


async def test_an_error_that_was_handled_before_the_run_is_not_its_own(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def body() -> None:
        try:
            async with start_agent("one"):
                raise AgentError("over budget")
        except AgentError:
            async with start_agent("two"):
                raise ConnectionError("the provider is away")  # noqa: B904 - in another agent run

    with pytest.raises(ConnectionError, match="the provider is away"):
        await attempt(body)


async def test_an_unserializable_outcome_fails_now_and_names_the_path(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def body() -> None:
        async with start_agent():
            raise UnserializableError("output[1]", "it is a socket")

    with pytest.raises(AgentError, match=r"output\[1\]"):
        await attempt(body)


async def test_cancelling_a_run_passes_and_lets_the_next_equal_one_continue_it(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> JSON:
        try:
            async with asyncio.timeout(None) as limit, start_agent() as run:
                await model.ask(run.recorder, "a")
                limit.reschedule(asyncio.get_running_loop().time())
                await asyncio.Event().wait()
        except TimeoutError:
            assert current_run() is None
            async with start_agent() as run:
                return [await model.say(run.recorder, question) for question in "ab"]
        return None

    assert await attempt(body) == ["answer to a", "answer to b"]
    assert model.asked == ["a", "b"]


@env.task(retries=1)
async def succeeds_the_second_time() -> str:
    _ATTEMPTS.append("attempt")
    async with agent_run(
        framework="test",
        name="agent",
        input="Hello",
        memory_key=None,
        configuration={},
        classify=fails_now,
        observability=False,
    ) as run:

        async def call() -> JSON:
            _ATTEMPTS.append("turn")
            return "answer"

        answer = str((await run.recorder.record("turn", {}, call, codec=_CODEC)).value)
    if _ATTEMPTS.count("attempt") == 1:
        raise ConnectionError("after the agent")
    return answer


async def test_a_retry_of_the_task_in_one_process_replays_too(run_task: Callable[..., Awaitable[Any]]) -> None:
    _ATTEMPTS.clear()
    assert await run_task(succeeds_the_second_time) == "answer"
    assert _ATTEMPTS == ["attempt", "turn", "attempt"]


# what is said on a laptop


async def test_a_run_says_once_how_it_is_resumed_and_then_that_it_goes_on(
    attempt: Attempts,
    start_agent: StartAgent,
    model: Model,
    killed: type[BaseException],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/flyte", "run", "--local", "chat.py", "chat", "--message", "it's me"])

    async def body() -> None:
        for name in ("one", "two"):
            async with start_agent(name, observability=True) as run:
                await model.ask(run.recorder, "q")
        if not attempt.died:
            raise killed

    await attempt(body)
    first = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[flyte-agents]")]
    assert len(first) == 1
    assert first[0].endswith(
        f"""go on with:  flyte run --name {attempt.name} --local chat.py chat --message 'it'"'"'s me'"""
    )
    await attempt(body)
    second = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[flyte-agents]")]
    assert len(second) == 1
    assert f"Run {attempt.name} goes on." in second[0]
    assert "1 turn" in second[0]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["run", "--local", "--name", "mine", "a.py", "t"], "flyte run --local --name mine a.py t"),
        (["run", "--name=mine", "a.py", "t"], "flyte run --name=mine a.py t"),
        (["--config", "c.yaml", "run", "--local", "a.py", "t"], "flyte --config c.yaml run --name NAME --local a.py t"),
    ],
)
async def test_the_command_to_resume_keeps_a_name_that_was_given(
    attempt: Attempts,
    start_agent: StartAgent,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    command: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["flyte", *arguments])

    async def body() -> None:
        async with start_agent(observability=True):
            pass

    await attempt(body)
    assert command.replace("NAME", attempt.name) in capsys.readouterr().err


async def test_a_program_that_starts_runs_itself_is_told_the_call(
    attempt: Attempts, start_agent: StartAgent, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["main.py", "run"])

    async def body() -> None:
        async with start_agent(observability=True):
            pass

    await attempt(body)
    assert f"flyte.with_runcontext(mode='local', name='{attempt.name}')" in capsys.readouterr().err


async def test_the_tools_of_a_server_are_listed_once_per_time_that_they_are_asked_for(
    attempt: Any, start_agent: Any
) -> None:
    asked: list[str] = []

    async def body() -> list[Any]:
        async with start_agent() as run:

            def ask(number: int) -> Any:
                async def call() -> Any:
                    asked.append(f"{number}")
                    return ["search", number]

                return call

            listed = [await run.list_tools("files", ask(number), codec=JsonCodec()) for number in (1, 2)]
            other = await run.list_tools("files", ask(3), codec=JsonCodec(), agent="helper")
            return [(item.value, item.replayed) for item in [*listed, other]]

    first = await attempt(body)
    again = await attempt(body)
    assert (
        [value for value, _ in first] == [value for value, _ in again] == [["search", 1], ["search", 2], ["search", 3]]
    )
    assert [replayed for _, replayed in again] == [True] * 3
    assert asked == ["1", "2", "3"]


async def test_a_listener_that_cannot_be_called_is_refused(start_agent: Any) -> None:
    with pytest.raises(TypeError, match="on_event is 'print'; give a function of one event"):
        async with start_agent(on_event="print"):
            pass


async def test_an_edited_run_says_so_and_the_log_names_what_changed(
    attempt: Any, start_agent: Any, model: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was edited is part of the configuration, so the records are in another folder."""

    async def body(instructions: str) -> None:
        async with start_agent(configuration={"instructions": instructions}, observability=True) as run:
            await run.recorder.record(
                "turn",
                {"instructions": instructions, "messages": ["same"]},
                lambda: model.answer(instructions),
                codec=JsonCodec(),
            )

    await attempt(lambda: body("be brief"))
    capsys.readouterr()
    await attempt(lambda: body("be long"))
    assert "goes on, and was changed since. On record: 1 turn, 0 tool calls." in capsys.readouterr().err
    assert "it differs from the recorded one in instructions." in caplog.text
    assert model.asked == ["be brief", "be long"]
