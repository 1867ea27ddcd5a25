"""The client that a run speaks through: the caller's settings, and connections of this event loop's own.

A worker has more than one loop as soon as a sync task runs an agent beside an async one, and a kept-alive connection of the other
loop's raises there. The caller's client is read and never changed: `client.beta.conversations` is cached on it, and another run
may be using it.
"""

from __future__ import annotations

import asyncio
import copy
import os
import weakref

import httpx2
from mistralai.client import Mistral
from mistralai.client.sdkconfiguration import SDKConfiguration

from flyteplugins.agents.core import AgentError

__all__ = ["SERVER_URL_VARIABLE", "client_configuration"]

SERVER_URL_VARIABLE = "MISTRAL_SERVER_URL"
"""Where the server is, if neither `client` nor `server_url` says so. The SDK itself has no variable for it."""

_POOLS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = weakref.WeakKeyDictionary()


def client_configuration(
    client: Mistral | None, *, server_url: str | None, api_key_env_var: str
) -> tuple[SDKConfiguration, Mistral]:
    """Make the configuration that one run's requests are made with.

    Args:
        client: The caller's client, or `None` to make one.
        server_url: The server's address; that of `MISTRAL_SERVER_URL`, or the provider's, by default.
        api_key_env_var: The environment variable that holds the key, where there is no client.

    Returns:
        A configuration of the run's own, and the client that it came from, which has to be kept alive as long.

    Raises:
        AgentError: There is no key, or the client is closed.
        TypeError: The client is none.
    """
    address = server_url or (os.environ.get(SERVER_URL_VARIABLE) or None if client is None else None)
    if address is not None and not address.startswith(("http://", "https://")):
        raise ValueError(f"The server's address is {address!r}; give one that begins with https:// or http://.")
    if client is None:
        key = os.environ.get(api_key_env_var)
        if not key:
            raise AgentError(
                f"There is no API key: the environment variable {api_key_env_var} is not set. Set it (on a cluster as a secret "
                "of the task's environment), name another with api_key_env_var=, or give client=."
            )
        client = Mistral(api_key=key, server_url=address, async_client=_pool())
    elif not isinstance(client, Mistral):
        raise TypeError(f"client is a {type(client).__qualname__}; give a mistralai.client.Mistral.")
    own = copy.copy(client.sdk_configuration)  # with the hooks, which it holds beside its fields
    if server_url:
        own.server_url = server_url
    if not own.async_client_supplied:
        if own.async_client is None:
            raise AgentError("The client that was given is closed: its `async with` block has ended. Give an open one.")
        own.async_client = _pool()
    return own, client


def _pool() -> httpx2.AsyncClient:
    loop = asyncio.get_running_loop()
    pool = _POOLS.get(loop)
    if pool is None:
        pool = _POOLS[loop] = httpx2.AsyncClient(follow_redirects=True)  # as the SDK makes its own
    return pool
