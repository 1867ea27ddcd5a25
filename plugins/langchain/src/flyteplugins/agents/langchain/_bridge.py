"""Sync code that waits for the coroutines of an agent run.

A sync node or tool runs in a thread, and its model's turn is recorded on the agent run's event loop. What the SDK does for
the turn in sync code (the HTTP request of `model.invoke`) runs in the waiting thread itself: a pool of threads would be
exhausted as soon as as many nodes wait as it has threads.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar, cast

__all__ = ["RUN_LOOP", "InCaller", "iterate_sync", "wait_sync"]

T = TypeVar("T")
P = TypeVar("P")

RUN_LOOP: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "flyteplugins.agents.langchain.loop", default=None
)
"""The event loop that the agent run was begun on."""

InCaller = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a function in the thread that waits, and awaits what it returns."""

_DONE = object()


class _Waiting(Generic[T]):
    """A thread that waits for a coroutine, and does what it asks meanwhile."""

    def __init__(self, coroutine: Callable[[InCaller, Callable[[Any], None]], Coroutine[Any, Any, T]]) -> None:
        self._inbox: queue.SimpleQueue[tuple[str, Any, Any]] = queue.SimpleQueue()
        loop = RUN_LOOP.get()
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        started = functools.partial(coroutine, self._in_caller, lambda piece: self._inbox.put(("piece", piece, None)))
        if loop is not None and loop.is_running() and loop is not here:
            self._outcome = asyncio.run_coroutine_threadsafe(started(), loop)
        else:  # a blocking call on the loop itself, which cannot run anything now
            self._outcome = _in_new_thread(started)
        self._outcome.add_done_callback(lambda _: self._inbox.put(("done", None, None)))

    async def _in_caller(self, function: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()  # the leaf's own: what an idempotency key is made of, above all
        self._inbox.put(("call", functools.partial(context.run, function), (loop, future)))
        return await future

    def pieces(self) -> Iterator[Any]:
        """Serve the coroutine until it has ended, and yield what it hands over."""
        try:
            while True:
                what, value, reply = self._inbox.get()
                if what == "done":
                    return
                if what == "piece":
                    yield value
                else:
                    _answer(value, *reply)
        finally:
            self._outcome.cancel()

    def result(self) -> T:
        """What the coroutine returned."""
        return self._outcome.result()


def _answer(function: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
    def settle(method: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            method(value)

    try:
        value = function()
    except BaseException as error:  # noqa: BLE001 - the coroutine raises it, and so does whoever waits for that
        loop.call_soon_threadsafe(settle, future.set_exception, error)
    else:
        loop.call_soon_threadsafe(settle, future.set_result, value)


def _in_new_thread(start: Callable[[], Coroutine[Any, Any, T]]) -> concurrent.futures.Future[T]:
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            value = context.run(asyncio.run, start())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            outcome.set_exception(error)
        else:
            outcome.set_result(value)

    threading.Thread(target=run, name="flyte-agents-langchain", daemon=True).start()
    return outcome


def wait_sync(coroutine: Callable[[InCaller], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the agent run's event loop, and wait for it.

    Args:
        coroutine: A coroutine function. It is given a function that runs another one in this thread.

    Returns:
        What it returns.
    """
    waiting: _Waiting[T] = _Waiting(lambda in_caller, _: coroutine(in_caller))
    for _ in waiting.pieces():
        pass
    return waiting.result()


def iterate_sync(
    source: Callable[[], Iterator[P]], pieces: Callable[[Callable[[], AsyncIterator[P]]], AsyncIterator[P]]
) -> Iterator[P]:
    """Iterate over an async iterator of the agent run's event loop, whose own source is an iterator of this thread.

    Args:
        source: Opens the source; called at most once, in this thread.
        pieces: Makes the async iterator, given a function that opens the source as an async iterator.
    """

    async def drive(in_caller: InCaller, hand_over: Callable[[P], None]) -> None:
        async def opened() -> AsyncIterator[P]:
            iterator = await in_caller(source)
            try:
                while (piece := await in_caller(lambda: next(iterator, _DONE))) is not _DONE:
                    yield cast(P, piece)
            finally:
                close = getattr(iterator, "close", None)
                if close is not None and not _is_cancelled():
                    await in_caller(close)

        async for piece in pieces(opened):
            hand_over(piece)

    waiting: _Waiting[None] = _Waiting(drive)
    yield from waiting.pieces()
    waiting.result()


def _is_cancelled() -> bool:
    """Whether the coroutine is being cancelled, since nobody waits for it any more."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
