"""Streamed leaves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from flyteplugins.agents.core import JSON, Recorder, StreamEnd, record_stream


class ListCodec:
    def encode(self, value: list[str]) -> JSON:
        return list(value)

    def decode(self, payload: JSON) -> list[str]:
        assert isinstance(payload, list)
        return [str(piece) for piece in payload]


class Source:
    """A stream of pieces; an exception among them is raised."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces = pieces
        self.opened = 0
        self.closed = 0

    async def __call__(self) -> AsyncIterator[str]:
        self.opened += 1
        try:
            for piece in self.pieces:
                await asyncio.sleep(0)
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed += 1


def stream(recorder: Recorder, source: Source) -> Any:
    return record_stream(
        recorder, "turn", {"question": "q"}, source, codec=ListCodec(), is_last=lambda piece: piece == "done"
    )


async def read(recorder: Recorder, source: Source) -> list[Any]:
    return [item async for item in stream(recorder, source)]


Attempt = Callable[..., Awaitable[Any]]


async def test_pieces_are_handed_on_and_replayed_without_opening_the_stream(attempt: Attempt, start_agent: Any) -> None:
    source = Source("a", "b", "done", "after")

    async def body() -> list[Any]:
        async with start_agent() as run:
            return await read(run.recorder, source)

    *live, end = await attempt(body)
    assert live == [("a", False), ("b", False), ("done", False), ("after", False)]
    assert isinstance(end, StreamEnd)
    assert not end.recorded.replayed
    *again, end = await attempt(body)
    assert again == [("a", True), ("b", True), ("done", True), ("after", True)]
    assert end.recorded.replayed
    assert (source.opened, source.closed) == (1, 1)


async def test_the_piece_that_completes_the_answer_has_the_record_behind_it(attempt: Any, start_agent: Any) -> None:
    seen: dict[str, int] = {}

    async def body() -> None:
        async with start_agent() as run:
            async for item in stream(run.recorder, Source("a", "done", "after")):
                if isinstance(item, tuple):
                    seen[item[0]] = len(attempt.files("turn."))

    await attempt(body)
    assert seen == {"a": 0, "done": 1, "after": 1}


async def test_a_stream_that_breaks_hands_on_what_arrived_and_leaves_no_record(attempt: Any, start_agent: Any) -> None:
    seen: list[Any] = []

    async def body() -> None:
        async with start_agent() as run:
            async for item in stream(run.recorder, Source("a", "b", ConnectionError("gone"))):
                seen.append(item)

    with pytest.raises(ConnectionError, match="gone"):
        await attempt(body)
    assert seen == [("a", False), ("b", False)]
    assert attempt.files("turn.") == []


async def test_a_stream_that_is_left_early_is_closed_and_leaves_no_record(attempt: Any, start_agent: Any) -> None:
    source = Source("a", "b", "done")

    async def body() -> None:
        async with start_agent() as run:
            pieces = stream(run.recorder, source)
            assert await anext(pieces) == ("a", False)
            await pieces.aclose()

    await attempt(body)
    assert source.closed == 1
    assert attempt.files("turn.") == []


async def test_a_streamed_turn_and_one_that_is_not_have_one_key(attempt: Any, start_agent: Any) -> None:
    async def streamed() -> Any:
        async with start_agent() as run:
            return await read(run.recorder, Source("a", "done"))

    async def plain() -> Any:
        async def call() -> list[str]:
            raise AssertionError("asked again")

        async with start_agent() as run:
            return await run.recorder.record("turn", {"question": "q"}, call, codec=ListCodec())

    await attempt(streamed)
    assert (await attempt(plain)).value == ["a", "done"]


async def test_outside_of_a_task_the_stream_is_passed_through(start_agent: Any) -> None:
    async with start_agent() as run:
        *pieces, end = await read(run.recorder, Source("a", "done"))
    assert pieces == [("a", False), ("done", False)]
    assert end.recorded.value == ["a", "done"]


async def test_a_reader_that_leaves_a_stream_which_has_failed_by_then_is_told_nothing(
    attempt: Any, start_agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with start_agent() as run:
            pieces = stream(run.recorder, Source("a", ConnectionError("gone")))
            assert await anext(pieces) == ("a", False)
            for _ in range(20):  # the leaf comes to its end meanwhile
                await asyncio.sleep(0)
            await pieces.aclose()
            del pieces
        gc.collect()

    await attempt(body)
    assert "ConnectionError('gone')" not in caplog.text  # what else is collected may tell of itself
