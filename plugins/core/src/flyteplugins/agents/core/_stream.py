"""Streamed leaves: the pieces go on as they arrive, and all of them together are the record."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ._canonical import JSON
from ._recorder import Codec, Recorded, Recorder
from ._records import Kind

__all__ = ["StreamEnd", "record_stream"]

T = TypeVar("T")


@dataclass(frozen=True)
class StreamEnd(Generic[T]):
    """What `record_stream` yields last.

    Attributes:
        recorded: All pieces, whether they came from a record, and how long the call took when it was made.
    """

    recorded: Recorded[list[T]]


async def record_stream(
    recorder: Recorder,
    kind: Kind,
    fields: Mapping[str, object],
    stream: Callable[[], AsyncIterator[T]],
    *,
    codec: Codec[list[T]],
    is_last: Callable[[T], bool] = lambda piece: False,  # noqa: ARG005
    info: Callable[[list[T]], Mapping[str, JSON]] | None = None,
) -> AsyncGenerator[tuple[T, bool] | StreamEnd[T], None]:
    """Yield the pieces of a streamed leaf, live or from its record.

    A piece that completes the answer is held back until the record is made: what follows from the answer, a tool call above
    all, has the record behind it. A stream that breaks, or that the reader leaves early, leaves no record.

    Args:
        recorder: The agent run's recorder.
        kind: What kind of leaf it is.
        fields: The whole request, by field. Streamed or not is not part of it.
        stream: Opens the stream; called at most once.
        codec: How the pieces are kept.
        is_last: Whether a piece completes the answer, so that it waits for the record. The pieces behind it wait as well.
        info: A few facts about the outcome.

    Yields:
        `(piece, replayed)` for each piece, then one `StreamEnd`.

    Raises:
        Exception: What `Recorder.record` raises, once the pieces that arrived before it have been yielded.
    """
    pieces: asyncio.Queue[tuple[T] | None] = asyncio.Queue()
    arrived: list[T] = []
    handed_on = 0

    async def call() -> list[T]:
        nonlocal handed_on
        ended = False
        source = stream()
        try:
            async for piece in source:
                arrived.append(piece)
                ended = ended or is_last(piece)
                if not ended:
                    handed_on += 1
                    pieces.put_nowait((piece,))
        finally:
            close = getattr(source, "aclose", None) or getattr(source, "close", None)
            if close is not None:
                done = close()
                if done is not None:
                    await done
        return arrived

    leaf = asyncio.ensure_future(recorder.record(kind, fields, call, codec=codec, info=info))
    leaf.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        while (arrival := await pieces.get()) is not None:
            yield arrival[0], False
        recorded = leaf.result()
        if recorded.value is arrived or not handed_on:
            rest = recorded.value[handed_on:]
        else:  # another worker's record counts: what was handed on cannot be taken back, and the completion has to be its
            rest = list(itertools.dropwhile(lambda piece: not is_last(piece), recorded.value))
        for piece in rest:
            yield piece, recorded.replayed
        yield StreamEnd(recorded)
    finally:
        if not leaf.done():
            leaf.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leaf
        elif not leaf.cancelled():
            leaf.exception()  # a reader that left early does not want to know
