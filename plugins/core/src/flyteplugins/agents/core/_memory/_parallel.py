"""Several reads at once, but not all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

__all__ = ["LIMIT", "gather_bounded"]

T = TypeVar("T")
ItemT = TypeVar("ItemT")

LIMIT = 16
"""How many at once. What is in flight is held in memory, and object stores slow down those who ask too much."""


async def gather_bounded(call: Callable[[ItemT], Awaitable[T]], items: Iterable[ItemT], limit: int = LIMIT) -> list[T]:
    """Call a coroutine function with each item.

    Args:
        call: What to call. When one call raises, the others are cancelled and its exception passes.
        items: What to call it with.
        limit: How many calls may be in flight.

    Returns:
        The results, in the order of the items.
    """
    waiting = list(enumerate(items))
    waiting.reverse()
    results: dict[int, T] = {}

    async def work() -> None:
        while waiting:
            index, item = waiting.pop()
            results[index] = await call(item)

    workers = [asyncio.ensure_future(work()) for _ in range(min(limit, len(waiting)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[index] for index in range(len(results))]
