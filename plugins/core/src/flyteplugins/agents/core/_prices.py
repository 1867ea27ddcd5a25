"""What a turn costs, by a kept price list (`genai-prices`): list prices, read offline, and no answer where it has none.

The list takes a second to import, so it is read in a thread of its own while the first model works, and by nobody who asks no
model.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ._usage import Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

__all__ = ["read_prices", "turn_cost"]

logger = logging.getLogger("flyteplugins.agents")


@functools.cache
def read_prices() -> None:
    """Begin to read the price list, in a thread of its own; the second time there is nothing to do."""
    if "genai_prices.data" not in sys.modules:
        threading.Thread(target=_prices, name="read-prices", daemon=True).start()


@functools.cache
def _prices() -> DataSnapshot:
    from genai_prices import data  # the list itself, which the snapshot would read later
    from genai_prices.data_snapshot import get_snapshot

    assert data.providers

    return get_snapshot()


async def turn_cost(model: str, usage: Usage, *, provider: str = "", started: float = 0.0) -> float | None:
    """Price a turn.

    Args:
        model: The model's name, also with its provider in front: `gpt-4.1`, `openai/gpt-4.1`, `openai:gpt-4.1`.
        usage: Its tokens.
        provider: The provider's name, where several sell the model.
        started: When it was asked, in seconds since the epoch, since prices change with time and a replay must not; 0 for now.

    Returns:
        US dollars; `None` where the list has no price for the model, or the provider told no tokens: unknown is not 0.
    """
    if not usage.total_tokens:
        return None
    if not _prices.cache_info().currsize:
        await asyncio.to_thread(_prices)
    return _price(model, usage, provider, datetime.fromtimestamp(started or time.time(), UTC))


def _price(model: str, usage: Usage, provider: str, when: datetime) -> float | None:
    from genai_prices import Usage as Tokens

    try:
        tokens = Tokens(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        )
        for name, seller in _readings(model, provider):
            try:
                found = _prices().calc(tokens, name, seller, None, when)
            except LookupError:  # not in the list under this reading
                continue
            return float(found.total_price)
    except ValueError as error:  # counts that contradict each other: more tokens from the cache than there were
        logger.debug("A turn of %s cannot be priced: %s", model, error)
    return None


def _readings(model: str, provider: str) -> list[tuple[str, str | None]]:
    """What a model's name may mean, as (name, provider), the likeliest first."""
    readings: list[tuple[str, str | None]] = [(model, provider)] if provider else []
    readings.append((model, None))
    for mark in (":", "/"):
        before, found, name = model.partition(mark)
        if found and name:
            readings += [(name, before), *([(name, None)] if before == "models" else [])]
    return readings
