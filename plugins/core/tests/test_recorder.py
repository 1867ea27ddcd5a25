"""Each leaf is made once, and answered from its record ever after."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import json
import logging
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flyte
import flyte.errors
import pytest
from flyte._internal.controllers._local_controller import LocalController
from flyte._internal.runtime.convert import generate_trace_action_identity
from flyte.models import NativeInterface

from flyteplugins.agents.core import (
    JSON,
    AgentTool,
    Folder,
    JsonCodec,
    Recorded,
    Recorder,
    RecordError,
    UnserializableError,
    _traces,
)
from flyteplugins.agents.core._recorder import Slot

if TYPE_CHECKING:
    from .conftest import Attempts, Model, StartAgent

env = flyte.TaskEnvironment("core-recorder-tests")


class RateLimitError(Exception):
    """A failure with attributes, as SDKs have them."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


# what is on record


async def test_a_recorded_turn_is_answered_without_a_call(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    seen: list[Recorded[JSON]] = []

    async def body() -> None:
        async with start_agent() as run:
            seen.append(await model.ask(run.recorder, "q"))
            if len(seen) == 1:
                raise killed

    await attempt(body)
    await attempt(body)
    assert model.asked == ["q"]
    fresh, replayed = seen
    assert (fresh.replayed, replayed.replayed) == (False, True)
    assert (fresh.value, fresh.seconds, fresh.name) == (replayed.value, replayed.seconds, replayed.name)


async def test_a_run_that_succeeded_replays_entirely_under_its_name_and_not_under_another(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> list[JSON]:
        async with start_agent() as run:
            return [await model.say(run.recorder, question) for question in "abc"]

    first = await attempt(body)
    assert await attempt(body) == first
    assert model.asked_since() == ["a", "b", "c"]
    assert await attempt(body, name=f"{attempt.name}-other") == first
    assert model.asked_since() == ["a", "b", "c"]


async def test_a_resume_asks_only_what_the_killed_attempt_did_not(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    async def body() -> list[JSON]:
        async with start_agent() as run:
            answers = [await model.say(run.recorder, question) for question in "ab"]
            if not attempt.died:
                raise killed
            return [*answers, await model.say(run.recorder, "c")]

    await attempt(body)
    assert await attempt(body) == ["answer to a", "answer to b", "answer to c"]
    assert model.asked == ["a", "b", "c"]


async def test_a_fresh_run_pays_one_listing_and_no_reads(
    attempt: Attempts, start_agent: StartAgent, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations: Counter[str] = Counter()
    for operation in ("names", "read"):
        original = getattr(Folder, operation)

        def counted(self: Folder, *args: Any, _original: Any = original, _name: str = operation) -> Any:
            operations[_name] += 1
            return _original(self, *args)

        monkeypatch.setattr(Folder, operation, counted)

    async def body() -> None:
        async with start_agent() as run:
            for question in "abc":
                await model.ask(run.recorder, question)

    await attempt(body)
    assert operations == Counter(names=1)
    await attempt(body)
    assert operations == Counter(names=2, read=3)


async def test_the_order_in_which_different_questions_are_asked_does_not_matter(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    def body(order: str) -> Callable[[], Awaitable[dict[str, JSON]]]:
        async def ask() -> dict[str, JSON]:
            async with start_agent() as run:
                answers = await asyncio.gather(*(model.say(run.recorder, question) for question in order))
                if not attempt.died:
                    raise killed
                return dict(zip(order, answers, strict=True))

        return ask

    await attempt(body("xyz"))
    answers = await attempt(body("zyx"))
    assert answers == {question: f"answer to {question}" for question in "xyz"}
    assert model.asked == ["x", "y", "z"]


async def test_each_record_keeps_what_it_is_a_record_of(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> list[str]:
        async with start_agent() as run:
            recorded = [await model.ask(run.recorder, question, info=_length) for question in "ab"]
            records = [await run.recorder._folder.read(item.name) for item in recorded]  # type: ignore[union-attr]
            assert [record.position for record in records] == [0, 1]
            assert [record.info for record in records] == [{"length": 11}, {"length": 11}]
            assert all(set(record.fields) == {"question"} for record in records)
            assert records[0].fields != records[1].fields
            assert records[0].started <= records[1].started
            return [item.name for item in recorded]

    names = await attempt(body)
    assert [file.name for file in attempt.files("turn.")] == sorted(names)


def _length(answer: JSON) -> dict[str, JSON]:
    return {"length": len(str(answer))}


# equal requests


async def test_equal_questions_get_their_own_answers_in_the_order_of_asking(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["again"] = ["first", "second", "third"]

    async def body() -> list[JSON]:
        async with start_agent() as run:
            answers = [await model.say(run.recorder, "again") for _ in range(2)]
            if not attempt.died:
                raise killed
            return [*answers, await model.say(run.recorder, "again")]

    await attempt(body)
    assert await attempt(body) == ["first", "second", "third"]
    assert len(model.asked) == 3


async def test_parallel_equal_questions_each_get_one_of_the_answers(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    gates: list[asyncio.Event] = []

    async def in_reverse() -> str:
        mine = len(gates)
        gates.append(asyncio.Event())
        if mine < 3:
            await gates[mine].wait()  # the last one to come opens the way for the one before it, and so on
        if mine > 0:
            gates[mine - 1].set()
        return f"answer {mine}"

    model.answers["again"] = in_reverse

    async def body() -> list[JSON]:
        async with start_agent() as run:
            answers = await asyncio.gather(*(model.say(run.recorder, "again") for _ in range(4)))
            if not attempt.died:
                raise killed
            return answers

    await attempt(body)
    assert await attempt(body) == [f"answer {number}" for number in range(4)]
    assert len(model.asked) == 4


@pytest.mark.parametrize("order", ["r1 l1 l2", "l1 r1 l2", "l1 l2 r1"])
async def test_what_was_answered_side_by_side_comes_in_the_same_order_again(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException], order: str
) -> None:
    """An SDK may tell the next model what parallel agents said in the order in which they said it."""
    told: list[str] = []
    moved = asyncio.Condition()

    def in_order(question: str) -> Callable[[], Awaitable[str]]:
        async def answer() -> str:
            async with moved:
                await moved.wait_for(lambda: told == order.split()[: order.split().index(question)])
            return question

        return answer

    model.answers |= {question: in_order(question) for question in order.split()}

    async def body() -> JSON:
        told.clear()
        async with start_agent() as run:

            async def branch(*questions: str) -> None:
                for question in questions:
                    told.append(str(await model.say(run.recorder, question)))
                    async with moved:
                        moved.notify_all()

            await asyncio.gather(branch("l1", "l2"), branch("r1"))
            answer = await model.say(run.recorder, f"after {' '.join(told)}")
            if not attempt.died:
                raise killed
            return answer

    await attempt(body)
    assert await attempt(body) == f"answer to after {order}"
    assert model.asked[-1] == f"after {order}"
    assert len(model.asked) == 4


async def test_nobody_waits_long_for_an_answer_that_is_not_asked_for_any_more(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body(*questions: str) -> list[JSON]:
        async with start_agent() as run:
            return list(await asyncio.gather(*(model.say(run.recorder, question) for question in questions)))

    await attempt(functools.partial(body, "first", "second", "third"))
    async with asyncio.timeout(5):
        assert await attempt(functools.partial(body, "second", "third")) == ["answer to second", "answer to third"]
    assert model.asked == ["first", "second", "third"]


async def test_a_failed_call_gives_its_ordinal_back(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["q"] = [RateLimitError("slow down", status=429), "the answer"]

    async def body() -> JSON:
        async with start_agent() as run:
            return await model.say(run.recorder, "q")

    with pytest.raises(RateLimitError):
        await attempt(body)
    assert attempt.files("turn.") == []
    assert await attempt(body) == "the answer"
    assert await attempt(body) == "the answer"
    assert len(model.asked) == 2


async def test_a_failure_inside_an_attempt_does_not_shift_the_answers_behind_it(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["again"] = ["first", RateLimitError("slow down", status=429), "second", "third"]

    async def body() -> list[JSON]:
        async with start_agent() as run:
            answers: list[JSON] = []
            while len(answers) < 3:
                try:
                    answers.append(await model.say(run.recorder, "again"))
                except RateLimitError:
                    continue  # the SDK's own retry of the same request
            if not attempt.died:
                raise killed
            return answers

    await attempt(body)
    assert len(model.asked) == 4
    assert await attempt(body) == ["first", "second", "third"]
    assert len(model.asked) == 4


async def test_a_failure_among_parallel_equal_calls_replays_beside_the_answers(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["again"] = ["first", RateLimitError("slow down", status=429), "third"]

    async def body() -> list[str]:
        async with start_agent() as run:
            outcomes = await asyncio.gather(
                *(model.say(run.recorder, "again") for _ in range(3)), return_exceptions=True
            )
            await model.ask(run.recorder, "what now?")
            if not attempt.died:
                raise killed
            return [str(outcome) for outcome in outcomes]

    await attempt(body)
    assert model.asked_since() == ["again", "again", "again", "what now?"]
    assert await attempt(body) == ["first", "slow down", "third"]
    assert model.asked_since() == []


# failures that the agent goes on past


async def ask_with_fallback(model: Model, recorder: Recorder) -> tuple[Exception | None, JSON]:
    try:
        return None, await model.say(recorder, "first model")
    except Exception as error:  # noqa: BLE001 - as an SDK's fallback does
        failure = error
    return failure, await model.say(recorder, "second model")


async def test_a_failure_before_a_fallback_is_raised_again_without_a_call(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["first model"] = RateLimitError("slow down", status=429)

    async def body() -> tuple[Exception | None, JSON]:
        async with start_agent() as run:
            outcome = await ask_with_fallback(model, run.recorder)
            if not attempt.died:
                raise killed
            return outcome

    await attempt(body)
    assert model.asked_since() == ["first model", "second model"]
    for _ in range(2):  # of a resume, and of a resume of that
        failure, answer = await attempt(body)
        assert isinstance(failure, RateLimitError)
        assert (failure.args, failure.status, str(failure)) == (("slow down",), 429, "slow down")
        assert answer == "answer to second model"
    assert model.asked_since() == []


async def test_a_crash_in_the_fallback_does_not_ask_the_first_model_again(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers = {"first model": RateLimitError("slow down", status=429), "second model": [killed(), "rescued"]}

    async def body() -> tuple[Exception | None, JSON]:
        async with start_agent() as run:
            return await ask_with_fallback(model, run.recorder)

    await attempt(body)
    assert attempt.died
    assert (await attempt(body))[1] == "rescued"
    assert model.asked == ["first model", "second model", "second model"]


async def test_an_error_that_ends_the_run_is_asked_again(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers = {
        "first model": [RateLimitError("one", status=429), "better now"],
        "second model": RateLimitError("two", status=500),
    }

    async def body() -> tuple[Exception | None, JSON]:
        async with start_agent() as run:
            try:
                return None, await model.say(run.recorder, "first model")
            except RateLimitError:
                return None, await model.say(run.recorder, "second model")  # raises during the handling of the first

    with pytest.raises(RateLimitError, match="two"):
        await attempt(body)
    assert attempt.files("turn.") == []
    assert await attempt(body) == (None, "better now")


async def test_the_first_error_is_asked_again_when_the_run_ends_with_it_after_all(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers = {
        "first model": [RateLimitError("one", status=429), "better now"],
        "second model": RateLimitError("two", status=500),
    }

    async def body() -> JSON:
        async with start_agent() as run:
            try:
                return await model.say(run.recorder, "first model")
            except RateLimitError as error:
                first = error
            try:
                return await model.say(run.recorder, "second model")
            except RateLimitError:
                raise first from None

    with pytest.raises(RateLimitError, match="one"):
        await attempt(body)
    assert await attempt(body) == "better now"


async def test_a_group_of_errors_withdraws_each_of_them(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers = {question: [RateLimitError(question, status=429), f"{question} at last"] for question in "ab"}

    async def body() -> list[JSON]:
        async with start_agent() as run:
            errors: list[Exception] = []
            answers: list[JSON] = []
            for question in "ab":
                try:
                    answers.append(await model.say(run.recorder, question))
                except RateLimitError as error:
                    errors.append(error)
            if errors:
                raise ExceptionGroup("every model failed", errors)
            return answers

    with pytest.raises(ExceptionGroup):
        await attempt(body)
    assert await attempt(body) == ["a at last", "b at last"]


async def test_a_failure_stays_passed_over_when_something_else_ends_the_run(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers["first model"] = [RateLimitError("slow down", status=429), "better now"]

    async def body() -> JSON:
        async with start_agent() as run:
            _, answer = await ask_with_fallback(model, run.recorder)
            if not attempts:
                raise ValueError("something else")
            return answer

    attempts: list[int] = []
    with pytest.raises(ValueError, match="something else"):
        await attempt(body)
    attempts.append(1)
    assert await attempt(body) == "answer to second model"
    assert model.asked == ["first model", "second model"]


async def test_a_failure_stays_passed_over_when_something_else_fails_while_it_is_handled(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers["first model"] = [RateLimitError("slow down", status=429), "better now"]

    async def body() -> JSON:
        async with start_agent() as run:
            try:
                return await model.say(run.recorder, "first model")
            except RateLimitError:
                answer = await model.say(run.recorder, "second model")
                if not attempts:
                    raise ValueError("something else")  # noqa: B904 - it has nothing to do with the rate limit
                return answer

    attempts: list[int] = []
    with pytest.raises(ValueError, match="something else"):
        await attempt(body)
    attempts.append(1)
    assert await attempt(body) == "answer to second model"
    assert model.asked == ["first model", "second model"]


async def test_a_retry_of_the_same_request_is_no_way_past_its_failure(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["q"] = [RateLimitError("slow down", status=429), RateLimitError("slower", status=429), "the answer"]

    async def body() -> JSON:
        async with start_agent() as run:
            while True:
                try:
                    answer = await model.say(run.recorder, "q")
                    break
                except RateLimitError:
                    await asyncio.sleep(0)
            await model.ask(run.recorder, "next")
            if not attempt.died:
                raise killed
            return answer

    await attempt(body)
    assert len(attempt.files("turn.")) == 2
    assert await attempt(body) == "the answer"
    assert model.asked == ["q", "q", "q", "next"]


async def test_what_steers_the_sdks_loop_is_no_failure_and_leaves_nothing_to_replay(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    class InterruptError(Exception):
        """By which an SDK leaves its loop."""

    model.answers["q"] = [InterruptError(), "the answer", "again"]

    async def body() -> JSON:
        async with start_agent(control_flow=(InterruptError,)) as run:
            try:
                return await model.say(run.recorder, "q")
            except InterruptError:
                await model.ask(run.recorder, "next")
            answer = await model.say(run.recorder, "q")
            if not attempt.died:
                raise killed
            return answer

    await attempt(body)
    assert len(attempt.files("turn.")) == 2
    assert await attempt(body) == "the answer"
    assert model.asked == ["q", "next", "q"]


async def test_coming_back_to_a_request_after_going_past_it_replays_both_outcomes(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["a"] = [RateLimitError("slow down", status=429), "a at last"]

    async def body() -> list[str]:
        async with start_agent() as run:
            outcomes: list[str] = []
            for question in ("a", "b", "a"):
                try:
                    outcomes.append(str(await model.say(run.recorder, question)))
                except RateLimitError as error:
                    outcomes.append(str(error))
            if not attempt.died:
                raise killed
            return outcomes

    await attempt(body)
    assert await attempt(body) == ["slow down", "answer to b", "a at last"]
    assert model.asked == ["a", "b", "a"]


async def test_a_sibling_does_not_go_past_the_failure_of_a_parallel_tool_call(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["a"] = [RateLimitError("slow down", status=429), "a at last"]

    async def body() -> JSON:
        async with start_agent() as run:
            failed = asyncio.Event()

            async def one() -> JSON:
                async with run.recorder.strand():
                    try:
                        return await model.say(run.recorder, "a")
                    finally:
                        failed.set()

            async def two() -> JSON:
                async with run.recorder.strand():
                    await failed.wait()
                    return await model.say(run.recorder, "b")

            answer, _ = await asyncio.gather(one(), two(), return_exceptions=True)
            if not attempt.died:
                raise killed
            assert not isinstance(answer, BaseException)
            return answer

    await attempt(body)
    assert await attempt(body) == "a at last"
    assert model.asked == ["a", "b", "a"]


async def test_the_agent_goes_past_a_tool_calls_failure_when_it_asks_on(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["a"] = [RateLimitError("slow down", status=429), "a at last"]

    async def body() -> str:
        async with start_agent() as run:
            try:
                async with run.recorder.strand():
                    outcome = str(await model.say(run.recorder, "a"))
            except RateLimitError as error:
                outcome = str(error)
            await model.ask(run.recorder, "b")
            if not attempt.died:
                raise killed
            return outcome

    await attempt(body)
    assert await attempt(body) == "slow down"
    assert model.asked == ["a", "b"]


async def test_one_agent_run_does_not_go_past_the_failure_of_another(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["a"] = [RateLimitError("slow down", status=429), "a at last"]

    async def body() -> JSON:
        async with start_agent("outer") as outer:
            answer: JSON = None
            try:
                answer = await model.say(outer.recorder, "a")
            except RateLimitError:
                async with start_agent("inner") as inner:
                    await model.ask(inner.recorder, "b")
            if not attempt.died:
                raise killed
            return answer

    await attempt(body)
    assert await attempt(body) == "a at last"


async def test_two_calls_that_raise_one_exception_object_are_both_passed_over(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    error = RateLimitError("slow down", status=429)  # such as that of a shared future
    model.answers = {"a": error, "b": error}

    async def body() -> list[str]:
        async with start_agent() as run:
            outcomes: list[str] = []
            for question in "abc":
                try:
                    outcomes.append(str(await model.say(run.recorder, question)))
                except RateLimitError as failure:
                    outcomes.append(str(failure))
            if not attempt.died:
                raise killed
            return outcomes

    await attempt(body)
    assert await attempt(body) == ["slow down", "slow down", "answer to c"]
    assert model.asked == ["a", "b", "c"]


@pytest.mark.parametrize(
    "error",
    [
        KeyError("missing"),
        RateLimitError("slow down", status=429),
        TimeoutError(),
        pytest.param(
            ConnectionRefusedError(111, "refused"),
        ),
        pytest.param(
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ),
        pytest.param(
            ExceptionGroup("several", [ValueError("one")]),
        ),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failure_that_was_passed_over_reads_the_same_on_a_resume(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException], error: Exception
) -> None:
    model.answers["first model"] = error

    async def body() -> Exception | None:
        async with start_agent() as run:
            failure, _ = await ask_with_fallback(model, run.recorder)
            if not attempt.died:
                raise killed
            return failure

    await attempt(body)
    failure = await attempt(body)
    assert type(failure) is type(error)
    assert str(failure) == str(error)
    assert getattr(failure, "errno", None) == getattr(error, "errno", None)
    assert model.asked == ["first model", "second model"]


async def test_a_failure_that_cannot_be_rebuilt_costs_one_more_request_and_not_the_run(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    class LocalError(Exception):
        """No other process could find this class."""

    model.answers["first model"] = LocalError("oops")

    async def body() -> JSON:
        async with start_agent() as run:
            _, answer = await ask_with_fallback(model, run.recorder)
            if not attempt.died:
                raise killed
            return answer

    await attempt(body)
    assert await attempt(body) == "answer to second model"
    assert model.asked == ["first model", "second model", "first model"]


async def test_a_failure_holds_values_that_have_no_json_form_as_text(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    error = RateLimitError("slow down", status=429)
    error.client = object()  # type: ignore[attr-defined]
    model.answers["first model"] = error

    async def body() -> tuple[Exception | None, JSON]:
        async with start_agent() as run:
            outcome = await ask_with_fallback(model, run.recorder)
            if not attempt.died:
                raise killed
            return outcome

    await attempt(body)
    failure, _ = await attempt(body)
    assert isinstance(failure, RateLimitError)
    assert failure.status == 429
    assert failure.client.startswith("<object object")  # type: ignore[attr-defined]


# several agent runs


async def test_runs_that_differ_in_their_configuration_find_their_own_records_in_another_order(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    def body(order: str) -> Callable[[], Awaitable[dict[str, list[JSON]]]]:
        async def one(who: str) -> list[JSON]:
            async with start_agent(configuration={"model": who}) as run:
                return [await model.say(run.recorder, f"{who} {number}") for number in range(2)]

        async def both() -> dict[str, list[JSON]]:
            answers = await asyncio.gather(*(one(who) for who in order))
            if not attempt.died:
                raise killed
            return dict(zip(order, answers, strict=True))

        return both

    await attempt(body("xy"))
    answers = await attempt(body("yx"))
    assert answers == {who: [f"answer to {who} 0", f"answer to {who} 1"] for who in "xy"}
    assert len(model.asked) == 4


async def test_runs_that_are_equal_in_everything_keep_each_their_own_conversation(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    count = 0

    async def draw() -> str:
        nonlocal count
        count += 1
        return f"card {count}"

    model.answers["draw"] = draw

    async def one(first: asyncio.Event, second: asyncio.Event) -> tuple[JSON, JSON]:
        async with start_agent() as run:
            card = await model.say(run.recorder, "draw")
            first.set()
            await second.wait()
            return card, await model.say(run.recorder, f"I have {card}")

    async def body() -> list[tuple[JSON, JSON]]:
        early, late = asyncio.Event(), asyncio.Event()
        hands = list(await asyncio.gather(one(early, late), one(late, early)))
        if not attempt.died:
            raise killed
        return hands

    await attempt(body)
    hands = await attempt(body)
    assert sorted(hands) == [(card, f"answer to I have {card}") for card in ("card 1", "card 2")]
    assert len(model.asked) == 4


async def test_runs_that_are_equal_in_everything_do_not_swap_when_their_listings_do(
    attempt: Attempts, start_agent: StartAgent, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.answers["draw"] = ["card 0", "card 1"]
    listing = Folder.names
    begun: list[asyncio.Event] = []
    slow = iter([1, 0])  # the second one in the first attempt, the first one in the other

    async def body() -> list[JSON]:
        begun[:] = [asyncio.Event(), asyncio.Event()]
        calls = iter(range(2))
        last = next(slow)

        async def names(self: Folder, below: str = "") -> list[str]:
            mine = next(calls)
            found = await listing(self, below)
            if mine == last:
                await asyncio.wait_for(begun[1 - mine].wait(), 10)
            return found

        async def one(number: int) -> JSON:
            async with start_agent() as run:
                begun[number].set()
                return await model.say(run.recorder, "draw")

        monkeypatch.setattr(Folder, "names", names)
        return list(await asyncio.gather(one(0), one(1)))

    first = await attempt(body)
    assert await attempt(body) == first


async def test_a_later_equal_run_makes_its_own_calls_on_a_resume(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["draw"] = ["card 0", "card 1"]

    async def body() -> list[JSON]:
        cards: list[JSON] = []
        for number in range(2):
            async with start_agent() as run:
                if number == 1 and not attempt.died:
                    raise killed
                cards.append(await model.say(run.recorder, "draw"))
        return cards

    await attempt(body)
    assert await attempt(body) == ["card 0", "card 1"]


async def test_runs_that_differ_in_their_requests_only_find_their_own_records_in_another_order(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    def body(order: str) -> Callable[[], Awaitable[list[JSON]]]:
        async def one(who: str) -> JSON:
            async with start_agent() as run:
                return await model.say(run.recorder, who)

        async def both() -> list[JSON]:
            answers = await asyncio.gather(*(one(who) for who in order))
            if not attempt.died:
                raise killed
            return answers

        return both

    await attempt(body("xy"))
    assert await attempt(body("yx")) == ["answer to y", "answer to x"]
    assert sorted(model.asked) == ["x", "y"]


async def test_a_run_whose_configuration_was_edited_finds_its_records(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    async def body() -> list[JSON]:
        async with start_agent(configuration={"tools": ["one", "two"] if attempt.died else ["one"]}) as run:
            answers = [await model.say(run.recorder, question) for question in "ab"]
            if not attempt.died:
                raise killed
            return answers

    await attempt(body)
    assert await attempt(body) == ["answer to a", "answer to b"]
    assert model.asked == ["a", "b"]


async def test_two_edited_runs_find_an_answer_each(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["draw"] = ["card 0", "card 1"]

    async def body() -> list[JSON]:
        cards: list[JSON] = []
        for _ in range(2):
            async with start_agent(configuration={"edited": attempt.died}) as run:
                cards.append(await model.say(run.recorder, "draw"))
        if not attempt.died:
            raise killed
        return cards

    await attempt(body)
    assert await attempt(body) == ["card 0", "card 1"]
    assert len(model.asked) == 2


async def test_an_edited_run_finds_many_equal_answers_in_their_order(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers["again"] = [f"answer {number}" for number in range(12)]

    async def body() -> list[JSON]:
        async with start_agent(configuration={"edited": attempt.died}) as run:
            answers = [await model.say(run.recorder, "again") for _ in range(12)]
            if not attempt.died:
                raise killed
            return answers

    await attempt(body)
    assert await attempt(body) == [f"answer {number}" for number in range(12)]
    assert len(model.asked) == 12


async def test_an_edited_run_withdraws_the_failure_that_ends_it(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    model.answers = {
        "first model": [RateLimitError("one", status=429), "better now"],
        "second model": [killed(), RateLimitError("two", status=500)],
    }
    versions = iter([1, 2, 2])

    async def body() -> JSON:
        async with start_agent(configuration={"version": next(versions)}) as run:
            try:
                return await model.say(run.recorder, "first model")
            except RateLimitError:
                return await model.say(run.recorder, "second model")

    await attempt(body)
    with pytest.raises(RateLimitError, match="two"):
        await attempt(body)
    assert await attempt(body) == "better now"


async def test_a_run_does_not_take_the_records_of_an_equal_run_that_has_not_begun_yet(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    drawn: list[str] = []

    async def draw() -> str:
        """Draw a card."""
        drawn.append(f"card {len(drawn)}")
        return drawn[-1]

    tool = AgentTool(draw)

    async def one_after_the_other() -> list[str]:
        hands: list[str] = []
        for _ in range(2):
            async with start_agent():
                hands.append((await tool.call({})).text)
        return hands

    await attempt(_twins(start_agent, tool, killed))
    assert drawn == ["card 0"]
    assert await attempt(one_after_the_other) == ["card 1", "card 0"]
    assert drawn == ["card 0", "card 1"]


def _twins(start_agent: StartAgent, tool: AgentTool, killed: type[BaseException]) -> Callable[[], Awaitable[None]]:
    """Two equal runs at once, of which only the second has done something when the process dies."""

    async def body() -> None:
        begun, drawn = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with start_agent():
                begun.set()
                await drawn.wait()

        async def second() -> None:
            await begun.wait()
            async with start_agent():
                await tool.call({})
            drawn.set()

        await asyncio.gather(first(), second())
        raise killed

    return body


async def test_leaves_of_tools_that_are_recorded_side_by_side_may_come_in_another_order(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    def body(order: str) -> Callable[[], Awaitable[JSON]]:
        async def run() -> JSON:
            async with start_agent() as agent:
                for server in order:  # such as the listings of tools of several servers
                    await agent.recorder.record(
                        "tool", {"list": server}, functools.partial(model.answer, server), codec=JsonCodec()
                    )
                answer = await model.say(agent.recorder, "q")
                if not attempt.died:
                    raise killed
                return answer

        return run

    await attempt(body("xy"))
    assert await attempt(body("yx")) == "answer to q"
    assert model.asked == ["x", "y", "q"]


async def test_a_failed_run_that_is_started_again_in_one_attempt_goes_on_where_it_was(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers["b"] = [RateLimitError("slow down", status=429), "b at last"]

    async def once() -> list[JSON]:
        async with start_agent() as run:
            return [await model.say(run.recorder, question) for question in "ab"]

    async def body() -> list[JSON]:
        try:
            return await once()
        except RateLimitError:
            return await once()

    assert await attempt(body) == ["answer to a", "b at last"]
    assert model.asked == ["a", "b", "b"]


async def test_a_run_that_succeeded_is_not_continued_by_the_next_equal_one(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers["q"] = ["first", "second"]

    async def body() -> list[JSON]:
        answers: list[JSON] = []
        for _ in range(2):
            async with start_agent() as run:
                answers.append(await model.say(run.recorder, "q"))
        return answers

    assert await attempt(body) == ["first", "second"]
    assert await attempt(body) == ["first", "second"]
    assert len(model.asked) == 2


async def test_a_run_that_could_not_begin_leaves_its_place_to_the_next_one(
    attempt: Attempts, start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = Folder.names
    failures = [ConnectionError("the storage is away")]

    async def names(self: Folder, below: str = "") -> list[str]:
        if failures:
            raise failures.pop()
        return await listing(self, below)

    monkeypatch.setattr(Folder, "names", names)

    async def body() -> str:
        with pytest.raises(ConnectionError):
            async with start_agent():
                pass
        async with start_agent() as run:
            return run.id

    assert (await attempt(body)).endswith("-0")


# what is not recorded


async def test_with_durable_false_turns_are_made_again_and_what_is_always_recorded_is_not(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> list[bool]:
        async with start_agent(durable=False) as run:
            turn = await model.ask(run.recorder, "turn")
            outcome = await model.ask(run.recorder, "task tool", keep="always")
            return [turn.replayed, outcome.replayed]

    assert await attempt(body) == [False, False]
    assert await attempt(body) == [False, True]
    assert model.asked == ["turn", "task tool", "turn"]


async def test_outside_of_a_task_everything_passes_through(start_agent: StartAgent, model: Model) -> None:
    model.answers["bad"] = RateLimitError("slow down", status=429)
    for _ in range(2):
        async with start_agent() as run:
            recorded = await model.ask(run.recorder, "q", info=_length)
            assert (recorded.value, recorded.replayed, recorded.name) == ("answer to q", False, "")
            with pytest.raises(RateLimitError):
                await model.ask(run.recorder, "bad")
            assert not run.recorder.durable
    assert model.asked == ["q", "bad", "q", "bad"]


async def test_a_request_that_has_no_json_form_is_an_error_that_names_the_path_and_asks_nothing(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> None:
        async with start_agent() as run:
            with pytest.raises(UnserializableError, match=r"messages\[1\]\.content"):
                await run.recorder.record(
                    "turn",
                    {"messages": [{"content": "hi"}, {"content": object()}]},
                    lambda: model.answer("q"),
                    codec=JsonCodec(),
                )

    await attempt(body)
    assert model.asked == []


class UpperCodec:
    """A codec whose two sides can be seen."""

    def encode(self, value: str) -> JSON:
        return {"upper": value.upper()}

    def decode(self, payload: JSON) -> str:
        assert isinstance(payload, dict)
        return str(payload["upper"]).lower()


async def test_the_codec_stands_between_the_sdk_and_the_record(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> JSON:
        async with start_agent() as run:
            return (await model.ask(run.recorder, "q", codec=UpperCodec())).value

    assert await attempt(body) == await attempt(body) == "answer to q"
    [file] = attempt.files("turn.")
    assert file.read_bytes().endswith(b'\n{"upper":"ANSWER TO Q"}')


async def test_an_outcome_that_cannot_be_decoded_is_an_error_that_names_the_record(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    class Changed(UpperCodec):
        def decode(self, payload: JSON) -> str:
            raise KeyError("lower")

    codecs = iter([UpperCodec(), Changed()])

    async def body() -> None:
        async with start_agent() as run:
            await model.ask(run.recorder, "q", codec=next(codecs))

    await attempt(body)
    [file] = attempt.files("turn.")
    with pytest.raises(RecordError, match="lower") as caught:
        await attempt(body)
    assert str(file) in str(caught.value)
    assert model.asked == ["q"]


# records that cannot be read


async def test_a_damaged_record_is_an_error_and_not_a_second_call(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> JSON:
        async with start_agent() as run:
            return await model.say(run.recorder, "q")

    await attempt(body)
    [file] = attempt.files("turn.")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(RecordError) as caught:
        await attempt(body)
    assert str(file) in str(caught.value)
    assert model.asked_since() == ["q"]
    file.unlink()  # as the message says
    assert await attempt(body) == "answer to q"
    assert model.asked_since() == ["q"]


async def test_an_sdk_that_catches_everything_does_not_get_past_a_damaged_record(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> tuple[Exception | None, JSON]:
        async with start_agent() as run:
            return await ask_with_fallback(model, run.recorder)

    await attempt(body)
    [file] = attempt.files("turn.")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(RecordError):
        await attempt(body)
    assert model.asked == ["first model"]


async def test_a_run_with_a_damaged_record_does_nothing_more(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    calls: list[str] = []

    async def book() -> str:
        """Book it."""
        calls.append("book")
        return "booked"

    tool = AgentTool(book)

    async def body() -> JSON:
        async with start_agent() as run:
            try:
                return await model.say(run.recorder, "first model")
            except Exception:  # noqa: BLE001 - as an SDK's error handler does
                return (await tool.call({})).text

    await attempt(body)
    [file] = attempt.files("turn.")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(RecordError):
        await attempt(body)
    assert calls == []


async def test_a_record_that_is_gone_when_it_is_read_is_an_error(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    async def body() -> None:
        async with start_agent() as run:
            for file in attempt.files("turn."):
                file.unlink()
            await model.ask(run.recorder, "q")

    await attempt(body)
    with pytest.raises(RecordError, match="is gone"):
        await attempt(body)
    assert model.asked == ["q"]


async def test_a_miss_says_which_field_of_the_request_changed(
    attempt: Attempts, start_agent: StartAgent, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    temperatures = iter([0.1, 0.9])

    async def body() -> None:
        async with start_agent() as run:
            fields = {"model": "m", "settings": {"temperature": next(temperatures)}, "messages": ["hi"]}
            await run.recorder.record("turn", fields, lambda: model.answer("q"), codec=JsonCodec())

    await attempt(body)
    with caplog.at_level(logging.WARNING, "flyteplugins.agents"):
        await attempt(body)
    [message] = [record.getMessage() for record in caplog.records if "is made again" in record.getMessage()]
    assert message.startswith("Turn 1 of ")
    assert message.endswith("it differs from the recorded one in settings.")


# traces


class StoredTraces:
    """A control plane that serves traces: what Flyte's local controller does not do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outputs: dict[str, str] = {}
        self.error: Exception | None = None
        self.recorded: list[tuple[str, str | None]] = []
        self.record_error: Exception | None = None
        traces = self
        get_action_outputs, record_trace = LocalController.get_action_outputs, LocalController.record_trace

        async def get(self: LocalController, interface: Any, function: Any, leaf: str) -> Any:
            info, _ = await get_action_outputs(self, interface, function, leaf)
            info.output, info.error = traces.outputs.get(leaf), traces.error
            return info, True

        async def record(self: LocalController, info: Any) -> None:
            traces.recorded.append((info.name, info.output))
            if traces.record_error is not None:
                error, traces.record_error = traces.record_error, None
                raise error
            await record_trace(self, info)

        monkeypatch.setattr(LocalController, "get_action_outputs", get)
        monkeypatch.setattr(LocalController, "record_trace", record)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> StoredTraces:
    return StoredTraces(monkeypatch)


async def test_each_leaf_shows_in_flyte_and_the_outcome_of_a_task_tool_does_not(
    attempt: Attempts, start_agent: StartAgent, model: Model, traces: StoredTraces
) -> None:
    async def body() -> None:
        async with start_agent() as run:
            for kind in ("turn", "tool", "memory", "approval"):
                await run.recorder.record(kind, {"kind": kind}, lambda: model.answer("q"), codec=JsonCodec())
            await model.ask(run.recorder, "its child action shows", traced=False)

    await attempt(body)
    expected = ["agent_turn", "agent_tool", "agent_memory", "agent_approval"]
    assert [name for name, _ in traces.recorded] == expected
    await attempt(body)
    assert [name for name, _ in traces.recorded] == expected * 2


@pytest.mark.parametrize("answer", ["short", "long" * 400_000], ids=["inline", "over 1 MiB"])
async def test_a_trace_alone_answers_when_our_record_is_missing(
    attempt: Attempts, start_agent: StartAgent, model: Model, traces: StoredTraces, answer: str
) -> None:
    model.answers["q"] = answer
    seen: list[Recorded[JSON]] = []

    async def body() -> None:
        async with start_agent() as run:
            seen.append(await model.ask(run.recorder, "q", info=_length))

    await attempt(body)
    [file] = attempt.files("turn.")
    [(_, output)] = traces.recorded
    assert output is not None
    traces.outputs[f"{file.parent.relative_to(attempt.folder)}/{file.name}"] = output
    before = file.read_bytes()
    file.unlink()
    await attempt(body)
    assert model.asked == ["q"]
    assert seen[1].value == answer
    assert seen[1].replayed
    assert seen[1].seconds == seen[0].seconds
    after = file.read_bytes()  # and the record is there again
    assert after.partition(b"\n")[2] == before.partition(b"\n")[2]


async def test_our_record_wins_over_what_a_trace_says(
    attempt: Attempts, start_agent: StartAgent, model: Model, traces: StoredTraces
) -> None:
    async def body() -> JSON:
        async with start_agent() as run:
            return await model.say(run.recorder, "q")

    await attempt(body)
    [file] = attempt.files("turn.")
    traces.outputs[f"{file.parent.relative_to(attempt.folder)}/{file.name}"] = "something else"
    assert await attempt(body) == "answer to q"


async def test_our_record_wins_over_an_error_that_a_trace_holds(
    attempt: Attempts, start_agent: StartAgent, model: Model, traces: StoredTraces
) -> None:
    async def body() -> JSON:
        async with start_agent() as run:
            return await model.say(run.recorder, "q")

    await attempt(body)
    traces.error = flyte.errors.RuntimeUserError("NonRecoverableError", "of an earlier attempt")
    assert await attempt(body) == "answer to q"


async def test_a_trace_that_holds_something_else_is_an_error_and_not_a_second_call(
    attempt: Attempts, start_agent: StartAgent, model: Model, traces: StoredTraces
) -> None:
    async def body() -> JSON:
        async with start_agent() as run:
            return await model.say(run.recorder, "q")

    await attempt(body)
    [file] = attempt.files("turn.")
    leaf = f"{file.parent.relative_to(attempt.folder)}/{file.name}"
    file.unlink()
    for output in ("not JSON", "{}", '{"format": "flyte-agents-record/99"}'):
        traces.outputs[leaf] = output
        with pytest.raises(RecordError, match="trace output"):
            await attempt(body)
    assert model.asked == ["q"]


async def test_an_answer_whose_trace_could_not_be_recorded_is_there_for_the_next_attempt(
    attempt: Attempts, start_agent: StartAgent, model: Model, traces: StoredTraces
) -> None:
    traces.record_error = ConnectionError("the control plane is away")

    async def body() -> JSON:
        async with start_agent() as run:
            return await model.say(run.recorder, "q")

    with pytest.raises(ConnectionError):
        await attempt(body)
    assert await attempt(body) == "answer to q"
    assert model.asked == ["q"]


async def test_an_answer_whose_trace_could_not_be_recorded_is_there_for_the_sdks_own_retry(
    attempt: Attempts, start_agent: StartAgent, model: Model, traces: StoredTraces
) -> None:
    traces.record_error = ConnectionError("the control plane is away")

    async def body() -> JSON:
        async with start_agent() as run:
            try:
                return await model.say(run.recorder, "q")
            except ConnectionError:
                return await model.say(run.recorder, "q")

    assert await attempt(body) == "answer to q"
    assert model.asked == ["q"]


# the context of a leaf

_VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("test_recorder", default="unset")


@env.task
async def double(number: int) -> int:
    return number * 2


async def test_the_call_runs_in_its_callers_context_where_tasks_may_be_called(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def call() -> JSON:
        action = flyte.ctx().action
        assert action is not None
        return [_VARIABLE.get(), await double(number=21), action.name]

    async def body() -> tuple[JSON, str]:
        _VARIABLE.set("the caller's")
        action = flyte.ctx().action
        assert action is not None
        async with start_agent() as run:
            recorded = await run.recorder.record("tool", {}, call, codec=JsonCodec())
            return recorded.value, action.name

    value, action = await attempt(body)
    assert value == ["the caller's", 42, action]
    assert (await attempt(body))[0] == value


async def test_leaves_may_be_inside_leaves(attempt: Attempts, start_agent: StartAgent, model: Model) -> None:
    async def body() -> JSON:
        async with start_agent() as run:

            async def outer() -> JSON:
                return [await model.say(run.recorder, "inner"), await model.say(run.recorder, "inner again")]

            return (await run.recorder.record("tool", {}, outer, codec=JsonCodec())).value

    assert await attempt(body) == ["answer to inner", "answer to inner again"]
    assert await attempt(body) == ["answer to inner", "answer to inner again"]
    assert model.asked == ["inner", "inner again"]


@pytest.mark.parametrize("around", ["the call", "the leaf"])
async def test_a_call_that_times_out_leaves_no_record_and_no_gap(
    attempt: Attempts, start_agent: StartAgent, model: Model, around: str
) -> None:
    cancelled: list[str] = []

    async def body() -> JSON:
        async def never() -> str:
            (limit if around == "the leaf" else inner_limit).reschedule(asyncio.get_running_loop().time())
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(around)
            return "never"

        async def impatient() -> str:
            async with inner_limit:
                return await never()

        limit, inner_limit = asyncio.timeout(None), asyncio.timeout(None)
        if not model.asked:
            model.answers["q"] = [never if around == "the leaf" else impatient, "the answer"]
        async with start_agent() as run:
            try:
                async with limit:
                    return await model.say(run.recorder, "q")
            except TimeoutError:
                assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
                return await model.say(run.recorder, "q")

    assert await attempt(body) == "the answer"
    assert cancelled == [around]
    assert [file.name.rpartition(".")[2] for file in attempt.files("turn.")] == ["0"]
    assert await attempt(body) == "the answer"
    assert len(model.asked) == 2


async def test_cancelling_the_agent_cancels_the_call_that_it_waits_for(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    calls: list[str] = []

    async def body() -> None:
        started = asyncio.Event()

        async def never() -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                calls.append("cancelled")
            return "never"

        model.answers["q"] = never

        async def agent() -> None:
            async with start_agent() as run:
                await model.ask(run.recorder, "q")

        task = asyncio.create_task(agent())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert calls == ["cancelled"]

    await attempt(body)


# effects whose outcome is not known


async def test_a_leaf_with_an_effect_is_marked_before_its_call_and_known_as_unknown_after_a_crash(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    unknown: list[Slot] = []

    async def ask(slot: Slot) -> None:
        unknown.append(slot)

    async def die() -> str:
        assert len(attempt.files("started.")) == 1
        raise killed

    model.answers["pay"] = [die, "paid", "paid again"]

    async def body() -> list[JSON]:
        async with start_agent() as run:
            return [(await model.ask(run.recorder, "pay", on_unknown=ask)).value for _ in range(2)]

    await attempt(body)
    assert unknown == []
    assert await attempt(body) == ["paid", "paid again"]
    assert [slot.unknown for slot in unknown] == [True]
    assert await attempt(body) == ["paid", "paid again"]
    assert len(unknown) == 1
    assert len(model.asked) == 3


async def test_what_on_unknown_raises_stops_the_call(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    async def refuse(slot: Slot) -> None:
        raise RuntimeError(f"{slot.name} may have happened")

    model.answers["pay"] = [killed(), "paid"]

    async def body() -> JSON:
        async with start_agent() as run:
            return (await model.ask(run.recorder, "pay", on_unknown=refuse)).value

    await attempt(body)
    for _ in range(2):  # and it stays unknown
        with pytest.raises(RuntimeError, match="may have happened"):
            await attempt(body)
    assert model.asked == ["pay"]


async def test_a_call_that_failed_is_not_unknown(attempt: Attempts, start_agent: StartAgent, model: Model) -> None:
    unknown: list[Slot] = []

    async def ask(slot: Slot) -> None:
        unknown.append(slot)

    model.answers["pay"] = [RateLimitError("slow down", status=429), "paid"]

    async def body() -> JSON:
        async with start_agent() as run:
            return (await model.ask(run.recorder, "pay", on_unknown=ask)).value

    with pytest.raises(RateLimitError):
        await attempt(body)
    assert await attempt(body) == "paid"
    assert unknown == []


async def test_an_edited_run_knows_what_was_started_before_the_edit(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    unknown: list[Slot] = []

    async def ask(slot: Slot) -> None:
        unknown.append(slot)

    model.answers["pay"] = [killed(), "paid"]

    async def body() -> JSON:
        async with start_agent(configuration={"edited": attempt.died}) as run:
            return (await model.ask(run.recorder, "pay", on_unknown=ask)).value

    await attempt(body)
    assert await attempt(body) == "paid"
    assert [slot.unknown for slot in unknown] == [True]


async def test_a_cancelled_call_is_unknown_to_the_next_equal_one_of_its_attempt(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    unknown: list[Slot] = []

    async def ask(slot: Slot) -> None:
        unknown.append(slot)

    async def body() -> JSON:
        async def never() -> str:
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
            return "never"

        model.answers["pay"] = [never, "paid"]
        limit = asyncio.timeout(None)
        async with start_agent() as run:
            try:
                async with limit:
                    return (await model.ask(run.recorder, "pay", on_unknown=ask)).value
            except TimeoutError:
                return (await model.ask(run.recorder, "pay", on_unknown=ask)).value

    assert await attempt(body) == "paid"
    assert len(unknown) == 1


# two writers


async def test_the_second_writer_of_a_record_adopts_what_the_first_one_stored(
    attempt: Attempts, start_agent: StartAgent, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> list[Recorded[JSON]]:
        both = asyncio.Barrier(2)
        count = 0

        async def together() -> str:
            nonlocal count
            count += 1
            mine = count
            await both.wait()
            return f"writer {mine}"

        model.answers["q"] = together
        async with start_agent() as run:
            recorders = [
                Recorder(run.scope, run.recorder.path, durable=True, errors=run.recorder._errors) for _ in "ab"
            ]
            return list(await asyncio.gather(*(model.ask(recorder, "q") for recorder in recorders)))

    with caplog.at_level(logging.WARNING, "flyteplugins.agents"):
        one, two = await attempt(body)
    assert one.value == two.value
    assert (one.replayed, two.replayed) == (False, False)  # both were paid for
    assert len(attempt.files("turn.")) == 1
    assert "Another worker recorded" in caplog.text


async def test_the_failure_of_one_writer_does_not_take_the_answer_of_another_away(
    attempt: Attempts, start_agent: StartAgent, model: Model
) -> None:
    model.answers["q"] = [RateLimitError("slow down", status=429), "the answer"]

    async def body() -> None:
        async with start_agent() as run:
            other = Recorder(run.scope, run.recorder.path, durable=True, errors=run.recorder._errors)
            try:
                await model.ask(run.recorder, "q")
            except RateLimitError:
                await model.ask(other, "q")  # a worker that was thought dead
                await model.ask(run.recorder, "fallback")
                raise

    with pytest.raises(RateLimitError):
        await attempt(body)
    assert len(attempt.files("turn.")) == 2


# what runs in flight rest on


def test_the_traced_functions_are_frozen() -> None:
    """Flyte makes a trace's id of its function's name and body: a change of these is a change of every run in flight."""
    for kind, function in _traces.TRACES.items():
        source = inspect.getsource(function)
        lines = [line.strip() for line in source.splitlines() if '"""' not in line]
        assert lines == [
            "@flyte.trace",
            f"async def agent_{kind}(leaf: str) -> str:" + lines[1].partition("-> str:")[2],
            "return await BODY.get()()",
        ]


def test_flyte_sees_the_traced_functions_as_they_are_written(tmp_path: Path) -> None:
    """They are prepared for being looked at: types and identity are those of the same functions without that."""
    source, prepared, _ = Path(str(_traces.__file__)).read_text().partition("for _trace in ")
    assert prepared
    (tmp_path / "unprepared.py").write_text(source.replace("from ._records", "from flyteplugins.agents.core._records"))
    unprepared = runpy.run_path(str(tmp_path / "unprepared.py"))["TRACES"]
    for kind, function in _traces.TRACES.items():
        traced, written = inspect.unwrap(function), inspect.unwrap(unprepared[kind])
        assert written.__doc__
        interfaces = [NativeInterface.from_callable(one) for one in (traced, written)]
        assert interfaces[0].inputs == interfaces[1].inputs == {"leaf": (str, inspect.Parameter.empty)}
        assert interfaces[0].outputs == interfaces[1].outputs == {"o0": str}
        assert generate_trace_action_identity(traced) == generate_trace_action_identity(written)


# real processes


class Processes:
    """Starts the agent of `apps/three_turns.py` in processes of its own."""

    def __init__(self, run: str, folder: Path) -> None:
        self.run = run
        self.folder = folder
        self.started = 0

    def start(self, happens: str = "") -> subprocess.Popen[str]:
        self.started += 1
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "apps" / "three_turns.py"), self.run, self.folder, happens],
            env=os.environ | {"PYTHONHASHSEED": str(self.started)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answers(self, process: subprocess.Popen[str]) -> list[str]:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        answers: list[str] = json.loads(output.splitlines()[-1])
        return answers

    def kill(self, happens: str) -> None:
        process = self.start(happens)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, errors

    def events(self) -> list[str]:
        events = (self.folder / "events").read_text().splitlines()
        (self.folder / "events").unlink()
        return events


@pytest.fixture
def processes(run_name: str, tmp_path: Path) -> Iterator[Processes]:
    yield Processes(run_name, tmp_path)
    shutil.rmtree(Path("/tmp/flyte/metadata", run_name), ignore_errors=True)  # where Flyte puts it
    shutil.rmtree(Path("/tmp/flyte/raw_data", run_name), ignore_errors=True)


def test_a_process_killed_in_a_turn_and_one_killed_between_record_and_trace_lose_nothing(processes: Processes) -> None:
    processes.kill("dies in turn 1")
    assert processes.events() == ["turn 0", "turn 1"]
    processes.kill("dies between record and trace")  # of turn 1: turn 0 is replayed
    assert processes.events() == ["turn 1"]
    processes.kill("dies in the tool")
    turn, first_key = processes.events()
    assert turn == "turn 2"
    answers = processes.answers(processes.start())
    [second_key] = processes.events()
    assert first_key == second_key
    assert len({answer.rpartition(" ")[2] for answer in answers[:3]}) == 3  # each from the process that made it
    assert answers[3] == "paid 5"


def test_two_processes_that_write_one_record_agree_on_the_answer(processes: Processes) -> None:
    both = [processes.start("meets in the call") for _ in range(2)]
    first, second = [processes.answers(process) for process in both]
    assert first == second
    assert processes.events().count("turn 0") == 2
