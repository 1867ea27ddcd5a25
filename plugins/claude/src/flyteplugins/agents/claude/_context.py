"""Where the caller's functions run: in the agent run's own context, whatever task of the SDK's asks for it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Fail", "RunContext"]

T = TypeVar("T")

Fail = Callable[[BaseException], None]
"""Told of what ends the run: an exception of a tool with `on_tool_error="raise"`, the budget, a record that cannot be read."""


class RunContext:
    """The context of an agent run, as it is when this is made.

    Args:
        fail: Called with what ends the run.
    """

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._context = contextvars.copy_context()

    async def do(self, work: Coroutine[Any, Any, T], *, passes: Callable[[BaseException], bool] | None = None) -> T:
        """Do something in a task of its own, so that it is in the context in which the run began, and the run can cancel it.

        Args:
            work: What to do.
            passes: Says of an exception whether it is raised here; else it ends the run, also one that is no `Exception`.
        """
        try:
            return await asyncio.get_running_loop().create_task(work, context=self._context.copy())
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if passes is not None and passes(error):
                raise
            self._fail(error)
            await asyncio.Event().wait()  # the run is being ended: an answer would cost another turn
            raise
