"""How many workers compute at once.

An action that waits for a child or a condition does not count, so a parent never keeps its children from running, and
one slot is enough for any depth. When its children are done it counts again at once, without waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ._store import ActionKey


class Slots:
    """The slots.

    Args:
        limit: workers that may compute at once.
        waiting: says which actions wait for others.
    """

    def __init__(self, limit: int, waiting: Callable[[], set[ActionKey]]) -> None:
        if limit < 1:
            raise ValueError(f"{limit} slots run nothing: give 1 or more.")
        self._limit = limit
        self._waiting = waiting
        self._holders: set[ActionKey] = set()
        self._queue: dict[ActionKey, asyncio.Future[None]] = {}

    async def acquire(self, key: ActionKey) -> None:
        """Wait, in order of arrival, until the action may run."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue[key] = turn
        self.dispatch()
        try:
            await turn
        except asyncio.CancelledError:
            self._queue.pop(key, None)
            self.release(key)
            raise

    def take(self, key: ActionKey) -> None:
        """Count an action that runs already."""
        self._holders.add(key)

    def release(self, key: ActionKey) -> None:
        """The action's worker ended."""
        self._holders.discard(key)
        self.dispatch()

    def dispatch(self) -> None:
        """Let as many waiting actions run as there is room for. To be called whenever an action starts to wait."""
        if not self._queue:
            return
        room = self._limit - len(self._holders - self._waiting())
        for key, turn in list(self._queue.items())[: max(room, 0)]:
            del self._queue[key]
            self._holders.add(key)
            if not turn.done():
                turn.set_result(None)
