"""The retries of the SDK's runner, inside the leaf.

The runner wraps each request of a model in a retry loop. With the loop around the leaf, a request that fails twice and is then
answered would be three leaves. So the loop is handed to the model that the runner asks, which runs it inside of the one leaf
that it makes: timeouts, backoff and the count of failed requests are the runner's own.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from agents import ModelResponse
from agents.items import TResponseStreamEvent

from flyteplugins.agents.core import current_run

__all__ = ["ask_in_leaf", "stream_in_leaf", "take_response_retry", "take_stream_retry"]

Asking = Callable[[], Awaitable[ModelResponse]]
Streaming = Callable[[], AsyncIterator[TResponseStreamEvent]]

_RESPONSE: ContextVar[Callable[..., Awaitable[ModelResponse]] | None] = ContextVar(
    "flyteplugins.agents.openai.response_retry", default=None
)
_STREAM: ContextVar[Callable[..., AsyncIterator[TResponseStreamEvent]] | None] = ContextVar(
    "flyteplugins.agents.openai.stream_retry", default=None
)


async def ask_in_leaf(
    wrapped: Callable[..., Awaitable[ModelResponse]],
    _instance: object,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> ModelResponse:
    """Stand in for the runner's retry loop: ask once, and hand the loop to the model.

    Args:
        wrapped: The loop.
        args: Nothing: the runner passes all by keyword.
        kwargs: The loop's own, `get_response` among them.
    """
    if current_run() is None:
        return await wrapped(*args, **kwargs)
    options = dict(kwargs)
    get_response: Asking = options.pop("get_response")
    token = _RESPONSE.set(functools.partial(wrapped, *args, **options))
    try:
        return await get_response()
    finally:
        _RESPONSE.reset(token)


def stream_in_leaf(
    wrapped: Callable[..., AsyncIterator[TResponseStreamEvent]],
    _instance: object,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> AsyncIterator[TResponseStreamEvent]:
    """The same for a streamed request."""
    if current_run() is None:
        return wrapped(*args, **kwargs)
    options = dict(kwargs)
    get_stream: Streaming = options.pop("get_stream")
    token = _STREAM.set(functools.partial(wrapped, *args, **options))
    try:
        return get_stream()
    finally:
        _STREAM.reset(token)


def take_response_retry() -> Callable[[Asking], Awaitable[ModelResponse]]:
    """Take the loop that the runner handed over, so that a model inside of this one does not; without one, ask once."""
    retry = _RESPONSE.get()
    if retry is None:
        return lambda get_response: get_response()
    _RESPONSE.set(None)
    return lambda get_response: retry(get_response=get_response)


def take_stream_retry() -> tuple[Callable[[Streaming], AsyncIterator[TResponseStreamEvent]], list[int]]:
    """Take the loop of a streamed request.

    Returns:
        The loop, and the list in which it counts, as its one element, the requests that failed before.
    """
    retry = _STREAM.get()
    if retry is None:
        return (lambda get_stream: get_stream()), [0]
    _STREAM.set(None)
    keywords = getattr(retry, "keywords", {})
    failed: list[int] = keywords.get("failed_retry_attempts_out") or [0]
    return (lambda get_stream: retry(get_stream=get_stream)), failed
