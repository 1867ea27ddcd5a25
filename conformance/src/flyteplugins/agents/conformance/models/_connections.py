"""The server's TCP connections, so that a fault can reset or close one."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connections:
    """The open connections, found by the client's address."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], asyncio.Transport] = {}

    def protocol(self) -> type[asyncio.Protocol]:
        """Return a uvicorn HTTP protocol class that registers its connections here."""
        register = self._open

        class Registered(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                register[transport.get_extra_info("peername")[:2]] = transport
                super().connection_made(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                register.pop(self.transport.get_extra_info("peername")[:2], None)
                super().connection_lost(exc)

        return Registered

    def reset(self, scope: Scope) -> None:
        """Reset a request's connection: the client sees `ECONNRESET`."""
        if transport := self._of(scope):
            self._abort(transport)

    def close(self, scope: Scope) -> None:
        """Close a request's connection after what was written so far."""
        if transport := self._of(scope):
            transport.close()

    def reset_all(self) -> None:
        """Reset every connection, so that the server can stop at once."""
        for transport in list(self._open.values()):
            self._abort(transport)

    def _of(self, scope: Scope) -> asyncio.Transport | None:
        client: Any = scope.get("client")
        return self._open.get(tuple(client)) if client else None

    @staticmethod
    def _abort(transport: asyncio.Transport) -> None:
        raw = transport.get_extra_info("socket")
        if raw is not None:
            # Linger for 0 seconds makes close() send a reset rather than an orderly end.
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
