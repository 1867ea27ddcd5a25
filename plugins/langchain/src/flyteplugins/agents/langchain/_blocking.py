"""Coroutines for sync callers, whatever loop is or is not running in their thread.

LangGraph calls the sync methods of a checkpointer in whichever thread a graph happens to run in, also in one whose event loop
the call blocks. So nothing here waits for a loop that somebody else may block.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["run_apart"]

T = TypeVar("T")


def run_apart(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on an event loop of its own, in a thread of its own, and wait for it.

    Args:
        start: Makes the coroutine, in the caller's context.
    """
    outcome: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            value = context.run(asyncio.run, start())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            outcome.set_exception(error)
        else:
            outcome.set_result(value)

    threading.Thread(target=run, name="flyte-agents-langgraph", daemon=True).start()
    return outcome.result()
