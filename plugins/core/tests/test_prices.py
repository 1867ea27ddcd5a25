"""What turns cost: list prices, known or unknown, and never nothing for want of a price."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from flyteplugins.agents.core import JSON, AgentRun, JsonCodec, RunUsage, TurnFacts, TurnFinished, Usage
from flyteplugins.agents.core._prices import turn_cost

if TYPE_CHECKING:
    from .conftest import Attempts, StartAgent

TOKENS = Usage(requests=1, input_tokens=1_000_000, output_tokens=100_000)


async def take_turn(run: AgentRun, question: str, model: str = "gpt-4.1", usage: Usage = TOKENS, **facts: Any) -> None:
    async def ask() -> JSON:
        return f"answer to {question}"

    await run.turn(
        {"question": question},
        ask,
        codec=JsonCodec(),
        facts=lambda value: TurnFacts(str(value), usage=usage, **facts),
        model=model,
    )


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4.1", ""),
        ("gpt-4.1-2025-04-14", ""),
        ("openai/gpt-4.1", ""),
        ("openai:gpt-4.1", ""),
        ("gpt-4.1", "openai"),
        ("gpt-4.1", "a provider that the list does not have"),
    ],
)
async def test_a_model_has_its_list_price_however_it_is_written(model: str, provider: str) -> None:
    assert await turn_cost(model, TOKENS, provider=provider) == pytest.approx(2.0 + 0.8)  # $2 and $8 for a million


async def test_the_default_models_of_the_adapters_have_prices() -> None:
    for model in ("gpt-4.1", "gemini-2.0-flash", "models/gemini-2.5-pro", "mistral-large-latest", "claude-sonnet-4-5"):
        assert (await turn_cost(model, TOKENS) or 0) > 0, model


@pytest.mark.parametrize("model", ["my-own-model", "my-gpt-4.1-clone", "gpt", "", ":", "/", "local/llama", "x:y/z"])
async def test_the_price_of_an_unknown_model_is_unknown(model: str) -> None:
    assert await turn_cost(model, TOKENS) is None


async def test_a_turn_whose_tokens_nobody_told_has_no_known_price() -> None:
    assert await turn_cost("gpt-4.1", Usage(requests=1)) is None


async def test_counts_that_contradict_each_other_have_no_price() -> None:
    assert await turn_cost("gpt-4.1", Usage(1, input_tokens=10, output_tokens=1, cached_tokens=20)) is None


async def test_cached_tokens_cost_what_the_list_says_of_them() -> None:
    fresh = await turn_cost("claude-sonnet-4-5", Usage(1, 100_000, 0))
    cached = await turn_cost("claude-sonnet-4-5", Usage(1, 100_000, 0, cached_tokens=100_000))
    written = await turn_cost("claude-sonnet-4-5", Usage(1, 100_000, 0, cache_write_tokens=100_000))
    assert fresh == pytest.approx(0.3)
    assert cached == pytest.approx(0.03)
    assert written == pytest.approx(0.375)


async def test_reasoning_is_part_of_the_output_and_not_paid_twice() -> None:
    assert await turn_cost("gpt-4.1", dataclasses.replace(TOKENS, reasoning_tokens=50_000)) == pytest.approx(2.8)


async def test_a_price_is_that_of_the_time_when_the_turn_was_asked() -> None:
    before = datetime(2025, 6, 1, tzinfo=UTC).timestamp()  # the price of o3 fell to a fifth on 2025-06-10
    assert await turn_cost("o3", TOKENS, started=before) == pytest.approx(10.0 + 4.0)
    assert await turn_cost("o3", TOKENS) == pytest.approx(2.0 + 0.8)


async def test_a_replayed_turn_tells_what_it_cost_and_is_no_spend(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    costs: list[float | None] = []

    def listen(event: object) -> None:
        if isinstance(event, TurnFinished):
            costs.append(event.cost)

    async def body() -> tuple[RunUsage, Any]:
        async with start_agent(on_event=listen) as run:
            await take_turn(run, "one")
            if not attempt.died:
                raise killed
            await take_turn(run, "two", "gpt-4.1-mini")
            return run.usage, run.result("", "", None).as_dict()

    await attempt(body)
    usage, result = await attempt(body)
    assert costs == pytest.approx([2.8, 2.8, 0.56])
    assert (usage.fresh_cost, usage.replayed_cost) == (pytest.approx(0.56), pytest.approx(2.8))
    assert usage.total_cost == pytest.approx(3.36)
    assert result["usage"]["fresh_cost"] == pytest.approx(0.56)
    assert result["usage"]["replayed_cost"] == pytest.approx(2.8)
    assert [turn["cost"] for turn in result["turns"]] == pytest.approx([2.8, 0.56])


async def test_one_turn_of_unknown_price_makes_the_sum_unknown(attempt: Attempts, start_agent: StartAgent) -> None:
    async def body() -> RunUsage:
        async with start_agent() as run:
            await take_turn(run, "one")
            await take_turn(run, "two", "my-own-model")
            await take_turn(run, "three")
            return run.usage

    usage = await attempt(body)
    assert usage.fresh_cost is None
    assert usage.replayed_cost == 0
    assert usage.total_cost is None


async def test_a_turn_that_failed_costs_nothing_that_is_known_of(attempt: Attempts, start_agent: StartAgent) -> None:
    async def fail() -> JSON:
        raise ConnectionError("the provider is away")

    async def body() -> RunUsage:
        async with start_agent() as run:
            with pytest.raises(ConnectionError):
                await run.turn({"q": 1}, fail, codec=JsonCodec(), facts=lambda _: TurnFacts(), model="gpt-4.1")
            await take_turn(run, "two")
            return run.usage

    assert (await attempt(body)).fresh_cost == pytest.approx(2.8)


async def test_a_streamed_turn_has_its_price_as_well(attempt: Attempts, start_agent: StartAgent) -> None:
    class Pieces:
        def encode(self, value: list[str]) -> JSON:
            return cast(JSON, value)

        def decode(self, payload: JSON) -> list[str]:
            return cast("list[str]", payload)

    async def pieces() -> AsyncIterator[str]:
        yield "a"
        yield "b"

    async def body() -> RunUsage:
        async with start_agent() as run:
            stream = run.stream_turn(
                {"question": "q"},
                pieces,
                codec=Pieces(),
                facts=lambda value: TurnFacts("".join(value), usage=TOKENS),
                delta=str,
                is_last=lambda piece: piece == "b",
                model="gpt-4.1",
            )
            assert [piece async for piece in stream] == ["a", "b"]
            return run.usage

    assert (await attempt(body)).fresh_cost == pytest.approx(2.8)


def test_importing_core_does_not_read_the_price_list() -> None:
    program = "import sys, flyteplugins.agents.core; print([name for name in sys.modules if 'genai_prices' in name])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "[]"
