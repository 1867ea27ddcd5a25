"""What becomes of a stream that brings no answer.

A provider may end a stream with an event that says so, which the SDK's runner turns into an exception of its own. Inside the leaf
the event is an exception already, since an error is never an answer and is not recorded as one; outside of it, it is the event
again, so that the runner and whoever listens to it see what they would have seen.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from agents import ModelResponse
from agents.items import TResponseStreamEvent

from ._codec import ModelResponseCodec, dump_model, load_event
from ._events import FAILURES, event_values, is_last

__all__ = ["StreamFailure", "answered", "with_failure"]


class StreamFailure(Exception):
    """A stream ended without an answer.

    Args:
        event: The event that says so, as JSON text; empty where the stream just ended.
    """

    def __init__(self, event: str = "") -> None:
        super().__init__(event)
        self.event = event

    def __str__(self) -> str:
        return f"the model's stream ended with {self.event}" if self.event else "the model's stream ended too early"


async def answered(
    stream: Callable[[], AsyncIterator[TResponseStreamEvent]],
    ask: Callable[[], Awaitable[ModelResponse]],
    model: str,
) -> AsyncGenerator[TResponseStreamEvent, None]:
    """Pass events on, and raise where they bring no answer.

    Args:
        stream: Opens the model's stream.
        ask: Asks a model that cannot stream.
        model: The model's name.

    Raises:
        StreamFailure: There is no answer.
    """
    complete = begun = False
    try:
        async with contextlib.AsyncExitStack() as stack:
            events = stream()
            if isinstance(events, AsyncGenerator):
                await stack.enter_async_context(contextlib.aclosing(events))
            async for event in events:
                begun = True
                if getattr(event, "type", None) in FAILURES:
                    raise StreamFailure(json.dumps(dump_model(event)))
                complete = complete or is_last(event)
                yield event
    except NotImplementedError:
        if begun:
            raise
        for value in event_values(ModelResponseCodec().encode(await ask()), model):  # type: ignore[arg-type]
            yield load_event(value)
        return
    if not complete:
        raise StreamFailure


async def with_failure(
    events: AsyncGenerator[TResponseStreamEvent, None],
) -> AsyncGenerator[TResponseStreamEvent, None]:
    """Pass events on, with the one that says that there is no answer.

    Args:
        events: The events of a recorded turn.
    """
    said = ""
    try:
        async with contextlib.aclosing(events):
            async for event in events:
                yield event
    except StreamFailure as failure:
        said = failure.event
    if said:
        yield load_event(json.loads(said))
