"""HTTP connections belong to an event loop; the SDK keeps one pool for the whole process.

A worker has more than one loop as soon as a sync task runs an agent beside an async one, and a kept-alive connection of the other
loop's raises there. So a model that the SDK looked up by name gets a pool of its loop's own.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import httpx2
from agents import Model
from agents.models import openai_provider

from openai import AsyncOpenAI, DefaultAsyncHttpx2Client

__all__ = ["on_this_loop"]

_POOLS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = weakref.WeakKeyDictionary()


def on_this_loop(model: Model) -> Model:
    """Give a model that the SDK has just made a connection pool of the running loop's.

    Args:
        model: A model that nobody else holds. One whose client has a pool of its own is left as it is.
    """
    client: Any = getattr(model, "_client", None)
    shared = getattr(openai_provider, "_http_client", None)
    if isinstance(client, AsyncOpenAI) and shared is not None and client._client is shared:
        loop = asyncio.get_running_loop()
        pool = _POOLS.get(loop)
        if pool is None:
            pool = _POOLS[loop] = DefaultAsyncHttpx2Client()
        model._client = client.with_options(http_client=pool)  # type: ignore[attr-defined]  # both OpenAI models have it
    return model
