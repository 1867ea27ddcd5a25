"""The seam: Claude Code's requests go through a server of the run's own, where each turn is recorded or answered from its record.

The server listens on loopback only, on a port that the system chooses, for one run only, and answers nobody who does not know the
secret in its path. Credentials pass through it to the configured API and nowhere else; records hold bodies only.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hmac
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote

import uvicorn

from flyteplugins.agents.core import AgentRun, TurnFacts

from ._codec import BodyCodec, EventsCodec, event_data, facts_of_body, facts_of_events, is_held
from ._errors import IncompleteAnswerError, UpstreamError
from ._request import in_order_of_calls, semantic_fields
from ._upstream import Upstream

__all__ = ["RecordingProxy"]

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_TURN = "/v1/messages"
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_JSON = {"content-type": "application/json"}
_PING = 'event: ping\ndata: {"type": "ping"}'
_PATIENCE = 1.0
"""How many seconds Claude Code waits for a sign of life while an answer arrives."""

_ENDS_THE_RUN = (401, 403)
"""A wrong key does not become right: Claude Code would ask again for minutes."""


class _Server(uvicorn.Server):
    """A server inside of somebody else's process: signals are the process's own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class RecordingProxy:
    """Answers Claude Code's requests for one agent run.

    Args:
        run: The agent run.
        upstream: The API.
        fail: Called with what ends the run: the budget, a record that cannot be read, a wrong key.
        tool_prefix: What Claude Code puts before the names of the run's tools.

    Attributes:
        url: Where Claude Code finds it, secret included.
        last_error: Why the latest turn has no answer; `None` if it has one.
    """

    def __init__(
        self, run: AgentRun, upstream: Upstream, *, fail: Callable[[BaseException], None], tool_prefix: str
    ) -> None:
        self._run = run
        self._upstream = upstream
        self._fail = fail
        self._prefix = tool_prefix
        self._secret = secrets.token_urlsafe(32)
        self._context = contextvars.copy_context()
        self.url = ""
        self.last_error: Exception | None = None
        self._stopped = False

    def stop(self) -> None:
        """Make no more turns: the run is over, and what Claude Code still asks is asked for nobody."""
        self._stopped = True

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[RecordingProxy]:
        """Serve while the body runs."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/{self._secret}"
            # no logging configuration: the loggers are the process's
            config = uvicorn.Config(
                self, lifespan="off", interface="asgi3", log_config=None, access_log=False, timeout_graceful_shutdown=1
            )
            server = _Server(config)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield self
            finally:
                server.should_exit = server.force_exit = True
                await asyncio.wait([serving])
                await self._upstream.close()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application."""
        if scope["type"] != "http":
            return
        prefix, path = f"/{self._secret}/", str(scope["path"])
        if not hmac.compare_digest(path[: len(prefix)].encode(), prefix.encode()):
            await _respond(send, 404, _JSON, b"{}")
            return
        body = await _read(receive)
        answer = _Answer(send)
        if self._stopped:
            await answer.end()
            return
        work = asyncio.get_running_loop().create_task(
            self._answer(scope, path[len(prefix) - 1 :], body, answer), context=self._context.copy()
        )
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            left = gone.done()
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.wait([work, gone])
        if not work.cancelled() and (problem := work.exception()) is not None:
            self._fail(problem)
        if not left:
            await answer.end()

    async def _answer(self, scope: Mapping[str, Any], path: str, body: bytes, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = scope["query_string"].decode("latin-1")
        target = quote(path) + (f"?{query}" if query else "")
        try:
            if scope["method"] == "POST" and path == _TURN:
                await self._turn(target, headers, body, send)
            else:
                answer = await self._upstream.pass_through(scope["method"], target, headers, body)
                await _respond(send, *answer)
        except UpstreamError as error:
            self.last_error = error
            if error.status in _ENDS_THE_RUN:
                raise
            kept = dict(error.headers)
            if error.status not in self._upstream.passed_on:
                kept["x-should-retry"] = "false"  # it was repeated here
            await _respond(send, error.status or 502, _JSON | kept, error.body.encode() if error.status else b"{}")

    async def _turn(self, target: str, headers: Mapping[str, str], body: bytes, send: Send) -> None:
        asked = json.loads(body)
        if in_order_of_calls(asked):
            body = json.dumps(asked, ensure_ascii=False).encode()
        fields = semantic_fields(asked, self._upstream.url)
        model = str(asked.get("model", ""))
        if not asked.get("stream"):
            recorded = await self._run.turn(
                fields,
                lambda: self._upstream.ask(target, headers, body),
                codec=BodyCodec(),
                facts=lambda text: facts_of_body(text, self._prefix),
                model=model,
            )
            self.last_error = None
            await _respond(send, 200, _JSON, recorded.value.encode())
            return
        answer: list[str] = []

        def facts(events: list[str]) -> TurnFacts:
            answer[:] = events  # at last what is on record, which may be another worker's
            return facts_of_events(events, self._prefix)

        pieces = self._run.stream_turn(
            fields,
            lambda: self._upstream.stream(target, headers, body),
            codec=EventsCodec(),
            facts=facts,
            delta=_delta,
            is_last=is_held,
            model=model,
        )
        begun, told = False, time.monotonic()
        try:
            async with aclosing(pieces):
                async for _ in pieces:
                    # What Claude Code has cannot be taken back, so it gets what is on record, and until then signs of life.
                    if time.monotonic() - told > _PATIENCE:
                        if not begun:
                            await _start(send, 200, _SSE)
                        await _send_events(send, [_PING])
                        begun, told = True, time.monotonic()
        except IncompleteAnswerError as error:
            # the answer's status may have been sent; Claude Code takes an error in the stream as one of the API
            self.last_error = error
            if not begun:
                await _start(send, 200, _SSE)
            said = error.body or _error_event("The answer broke off in mid-stream.")
            await send({"type": "http.response.body", "body": f"{said}\n\n".encode(), "more_body": False})
            return
        if not begun:
            await _start(send, 200, _SSE)
        await _send_events(send, answer)
        self.last_error = None
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _Answer:
    """A response, and how far it is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = self._ended = False

    async def __call__(self, message: dict[str, Any]) -> None:
        self._begun = True
        self._ended = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def end(self) -> None:
        """End it, where what made it failed: the run is over, and Claude Code need not ask again."""
        if not self._begun:
            await _start(self, 500, _JSON | {"x-should-retry": "false"})
        if not self._ended:
            await self({"type": "http.response.body", "body": b"", "more_body": False})


def _delta(event: str) -> str:
    if "text_delta" not in event:
        return ""
    delta = event_data(event).get("delta") or {}
    return str(delta.get("text", "")) if delta.get("type") == "text_delta" else ""


def _error_event(message: str) -> str:
    data = {"type": "error", "error": {"type": "api_error", "message": message}}
    return f"event: error\ndata: {json.dumps(data)}"


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _send_events(send: Send, events: Sequence[str]) -> None:
    body = "".join(f"{event}\n\n" for event in events)
    await send({"type": "http.response.body", "body": body.encode(), "more_body": True})


async def _respond(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    await _start(send, status, headers)
    await send({"type": "http.response.body", "body": body, "more_body": False})
