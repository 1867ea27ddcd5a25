"""A tool call runs once, gives the model text, and is never made again after it has ended."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import math
import threading
from typing import TYPE_CHECKING, Any

import flyte
import flyte.errors
import pytest

from flyteplugins.agents.core import (
    AgentError,
    AgentTool,
    RecordError,
    ToolOutcome,
    ToolTimeoutError,
    as_agent_tool,
    current_run,
    current_scope,
    idempotency_key,
)

if TYPE_CHECKING:
    from .conftest import Attempts, Model, StartAgent

env = flyte.TaskEnvironment("core-tool-tests")

_EFFECTS: list[str] = []
"""What tasks did: they are in no test's closure."""

_BEHAVIOUR: dict[str, Any] = {}
"""What tasks are to do."""


@pytest.fixture(autouse=True)
def _fresh_effects() -> None:
    _EFFECTS.clear()
    _BEHAVIOUR.clear()


@env.task(cache="disable")
async def book(city: str, nights: int = 1) -> dict[str, Any]:
    """Book a hotel.

    Args:
        city: Where.
        nights: How long.
    """
    _EFFECTS.append(f"{city} {idempotency_key()}")
    happens = _BEHAVIOUR.get(f"call {len(_EFFECTS)}")
    if happens is not None:
        raise happens
    return {"city": city, "nights": nights, "number": len(_EFFECTS)}


@env.task
def halve(number: int) -> float:
    """Halve a number."""
    scope = current_scope()
    assert scope is not None
    _EFFECTS.append(scope.action)
    return number / 2


# the two kinds


async def test_a_task_runs_as_a_child_action_and_its_result_is_text(attempt: Attempts, start_agent: StartAgent) -> None:
    async def body() -> tuple[str, list[str]]:
        async with start_agent():
            outcomes = [await AgentTool(book).call('{"city": "Oslo"}'), await AgentTool(halve).call({"number": 3})]
        scope = current_scope()
        assert scope is not None
        return scope.action, [outcome.text for outcome in outcomes]

    action, texts = await attempt(body)
    assert json.loads(texts[0]) == {"city": "Oslo", "nights": 1, "number": 1}
    assert texts[1] == "1.5"
    assert _EFFECTS[0].startswith("Oslo ")
    assert _EFFECTS[1] != action  # an action of its own


@pytest.mark.parametrize("durable", [True, False])
async def test_a_task_tool_that_ended_is_not_run_again(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException], durable: bool
) -> None:
    async def body() -> list[ToolOutcome]:
        async with start_agent(durable=durable):
            outcomes = [await AgentTool(book).call({"city": city}) for city in ("Oslo", "Rome")]
            if not attempt.died:
                raise killed
            return outcomes

    await attempt(body)
    outcomes = await attempt(body)
    assert [outcome.replayed for outcome in outcomes] == [True, True]
    assert ['"number":1' in outcomes[0].text, '"number":2' in outcomes[1].text] == [True, True]
    assert len(_EFFECTS) == 2


@pytest.mark.parametrize("form", ["coroutine function", "function", "callable object", "partial", "method"])
async def test_any_callable_is_a_tool_and_runs_once(attempt: Attempts, start_agent: StartAgent, form: str) -> None:
    effects: list[Any] = []

    async def search(query: str) -> str:
        """Search."""
        effects.append(threading.current_thread())
        return f"found {query}"

    def search_sync(query: str) -> str:
        """Search."""
        effects.append(threading.current_thread())
        return f"found {query}"

    class Search:
        """Searches."""

        async def __call__(self, query: str) -> str:
            """Search."""
            return await search(query)

        async def method(self, query: str) -> str:
            """Search."""
            return await search(query)

    target: Any = {
        "coroutine function": search,
        "function": search_sync,
        "callable object": Search(),
        "partial": functools.partial(search, query="owls"),
        "method": Search().method,
    }[form]
    tool = AgentTool(target, name="search")

    async def body() -> tuple[ToolOutcome, threading.Thread]:
        async with start_agent():
            return await tool.call({} if form == "partial" else {"query": "owls"}), threading.current_thread()

    for replayed in (False, True):
        outcome, thread = await attempt(body)
        assert (outcome.text, outcome.error, outcome.replayed) == ("found owls", None, replayed)
    [worker] = effects
    assert (worker is not thread) == (form == "function")  # a sync function does not block the loop
    assert len(attempt.files("tool.")) == 1


async def test_a_call_is_told_apart_by_its_arguments_after_defaults_and_coercion(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    calls: list[tuple[int, float]] = []

    async def area(width: int, height: float = 1) -> float:
        """Multiply."""
        calls.append((width, height))
        return width * height

    tool = AgentTool(area)
    forms: list[Any] = ['{"width": 2}', {"width": "2"}, b'{"height": 1.0, "width": 2}', {"width": 3}]

    def body(arguments: Any) -> Any:
        async def run() -> ToolOutcome:
            async with start_agent():
                return await tool.call(arguments)

        return run

    outcomes = [await attempt(body(form)) for form in forms]
    assert [outcome.replayed for outcome in outcomes] == [False, True, True, False]
    assert calls == [(2, 1), (3, 1)]


async def test_a_tool_that_opts_out_is_called_each_time(attempt: Attempts, start_agent: StartAgent) -> None:
    calls: list[int] = []

    async def now() -> str:
        """Tell the time."""
        calls.append(1)
        return str(len(calls))

    async def body() -> ToolOutcome:
        async with start_agent():
            return await AgentTool(now, durable=False).call({})

    assert (await attempt(body)).text == "1"
    outcome = await attempt(body)
    assert (outcome.text, outcome.replayed) == ("2", False)
    assert [*attempt.files("tool."), *attempt.files("started.")] == []


async def test_outside_of_a_task_the_same_tools_work_and_nothing_is_stored(start_agent: StartAgent) -> None:
    async def add(one: int, two: int) -> int:
        """Add."""
        return one + two

    for _ in range(2):
        async with start_agent():
            assert (await AgentTool(add).call({"one": 1, "two": 2})).text == "3"
            assert (await AgentTool(double_without_scope).call({"number": 2})).text == "4"
    assert (await AgentTool(add).call({"one": 1, "two": 2})).text == "3"  # outside of an agent run, too


@env.task
def double_without_scope(number: int) -> int:
    """Double a number."""
    assert current_scope() is None
    return number * 2


async def test_injected_values_reach_the_function_and_not_the_record(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    class Context:
        user = "alice"

    async def who(greeting: str, context: Context) -> str:
        """Greet."""
        return f"{greeting} {context.user}"

    tool = AgentTool(who, hidden=["context"])

    async def body() -> ToolOutcome:
        async with start_agent():
            return await tool.call({"greeting": "hi"}, injected={"context": Context()})

    assert (await attempt(body)).text == "hi alice"
    assert (await attempt(body)).replayed
    [file] = attempt.files("tool.")
    assert b"Context" not in file.read_bytes()


# results and errors


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain <text>", "plain <text>"),
        (None, "null"),
        ([1, {"a": True}], '[1,{"a":true}]'),
        (math.nan, None),
        (b"\x00\xff", None),
        ("lone \ud83d", None),
        ("x" * 12_000_000, "x" * 12_000_000),
    ],
    ids=lambda value: str(value).encode("ascii", "replace").decode()[:15],
)
async def test_a_result_reaches_the_model_as_the_same_text_on_every_attempt(
    attempt: Attempts, start_agent: StartAgent, value: Any, text: str | None
) -> None:
    async def give() -> Any:
        """Give something."""
        return value

    async def body() -> ToolOutcome:
        async with start_agent():
            return await AgentTool(give).call({})

    fresh, replayed = await attempt(body), await attempt(body)
    assert isinstance(fresh.text, str)
    assert fresh.text == replayed.text
    assert (fresh.replayed, replayed.replayed) == (False, True)
    if text is not None:
        assert fresh.text == text


async def test_an_exception_is_told_to_the_model_and_that_too_is_not_made_again(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    calls: list[int] = []

    async def fail() -> str:
        """Fail."""
        calls.append(1)
        raise ZeroDivisionError("nothing there")

    async def body() -> ToolOutcome:
        async with start_agent():
            return await AgentTool(fail).call({})

    outcome = await attempt(body)
    assert outcome.error == "ZeroDivisionError: nothing there"
    assert outcome.text == "Error: the tool fail failed. ZeroDivisionError: nothing there"
    again = await attempt(body)
    assert (again.text, again.error, again.replayed) == (outcome.text, outcome.error, True)
    assert len(calls) == 1


async def test_a_tasks_exception_is_told_by_the_class_that_its_worker_raised(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    _BEHAVIOUR["call 1"] = PermissionError("not yours")

    async def body() -> ToolOutcome:
        async with start_agent():
            return await AgentTool(book).call({"city": "Oslo"})

    outcome = await attempt(body)
    assert outcome.error == "PermissionError: not yours"
    assert (await attempt(body)).error == outcome.error
    assert len(_EFFECTS) == 1


@pytest.mark.parametrize("kind", ["task", "function"])
async def test_a_tools_exception_can_fail_the_run_for_good(
    attempt: Attempts, start_agent: StartAgent, kind: str
) -> None:
    _BEHAVIOUR["call 1"] = PermissionError("not yours")

    async def fail(city: str) -> str:
        """Fail."""
        raise PermissionError("not yours")

    async def body() -> None:
        async with start_agent(on_tool_error="raise"):
            await AgentTool(book if kind == "task" else fail).call({"city": "Oslo"})

    with pytest.raises(flyte.errors.NonRecoverableError, match="PermissionError: not yours") as caught:
        await attempt(body)
    assert isinstance(caught.value, AgentError)
    assert attempt.files("tool.") == []  # it is asked again by the next attempt


@pytest.mark.parametrize("arguments", ['{"city": 5, "nights": "x"}', "{}", "not JSON", '{"city": "a", "other": 1}'])
async def test_a_bad_argument_is_told_to_the_model_and_calls_nothing(
    attempt: Attempts, start_agent: StartAgent, arguments: str
) -> None:
    async def body() -> ToolOutcome:
        async with start_agent() as run:
            outcome = await AgentTool(book).call(arguments)
            assert len(run.tool_calls) == 1
            return outcome

    outcome = await attempt(body)
    assert outcome.text.startswith("Error: ")
    assert outcome.error is not None
    assert outcome.error.startswith("ToolArgumentError: ")
    assert _EFFECTS == []


async def test_the_sdks_control_flow_passes_and_leaves_no_record(attempt: Attempts, start_agent: StartAgent) -> None:
    class Interrupt(Exception):
        """How an SDK steers its loop."""

    calls: list[int] = []

    async def ask_human() -> str:
        """Ask."""
        calls.append(1)
        if len(calls) == 1:
            raise Interrupt("which one?")
        return "this one"

    async def body() -> ToolOutcome:
        async with start_agent(control_flow=(Interrupt,), on_tool_error="raise") as run:
            tool = AgentTool(ask_human)
            with pytest.raises(Interrupt, match="which one"):
                await tool.call({})
            assert run.tool_calls[0].error == "Interrupt: which one?"
            return await tool.call({})

    assert (await attempt(body)).text == "this one"


async def test_a_damaged_record_of_an_agent_in_a_tool_is_not_told_to_the_model(
    attempt: Attempts, start_agent: StartAgent, model: Model, killed: type[BaseException]
) -> None:
    async def delegate() -> str:
        """Ask another agent."""
        async with start_agent("inner") as inner:
            answer = await model.say(inner.recorder, "q")
            if not attempt.died:
                raise killed
            return str(answer)

    async def body() -> ToolOutcome:
        async with start_agent("outer"):
            return await AgentTool(delegate).call({})

    await attempt(body)
    [file] = attempt.files("turn.")
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(RecordError):
        await attempt(body)


# several calls


@pytest.mark.parametrize(("limit", "at_once"), [(None, 4), (2, 2), (1, 1)])
async def test_parallel_calls_overlap_up_to_the_limit_and_keep_their_order(
    attempt: Attempts, start_agent: StartAgent, limit: int | None, at_once: int
) -> None:
    running: list[int] = []
    most: list[int] = []

    async def body() -> list[str]:
        together = asyncio.Barrier(at_once)

        async def work(number: int) -> int:
            """Work."""
            running.append(number)
            await together.wait()  # as many as there are places: fewer would wait for ever
            most.append(len(running))
            running.remove(number)
            return number

        async with start_agent(max_concurrent_tools=limit):
            tool = AgentTool(work)
            outcomes = await asyncio.gather(*(tool.call({"number": number}) for number in range(4)))
            return [outcome.text for outcome in outcomes]

    assert await attempt(body) == ["0", "1", "2", "3"]
    assert max(most) == at_once


async def test_a_tool_that_calls_a_tool_does_not_wait_for_its_own_place(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def inner() -> str:
        """Do the work."""
        return "done"

    async def outer() -> str:
        """Have a sub-agent do the work."""
        return (await AgentTool(inner).call({})).text

    async def body() -> str:
        async with start_agent(max_concurrent_tools=1):
            async with asyncio.timeout(20):  # it hangs, or is there at once
                return (await AgentTool(outer).call({})).text

    assert await attempt(body) == "done"


async def test_sub_agents_that_make_equal_calls_keep_each_their_own_result(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    drawn: list[str] = []

    async def draw() -> str:
        """Draw a card."""
        drawn.append(f"card {len(drawn)}")
        return drawn[-1]

    tool = AgentTool(draw)

    def body(order: str) -> Any:
        async def run() -> dict[str, str]:
            hands: dict[str, str] = {}
            async with start_agent() as agent:
                for who in order:  # which of two parallel sub-agents is first is chance

                    async def sub_agent(who: str = who) -> str:
                        """An agent used as a tool, which is never a leaf itself."""
                        return (await tool.call({}, agent=who)).text

                    sub = AgentTool(sub_agent, name=f"ask_{who}", durable=False)
                    async with agent.recorder.strand():
                        hands[who] = (await sub.call({})).text
                if not attempt.died:
                    raise killed
            return hands

        return run

    await attempt(body("xy"))
    assert await attempt(body("yx")) == {"x": "card 0", "y": "card 1"}


async def test_a_failing_tool_among_parallel_ones_leaves_the_others_alone(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    async def work(number: int) -> int:
        """Work."""
        if number == 1:
            raise ValueError("not one")
        return number

    async def body() -> list[ToolOutcome]:
        async with start_agent():
            return list(await asyncio.gather(*(AgentTool(work).call({"number": number}) for number in range(3))))

    fresh, replayed = await attempt(body), await attempt(body)
    assert [outcome.error for outcome in fresh] == [None, "ValueError: not one", None]
    assert [outcome.text for outcome in fresh] == [outcome.text for outcome in replayed]
    assert all(outcome.replayed for outcome in replayed)


@pytest.mark.parametrize("ids", [("", ""), ("call_1", "call_1")], ids=["no ids", "equal ids of two sub-agents"])
async def test_each_call_of_the_result_has_its_own_arguments(
    attempt: Attempts, start_agent: StartAgent, ids: tuple[str, str]
) -> None:
    async def body() -> list[tuple[Any, str]]:
        both = asyncio.Barrier(2)

        async def work(number: int) -> int:
            """Work."""
            await both.wait()
            return number

        async with start_agent() as run:
            calls = (
                AgentTool(work).call({"number": number}, call_id=call_id, agent=f"agent {number}")
                for number, call_id in enumerate(ids)
            )
            await asyncio.gather(*calls)
            return [(call.arguments, call.result) for call in run.tool_calls]

    assert sorted(await attempt(body), key=str) == [({"number": 0}, "0"), ({"number": 1}, "1")]


# the context of a body

_VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("test_tools", default="unset")


@pytest.mark.parametrize("kind", ["coroutine function", "function"])
async def test_a_body_runs_in_the_tasks_context(attempt: Attempts, start_agent: StartAgent, kind: str) -> None:
    def look() -> str:
        """Look around."""
        scope, run = current_scope(), current_run()
        assert scope is not None
        assert run is not None
        return f"{_VARIABLE.get()} {scope.action} {run.name}"

    async def look_async() -> str:
        """Look around."""
        return look()

    async def body() -> tuple[str, str]:
        _VARIABLE.set("the caller's")
        scope = current_scope()
        assert scope is not None
        async with start_agent():
            tool = AgentTool(look if kind == "function" else look_async, name="look")
            return (await tool.call({})).text, scope.action

    text, action = await attempt(body)
    assert text == f"the caller's {action} agent"


async def test_a_body_may_call_tasks_and_run_agents(attempt: Attempts, start_agent: StartAgent, model: Model) -> None:
    async def delegate() -> str:
        """Ask a task and another agent."""
        half = await halve.aio(number=3)
        async with start_agent("inner") as inner:
            return f"{half} {await model.say(inner.recorder, 'q')}"

    async def body() -> str:
        async with start_agent("outer"):
            return (await AgentTool(delegate).call({})).text

    assert await attempt(body) == await attempt(body) == "1.5 answer to q"
    assert (len(model.asked), len(_EFFECTS)) == (1, 1)


@env.task
async def whose_run_am_i() -> str:
    """Tell."""
    run = current_run()
    return run.name if run is not None else "nobody's"


async def test_a_child_task_is_not_part_of_its_parents_agent_run(attempt: Attempts, start_agent: StartAgent) -> None:
    """On a cluster it is in another process."""

    async def body() -> str:
        async with start_agent():
            return (await AgentTool(whose_run_am_i).call({})).text

    assert await attempt(body) == "nobody's"


# idempotency keys


async def test_an_inline_calls_key_is_the_same_on_every_attempt_and_for_no_other_call(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    keys: list[str] = []

    async def pay(amount: int) -> str:
        """Pay."""
        keys.append(idempotency_key())
        if len(keys) == 3:
            raise killed
        return "paid"

    tool, twin = AgentTool(pay), AgentTool(pay, name="pay_again")

    async def body() -> None:
        async with start_agent():
            for amount in (1, 1, 2):
                await tool.call({"amount": amount})
            await twin.call({"amount": 1})
        async with start_agent():
            await tool.call({"amount": 1})

    await attempt(body)
    assert len(keys) == 3
    await attempt(body)
    assert keys[2] == keys[3]  # the call that was not finished
    await attempt(body, name=f"{attempt.name}-other")
    assert len(keys) == 11
    del keys[3]
    assert len(set(keys)) == 10  # two runs of five calls
    assert all(len(key) == 64 for key in keys)


async def test_a_sync_tool_has_its_key_too(attempt: Attempts, start_agent: StartAgent) -> None:
    keys: list[str] = []

    def pay(amount: int) -> str:
        """Pay."""
        keys.append(idempotency_key())
        return "paid"

    async def body() -> None:
        async with start_agent():
            await asyncio.gather(*(AgentTool(pay).call({"amount": amount}) for amount in (1, 2)))

    await attempt(body)
    assert len(set(keys)) == 2


async def test_tasks_called_by_an_inline_tool_have_keys_of_their_own(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    keys: list[str] = []

    async def pay() -> str:
        """Pay, and book twice."""
        keys.append(idempotency_key())
        await book(city="Oslo")
        await book(city="Oslo")
        return "paid"

    async def body() -> None:
        async with start_agent():
            await AgentTool(pay).call({})

    await attempt(body)
    keys += [effect.rpartition(" ")[2] for effect in _EFFECTS]
    assert len(set(keys)) == 3


async def test_equal_task_calls_keep_their_keys_when_earlier_ones_are_answered_from_records(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    _BEHAVIOUR["call 2"] = killed()

    async def body() -> None:
        async with start_agent():
            for _ in range(2):
                await AgentTool(book).call({"city": "Oslo"})

    await attempt(body)
    await attempt(body)
    first, second, second_again = (effect.rpartition(" ")[2] for effect in _EFFECTS)
    assert first != second
    assert second_again == second  # and not the first one's: the service would take the second booking for a repeat


async def test_equal_tasks_of_inline_tools_keep_their_keys_when_earlier_tools_are_answered_from_records(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    _BEHAVIOUR["call 2"] = killed()

    async def trip(number: int) -> str:
        """Make a trip, which always begins in Oslo."""
        await book(city="Oslo")
        return f"trip {number}"

    async def body() -> None:
        async with start_agent():
            for number in range(2):
                await AgentTool(trip).call({"number": number})

    await attempt(body)
    await attempt(body)
    first, second, second_again = (effect.rpartition(" ")[2] for effect in _EFFECTS)
    assert first != second
    assert second_again == second


@pytest.mark.parametrize("what", ["the tool opts out", "the run opts out"])
async def test_calls_that_are_not_recorded_have_keys_of_their_own(
    attempt: Attempts, start_agent: StartAgent, what: str
) -> None:
    keys: list[str] = []

    async def pay(amount: int) -> str:
        """Pay."""
        keys.append(idempotency_key())
        return "paid"

    tool = AgentTool(pay, durable=what != "the tool opts out")

    async def body() -> None:
        async with start_agent(durable=what != "the run opts out"):
            for amount in (1, 1, 2):
                await tool.call({"amount": amount})

    await attempt(body)
    assert len(set(keys)) == 3
    await attempt(body)
    assert keys[:3] == keys[3:]


async def test_a_key_does_not_change_with_the_agents_configuration(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    keys: list[str] = []

    async def pay(amount: int) -> str:
        """Pay."""
        keys.append(idempotency_key())
        if len(keys) == 1:
            raise killed
        return "paid"

    async def body() -> None:
        async with start_agent(configuration={"instructions": f"It is {9 + len(keys)} o'clock."}):
            await AgentTool(pay).call({"amount": 1})

    await attempt(body)
    await attempt(body)
    assert keys[0] == keys[1]


async def test_in_a_task_without_a_tool_the_key_is_the_tasks(attempt: Attempts) -> None:
    async def body() -> str:
        return idempotency_key()

    first = await attempt(body)
    assert await attempt(body) == first
    assert await attempt(body, name=f"{attempt.name}-other") != first


def test_outside_of_flyte_there_is_no_key() -> None:
    with pytest.raises(RuntimeError, match="outside of a Flyte task"):
        idempotency_key()


# calls that were started and left no outcome


@pytest.mark.parametrize("on_unknown", ["retry", "fail"])
async def test_on_unknown_decides_about_a_call_that_a_crash_cut_off(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException], on_unknown: Any
) -> None:
    calls: list[int] = []

    async def pay(amount: int) -> str:
        """Pay."""
        calls.append(amount)
        if len(calls) == 2:
            raise killed
        return "paid"

    tool = AgentTool(pay, on_unknown=on_unknown)

    async def body() -> list[str]:
        async with start_agent():
            return [(await tool.call({"amount": amount})).text for amount in (1, 2, 3)]

    await attempt(body)
    if on_unknown == "retry":
        assert await attempt(body) == ["paid", "paid", "paid"]
        assert calls == [1, 2, 2, 3]
    else:
        for _ in range(2):
            with pytest.raises(AgentError, match="started pay and ended before it had an outcome"):
                await attempt(body)
        assert calls == [1, 2]


async def test_a_tool_whose_function_failed_is_not_unknown(attempt: Attempts, start_agent: StartAgent) -> None:
    async def pay() -> str:
        """Pay."""
        raise ConnectionError("no bank")

    async def body() -> str:
        async with start_agent():
            tool = AgentTool(pay, on_unknown="fail")
            return (await tool.call({})).text + (await tool.call({})).text

    assert (await attempt(body)).count("no bank") == 2
    assert (await attempt(body)).count("no bank") == 2


# making tools


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: AgentTool(5), TypeError, "5 is a int"),  # type: ignore[arg-type]
        (lambda: AgentTool(len, on_unknown="maybe"), ValueError, "on_unknown is 'maybe'"),  # type: ignore[arg-type]
        (lambda: AgentTool(book, hidden=["city"]), TypeError, "core-tool-tests.book takes the SDK's context in city"),
        (lambda: as_agent_tool("book"), TypeError, "'book' is a str"),
    ],
)
def test_what_cannot_be_a_tool_is_an_error_at_once(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_renaming_keeps_everything_else() -> None:
    async def pay(amount: int, context: object) -> str:
        """Pay."""
        return ""

    tool = AgentTool(pay, hidden=["context"], durable=False, on_unknown="fail")

    class Holder:
        __agent_tool__ = tool

    renamed = as_agent_tool(Holder(), name="charge")
    assert (renamed.name, renamed.description) == ("charge", "Pay.")
    assert (renamed.durable, renamed.on_unknown, set(renamed.hidden)) == (False, "fail", {"context"})
    assert as_agent_tool(Holder()) is tool
    assert tool.name == "pay"
    assert as_agent_tool(Holder(), description="Charge.").description == "Charge."
    assert as_agent_tool(book).task is book


# what the model is told of a failure


async def test_an_adapter_may_say_what_the_model_is_told_of_a_failure_and_that_is_recorded(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    asked: list[str] = []

    async def tell(error: Exception) -> str:
        asked.append(type(error).__name__)
        return f"please: {error}"

    def fail(number: int) -> str:
        raise ValueError(f"{number} is too much")

    async def body() -> list[ToolOutcome]:
        async with start_agent():
            tool = AgentTool(fail)
            return [await tool.call({"number": 3}, on_error=tell), await tool.call({"number": "x"}, on_error=tell)]

    first = await attempt(body)
    again = await attempt(body)
    assert first[0].text == again[0].text == "please: 3 is too much"
    assert first[0].error == "ValueError: 3 is too much"
    assert first[1].text.startswith("please: ")
    assert asked == ["ValueError", "ToolArgumentError", "ToolArgumentError"]


async def test_what_an_adapter_raises_instead_fails_the_run_and_leaves_no_outcome(
    attempt: Attempts, start_agent: StartAgent
) -> None:
    calls: list[int] = []

    async def refuse(error: Exception) -> str:
        raise AgentError("no further") from error

    def fail() -> str:
        calls.append(1)
        raise ValueError("broken")

    async def body() -> None:
        async with start_agent():
            await AgentTool(fail).call({}, on_error=refuse)

    for _ in range(2):
        with pytest.raises(AgentError, match="no further"):
            await attempt(body)
    assert len(calls) == 2


async def test_a_call_that_takes_too_long_is_an_outcome_like_others(attempt: Attempts, start_agent: StartAgent) -> None:
    calls: list[str] = []

    async def tell(error: Exception) -> str:
        assert isinstance(error, ToolTimeoutError)
        return f"too slow: {error.tool}, {error.seconds}"

    async def wait(forever: bool) -> str:
        calls.append("waited")
        if forever:
            await asyncio.Event().wait()
        raise TimeoutError("my own")

    async def body() -> list[str]:
        async with start_agent():
            tool = AgentTool(wait)
            return [
                (await tool.call({"forever": True}, on_error=tell, timeout=0.01)).text,
                (await tool.call({"forever": True}, timeout=0.02)).text,
                (await tool.call({"forever": False}, timeout=60)).text,
            ]

    expected = [
        "too slow: wait, 0.01",
        "Error: the tool wait failed. ToolTimeoutError: The tool wait took longer than 0.02 seconds.",
        "Error: the tool wait failed. TimeoutError: my own",
    ]
    assert await attempt(body) == await attempt(body) == expected
    assert len(calls) == 3


async def test_a_call_that_still_runs_when_the_agent_ends_is_cancelled(attempt: Any, start_agent: Any) -> None:
    ends: list[str] = []
    began = asyncio.Event()

    async def slow(name: str) -> str:
        """Take long."""
        began.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            ends.append(f"{name} was cancelled")
            raise
        return name

    async def body(fails: bool) -> None:
        async with start_agent(f"fails {fails}"):
            began.clear()
            call = asyncio.create_task(as_agent_tool(slow).call({"name": str(fails)}))
            await began.wait()
            if fails:
                raise ValueError("a sibling failed")
            assert not call.done()

    with pytest.raises(ValueError, match="a sibling failed"):
        await attempt(lambda: body(True))
    await attempt(lambda: body(False))
    assert ends == ["True was cancelled", "False was cancelled"]
    assert attempt.files("tool.") == []


def test_a_task_with_a_parameter_that_flyte_cannot_pass_is_refused_with_a_reason() -> None:
    @env.task
    async def odd(self: str) -> str:
        return self

    with pytest.raises(TypeError, match="'self', which Flyte cannot pass"):
        AgentTool(odd)
    assert AgentTool(odd.func).schema.parameters["required"] == ["self"]
