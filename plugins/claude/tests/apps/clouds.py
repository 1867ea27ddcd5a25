"""The ways in which other clouds speak the Messages API, in front of a server that speaks the API itself.

with Cloud("bedrock", "http://127.0.0.1:8000/anthropic") as cloud:
    cloud.url
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import socket
import struct
import threading
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Literal
from urllib.parse import unquote

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

_PATHS = {
    "bedrock": r"/model/(?P<model>[^/]+)/invoke(?P<stream>-with-response-stream)?$",
    "vertex": r"/publishers/anthropic/models/(?P<model>[^/:]+):(?P<stream>streamR|r)awPredict$",
}


class Cloud:
    """A server on loopback, on a port that the system chooses.

    Args:
        kind: Which cloud it speaks like.
        api: The base address of the API itself.

    Attributes:
        url: Its base address.
        answered: How many requests were for it.
    """

    def __init__(self, kind: Literal["bedrock", "vertex"], api: str) -> None:
        self._kind = kind
        self._api = api
        self.answered = 0
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "HEAD"])])
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})

    def __enter__(self) -> Cloud:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    async def _answer(self, request: Request) -> Response:
        found = re.search(_PATHS[self._kind], unquote(request.url.path))
        if found is None:
            return JSONResponse({"message": f"{request.url.path} is not known here"}, 404)
        self.answered += 1
        given = await request.json()
        body = {name: value for name, value in given.items() if not name.startswith("anthropic_")}
        beta = given.get("anthropic_beta") or request.headers.get("anthropic-beta")
        address = f"{self._api}/v1/messages{'?beta=true' if beta else ''}"
        body |= {"model": found["model"], "stream": found["stream"] not in (None, "r")}
        if not body["stream"]:
            async with httpx2.AsyncClient(trust_env=False) as client:
                whole = await client.post(address, json=body, headers={"x-api-key": "k"})
            return Response(whole.content, whole.status_code, media_type="application/json")
        kind = "application/vnd.amazon.eventstream" if self._kind == "bedrock" else "text/event-stream"
        return StreamingResponse(self._events(address, body), media_type=kind)

    async def _events(self, address: str, body: dict[str, Any]) -> AsyncIterator[bytes]:
        async with (
            httpx2.AsyncClient(trust_env=False) as client,
            client.stream("POST", address, json=body, headers={"x-api-key": "k"}) as response,
        ):
            async for line in response.aiter_lines():
                if self._kind == "vertex":
                    yield f"{line}\n".encode()
                elif line.startswith("data:"):
                    yield _frame(line.removeprefix("data:").strip())


def _frame(event: str) -> bytes:
    """A message of AWS's event stream."""
    payload = json.dumps({"bytes": base64.b64encode(event.encode()).decode()}).encode()
    names = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack(f"!B{len(name)}sBH{len(value)}s", len(name), name.encode(), 7, len(value), value.encode())
        for name, value in names.items()
    )
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", binascii.crc32(message))
