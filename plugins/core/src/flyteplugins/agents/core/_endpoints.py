"""Where a model is, as part of a request's identity."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

__all__ = ["endpoint_identity"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def endpoint_identity(url: str) -> str:
    """A base URL without what says nothing about the model: credentials, query, and the port of a server on this machine.

    Args:
        url: The base URL. A server on this machine has another port each time it starts.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    netloc = host if host in _LOOPBACK else parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))
