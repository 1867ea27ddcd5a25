"""The bridge from sync code to coroutines.

All of a process's sync calls share one event loop in one thread, which lives as long as the process: SDK clients keep
connections that belong to a loop, and would break on the second call if each call had its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

__all__ = ["run_coro_sync", "sync_variant"]

P = ParamSpec("P")
T = TypeVar("T")


class _LoopThread:
    """An event loop in a daemon thread, started when it is first needed, and anew in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                loop = self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(loop,), name="flyte-agents-sync", daemon=True)
                self._thread.start()
            return self._loop

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()


_THREAD = _LoopThread()


def run_coro_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from sync code, and wait for it.

    Context variables, Flyte's task context among them, are the caller's. When the wait is interrupted (Ctrl-C), the coroutine
    is cancelled and its clean-up awaited.

    Args:
        coroutine: What to run.

    Returns:
        What it returns.

    Raises:
        RuntimeError: This thread runs an event loop: the wait would block it. Await the coroutine function there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        name = coroutine.__name__ if inspect.iscoroutine(coroutine) else "the coroutine"
        coroutine.close()
        raise RuntimeError(
            f"The sync form of {name} was called inside a running event loop, which it would block. Use `await {name}(...)`."
        )
    loop = _THREAD.loop()
    context = contextvars.copy_context()
    done: concurrent.futures.Future[T] = concurrent.futures.Future()
    started: concurrent.futures.Future[asyncio.Task[T]] = concurrent.futures.Future()

    def start() -> None:
        task = loop.create_task(_contained(coroutine), context=context)
        started.set_result(task)
        task.add_done_callback(functools.partial(_hand_over, done))

    loop.call_soon_threadsafe(start)
    try:
        return done.result()
    except BaseException:
        if not done.done():
            loop.call_soon_threadsafe(started.result().cancel)
            concurrent.futures.wait([done])
        raise


class _ExitError(Exception):
    """Carries an exception that would end the loop's thread out of it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


async def _contained(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise _ExitError(error) from error


def _hand_over(done: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
        return
    error = task.exception()
    if error is not None:
        done.set_exception(error.error if isinstance(error, _ExitError) else error)
    else:
        done.set_result(task.result())


def sync_variant(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make the sync form of a coroutine function: same signature, callable from a sync task.

    Args:
        function: A coroutine function.

    Returns:
        A function named `<name>_sync`. Inside a running event loop it raises `RuntimeError`.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_coro_sync(function(*args, **kwargs))

    call.__name__ = f"{function.__name__}_sync"
    call.__qualname__ = f"{function.__qualname__}_sync"
    call.__doc__ = f"{inspect.getdoc(function) or ''}\n\nThis is the sync form, for use in a sync task."
    return call
