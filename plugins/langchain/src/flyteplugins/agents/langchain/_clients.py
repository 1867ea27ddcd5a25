"""HTTP connections belong to an event loop; the providers' packages keep one pool for the whole process.

A worker has more than one loop as soon as a sync task runs an agent beside an async one, and a kept-alive connection of the other
loop's raises there. So a model that uses such a pool is asked through one of the running loop's own.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

__all__ = ["on_this_loop"]

ModelT = TypeVar("ModelT", bound=BaseChatModel)

_LOCK = threading.Lock()
_POOLS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, tuple[Any, Any]]] = weakref.WeakKeyDictionary()
"""Each loop's own pools, by the pool that they stand for."""

_CLIENTS = ("root_async_client", "_async_client")


def on_this_loop(model: ModelT) -> ModelT:
    """A model to ask on the running loop.

    Args:
        model: The model. It stays as it is.

    Returns:
        A copy of the model that uses a pool of this loop's; the model itself where it has no such client, or where the caller
        gave it a pool, which is the caller's to care for.
    """
    for name in _CLIENTS:
        client = getattr(model, name, None)
        pool = getattr(client, "_client", None)
        if client is None or pool is None or pool is getattr(model, "http_async_client", None):
            continue
        fresh = client.with_options(http_client=_pool_of_this_loop(pool))
        other = object.__new__(type(model))
        values = {**model.__dict__, name: fresh}
        if name == "root_async_client" and "async_client" in values:
            values["async_client"] = fresh.chat.completions
        object.__setattr__(other, "__dict__", values)
        for slot in ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
            object.__setattr__(other, slot, getattr(model, slot))
        return other
    return model


def _pool_of_this_loop(pool: Any) -> Any:
    loop = asyncio.get_running_loop()
    with _LOCK:
        known = _POOLS.setdefault(loop, {})
        if id(pool) not in known:
            kind = next(base for base in type(pool).__mro__ if not base.__name__.startswith("_"))
            known[id(pool)] = (pool, kind(base_url=pool.base_url, timeout=pool.timeout))
        return known[id(pool)][1]
