"""How an answer travels: whole, late, cut, garbled, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ._connections import Connections
from ._faults import Fault

_NOISE = b'{"this is not JSON'


class Delivery(Response):
    """A response that can go wrong on its way.

    Args:
        chunks: The body: one chunk, or the frames of a stream.
        connections: Where to find the connection.
        streamed: Whether it is a stream of server-sent events.
        status: HTTP status.
        headers: Further headers.
        fault: What goes wrong, if anything.
        pause: Seconds to wait before each frame.
        done: Called when the whole answer was handed to the connection.
    """

    def __init__(
        self,
        chunks: Iterable[bytes],
        connections: Connections,
        *,
        streamed: bool = False,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        fault: Fault | None = None,
        pause: float = 0.0,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.chunks = chunks
        self.connections = connections
        self.streamed = streamed
        self.status_code = status
        self.extra = dict(headers or {})
        self.fault = fault
        self.pause = pause
        self.done = done
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, as ASGI."""
        kind = self.fault.kind if self.fault else ""
        if kind in ("reset", "lost"):
            self.connections.reset(scope)
        if kind in ("reset", "lost", "hang"):
            await gone(receive)
            return
        if kind == "slow" and self.fault and not await wait(self.fault.seconds, receive):
            return
        if self.streamed:
            await self._stream(scope, receive, send, kind)
        else:
            await self._whole(scope, receive, send, kind)

    async def _whole(self, scope: Scope, receive: Receive, send: Send, kind: str) -> None:
        body = b"".join(self.chunks)
        after = self.fault.after if self.fault else 0
        if kind == "garbled":
            body = body[: min(after, len(body) - 1)] + _NOISE
        await self._start(send, {"content-type": "application/json", "content-length": str(len(body))})
        if kind == "cut":
            await send({"type": "http.response.body", "body": body[: min(after, len(body) - 1)], "more_body": True})
            self.connections.close(scope)
            await gone(receive)
            return
        self._handed_over(kind)
        await send({"type": "http.response.body", "body": body})

    def _handed_over(self, kind: str) -> None:
        # Before the last byte goes out: the client's next step may be to read the journal.
        if kind != "garbled":
            self.done()

    async def _stream(self, scope: Scope, receive: Receive, send: Send, kind: str) -> None:
        await self._start(send, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
        chunks: Iterable[bytes] = self.chunks
        after = 0
        if kind in ("cut", "garbled") and self.fault:
            chunks = list(chunks)
            after = min(self.fault.after, len(chunks) - 1)  # a short stream breaks too
        for place, chunk in enumerate(chunks):
            if kind == "cut" and place >= after:
                self.connections.close(scope)
                await gone(receive)
                return
            if kind == "garbled" and place == after:
                await send({"type": "http.response.body", "body": b"data: " + _NOISE + b"\n\n", "more_body": True})
                break
            if self.pause:
                await asyncio.sleep(self.pause)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._handed_over(kind)
        await send({"type": "http.response.body", "body": b""})

    async def _start(self, send: Send, headers: Mapping[str, str]) -> None:
        all_headers = {**headers, **self.extra}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers.items()]
        await send({"type": "http.response.start", "status": self.status_code, "headers": raw})


async def gone(receive: Receive) -> None:
    """Wait until the client has gone, or the server stops."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def wait(seconds: float, receive: Receive) -> bool:
    """Wait for some seconds; return whether the client is still there afterwards."""
    try:
        await asyncio.wait_for(gone(receive), seconds)
    except TimeoutError:
        return True
    return False
