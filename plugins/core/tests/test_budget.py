"""Limits of an agent run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flyteplugins.agents.core import (
    AgentError,
    AgentRun,
    Budget,
    BudgetExceededError,
    JsonCodec,
    MemoryStore,
    RunMemory,
    TurnFacts,
    Usage,
    as_agent_tool,
)

Attempt = Callable[..., Awaitable[Any]]


class Asked:
    """Counts what was asked of the model."""

    def __init__(self) -> None:
        self.questions: list[str] = []

    async def __call__(self, run: AgentRun, question: str, *, tokens: int = 10, model: str = "gpt-4.1") -> Any:
        async def call() -> str:
            self.questions.append(question)
            return f"answer to {question}"

        recorded = await run.turn(
            {"messages": [{"role": "user", "content": question}]},
            call,
            codec=JsonCodec(),
            facts=lambda answer: TurnFacts(
                str(answer),
                usage=Usage(requests=1, input_tokens=tokens),
                messages=[{"role": "assistant", "content": answer}],
            ),
            model=model,
        )
        return recorded.value


@pytest.fixture
def ask() -> Asked:
    return Asked()


async def test_a_turn_more_than_the_budget_has_is_not_asked(attempt: Attempt, start_agent: Any, ask: Asked) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(turns=2)) as run:
            for question in ("one", "two", "three"):
                await ask(run, question)

    for _ in range(2):  # the retry goes the same way, with nothing asked again
        with pytest.raises(BudgetExceededError, match="turns may be 2, and would be 3") as caught:
            await attempt(body)
        assert (caught.value.limit, caught.value.allowed, caught.value.used) == ("turns", 2, 3)
        assert caught.value.spent.tokens == 20
    assert ask.questions == ["one", "two"]


async def test_the_error_carries_the_conversation_so_far(attempt: Attempt, start_agent: Any, ask: Asked) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(tokens=5)) as run:
            await ask(run, "one")

    with pytest.raises(BudgetExceededError) as caught:
        await attempt(body)
    assert caught.value.messages == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "answer to one"},
    ]


async def test_tokens_are_counted_after_each_turn(attempt: Attempt, start_agent: Any, ask: Asked) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(tokens=25)) as run:
            for question in ("one", "two", "three", "four"):
                await ask(run, question)

    for _ in range(2):
        with pytest.raises(BudgetExceededError, match="tokens may be 25, and would be 30"):
            await attempt(body)
    assert ask.questions == ["one", "two", "three"]


async def test_a_turn_that_tells_no_tokens_cannot_be_limited_by_them(
    attempt: Attempt, start_agent: Any, ask: Asked
) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(tokens=25)) as run:
            await ask(run, "one", tokens=0)

    with pytest.raises(AgentError, match="cannot be enforced: the tokens of its last turn: unknown"):
        await attempt(body)


async def test_cost_is_limited_by_list_price(attempt: Attempt, start_agent: Any, ask: Asked) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(cost=0.003)) as run:
            await ask(run, "one", tokens=1000)  # 2 USD per million
            await ask(run, "two", tokens=1000)

    for _ in range(2):
        with pytest.raises(BudgetExceededError, match=r"cost may be 0\.003, and would be 0\.004"):
            await attempt(body)
    assert ask.questions == ["one", "two"]


async def test_the_cost_of_an_unknown_model_is_not_taken_for_nothing(
    attempt: Attempt, start_agent: Any, ask: Asked
) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(cost=1)) as run:
            await ask(run, "one", model="nobody-sells-this")

    with pytest.raises(AgentError, match="cannot be enforced: the cost of its last turn: unknown"):
        await attempt(body)


async def test_seconds_are_those_of_the_turn_when_it_was_made(
    attempt: Attempt, start_agent: Any, monkeypatch: pytest.MonkeyPatch, ask: Asked
) -> None:
    """The retry answers it at once, and is over the limit all the same."""
    clock = [0.0]
    monkeypatch.setattr("flyteplugins.agents.core._recorder.time.perf_counter", lambda: clock[0])

    async def body() -> None:
        async with start_agent(budget=Budget(seconds=5)) as run:

            async def slow() -> str:
                ask.questions.append("slow")
                clock[0] += 6
                return "answer"

            await run.turn(
                {"messages": []},
                slow,
                codec=JsonCodec(),
                facts=lambda answer: TurnFacts(str(answer), usage=Usage(requests=1, input_tokens=1)),
                model="gpt-4.1",
            )

    for _ in range(2):
        with pytest.raises(BudgetExceededError, match="seconds may be 5, and would be 6"):
            await attempt(body)
    assert ask.questions == ["slow"]


async def test_tool_calls_are_limited(attempt: Attempt, start_agent: Any) -> None:
    ran: list[str] = []

    def note(text: str) -> str:
        """Note something."""
        ran.append(text)
        return text

    async def body() -> None:
        async with start_agent(budget=Budget(tool_calls=2)) as run:
            tool = as_agent_tool(note)
            for text in ("a", "b", "c"):
                await tool.call({"text": text})
            assert run

    for _ in range(2):
        with pytest.raises(BudgetExceededError, match="tool_calls may be 2, and would be 3"):
            await attempt(body)
    assert ran == ["a", "b"]


async def test_equal_calls_of_one_tool_are_limited(attempt: Attempt, start_agent: Any) -> None:
    ran: list[str] = []

    def note(text: str, times: int = 1) -> str:
        """Note something."""
        ran.append(text)
        return text

    async def body() -> None:
        async with start_agent(budget=Budget(same_call=2)):
            tool = as_agent_tool(note)
            await tool.call('{"text": "a", "times": 1}')
            await tool.call('{"text": "b"}')
            await tool.call('{"times": 1, "text": "a"}')
            await tool.call('{"text": "a", "times": 1}')

    with pytest.raises(BudgetExceededError, match="same_call may be 2, and would be 3"):
        await attempt(body)
    assert ran == ["a", "b", "a"]


async def test_who_swallows_the_error_gets_it_again(attempt: Attempt, start_agent: Any, ask: Asked) -> None:
    async def body() -> str:
        async with start_agent(budget=Budget(turns=1)) as run:
            await ask(run, "one")
            for question in ("two", "three"):
                with pytest.raises(BudgetExceededError):
                    await ask(run, question)
        return "an answer that is none"

    with pytest.raises(BudgetExceededError, match="turns may be 1"):
        await attempt(body)
    assert ask.questions == ["one"]


async def test_an_exception_that_the_sdk_makes_of_it_does_not_hide_it(
    attempt: Attempt, start_agent: Any, ask: Asked
) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(turns=0)) as run:
            try:
                await ask(run, "one")
            except BudgetExceededError as error:
                raise ValueError("the model failed") from error

    with pytest.raises(BudgetExceededError, match="turns may be 0"):
        await attempt(body)


async def test_a_run_over_its_budget_commits_no_memory(attempt: Attempt, start_agent: Any, ask: Asked) -> None:
    async def body() -> None:
        async with start_agent(budget=Budget(turns=0), memory_key="ada") as run:
            memory = await RunMemory.open(run, "ada", sdk="test")
            with pytest.raises(BudgetExceededError):
                await ask(run, "one")
            await memory.commit(["said"])

    with pytest.raises(BudgetExceededError):
        await attempt(body)
    assert await attempt(lambda: MemoryStore.for_key("ada").messages("test"), name="reader") == []


async def test_what_an_agent_inside_of_a_tool_uses_counts_also_when_the_tool_is_replayed(
    attempt: Attempt, start_agent: Any, ask: Asked, killed: type[BaseException]
) -> None:
    died: list[bool] = []

    async def research(topic: str) -> str:
        """Ask another agent."""
        async with start_agent("researcher", topic) as inner:
            await ask(inner, "inner one")
            await ask(inner, "inner two")
        return topic

    async def body() -> None:
        async with start_agent(budget=Budget(turns=3)) as run:
            await ask(run, "outer one")
            await as_agent_tool(research).call({"topic": "whales"})
            assert run.meter.spent.turns == 3
            assert run.meter.spent.tokens == 30
            if not died:
                died.append(True)
                raise killed
            await ask(run, "outer two")

    await attempt(body)
    with pytest.raises(BudgetExceededError, match="turns may be 3, and would be 4"):
        await attempt(body)
    assert ask.questions == ["outer one", "inner one", "inner two"]


async def test_turns_of_the_same_run_inside_of_a_tool_count_also_when_the_tool_is_replayed(
    attempt: Attempt, start_agent: Any, ask: Asked
) -> None:
    """An SDK's agent that a tool runs belongs to the agent run around it."""
    died: list[bool] = []

    async def body() -> None:
        async with start_agent(budget=Budget(turns=3)) as run:

            async def research(topic: str) -> str:
                """Ask another agent."""
                await ask(run, "inner one")
                await ask(run, "inner two")
                return topic

            await ask(run, "outer one")
            await as_agent_tool(research).call({"topic": "whales"})
            assert run.meter.spent.turns == 3
            if not died:
                died.append(True)
                raise ValueError("died")
            await ask(run, "outer two")

    with pytest.raises(ValueError, match="died"):
        await attempt(body)
    with pytest.raises(BudgetExceededError, match="turns may be 3, and would be 4"):
        await attempt(body)
    assert ask.questions == ["outer one", "inner one", "inner two"]


async def test_an_agent_inside_of_a_tool_is_stopped_by_the_budget_around_it(
    attempt: Attempt, start_agent: Any, ask: Asked
) -> None:
    async def research(topic: str) -> str:
        """Ask another agent."""
        async with start_agent("researcher", topic) as inner:
            for number in range(5):
                await ask(inner, f"inner {number}")
        return topic

    async def body() -> None:
        async with start_agent(budget=Budget(turns=3)) as run:
            await ask(run, "outer")
            await as_agent_tool(research).call({"topic": "whales"})

    with pytest.raises(BudgetExceededError, match="'agent' is over its budget: turns may be 3"):
        await attempt(body)
    assert ask.questions == ["outer", "inner 0", "inner 1"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"turns": -1}, ValueError, "Budget turns is -1; give 0 or more"),
        ({"turns": 1.5}, TypeError, "Budget turns is 1.5; give a whole number"),
        ({"cost": "1 USD"}, TypeError, "Budget cost is '1 USD'; give a number"),
        ({"seconds": float("nan")}, ValueError, "Budget seconds is nan"),
        ({"tokens": True}, TypeError, "Budget tokens is True"),
    ],
)
def test_a_limit_that_is_none_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Budget(**options)


async def test_something_else_than_a_budget_is_refused(start_agent: Any) -> None:
    with pytest.raises(TypeError, match=r"budget is a int; give a Budget"):
        async with start_agent(budget=5):
            pass
