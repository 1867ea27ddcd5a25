"""The event loop that an agent run was begun on, from wherever the SDK runs a tool.

With a `tool_thread_pool_config` the SDK runs tools on event loops of other threads, and code executors run in a thread of their
own. What an agent run keeps belongs to its loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from flyteplugins.agents.core import AgentError

__all__ = ["RUN_LOOP", "on_run_loop", "wait_for"]

T = TypeVar("T")

RUN_LOOP: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "flyteplugins.agents.adk.loop", default=None
)
"""The event loop that the agent run was begun on."""


async def on_run_loop(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await a coroutine on the agent run's loop, whichever loop this is.

    Args:
        start: Makes the coroutine.
    """
    loop = RUN_LOOP.get()
    if loop is None or loop is asyncio.get_running_loop():
        return await start()
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(start(), loop))


def wait_for(start: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Have the agent run's loop run a coroutine, and wait for it in this thread.

    Args:
        start: Makes the coroutine.

    Raises:
        AgentError: This thread runs that loop, which the wait would stop.
    """
    loop = RUN_LOOP.get()
    try:
        here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if loop is None or loop is here:
        raise AgentError(
            "Code was executed on the event loop of the agent run, where its outcome cannot be recorded. Run it in a thread, "
            "as the SDK does: asyncio.to_thread(executor.execute_code, ...)."
        )
    return asyncio.run_coroutine_threadsafe(start(), loop).result()
