"""The plane over HTTP: the Flyte services, the files behind "signed" URLs, and the modes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._identity import take_name
from ._layout import OutsideDataFolderError
from ._plane import Plane
from ._services import services
from .modes import Drop, Modes

log = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Names under which the plane may be called; a page in a browser that was sent here by another name is refused."""


def build_app(plane: Plane, *, cut: Callable[[tuple[str, int]], None], rpc_log: TextIO) -> ASGIApp:
    """The plane's ASGI application.

    Args:
        plane: what to serve.
        cut: cuts the connection of a client, named by its address and port, without an answer.
        rpc_log: gets a line per call.
    """
    files = _Files(plane)
    control = _Control(plane)
    calls = _Calls(services(plane), cut, rpc_log, control)
    web = Starlette(
        routes=[
            Route("/blob/{path:path}", files.put, methods=["PUT"]),
            Route("/blob/{path:path}", files.get, methods=["GET", "HEAD"]),
            Route("/modes", control.get, methods=["GET"]),
            Route("/modes", control.put, methods=["PUT"]),
            Route("/v2/{path:path}", _no_console, methods=["GET"]),
        ]
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"The plane speaks HTTP only, not {scope['type']}.")
        scope = take_name(scope)
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if _host_name(host) not in LOOPBACK:
            await PlainTextResponse(f"This plane is for this machine only, not for {host!r}.", 403)(
                scope, receive, send
            )
        elif calls.knows(scope["path"]):
            await calls(scope, receive, send)
        else:
            await web(scope, receive, send)

    return app


async def _no_console(_: Request) -> Response:
    """Where the SDK thinks that a run's page is."""
    return PlainTextResponse("This plane has no console. Look at a run with `flyte get action RUN`.", 404)


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class _Control:
    """The modes, readable and settable while the plane runs."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.seen: Counter[str] = Counter()

    async def get(self, _: Request) -> Response:
        return Response(self._plane.modes.to_json(), media_type="application/json")

    async def put(self, request: Request) -> Response:
        try:
            self._plane.modes = Modes.from_json((await request.body()).decode())
        except ValueError as e:
            return PlainTextResponse(str(e), 400)
        self.seen.clear()
        return Response(self._plane.modes.to_json(), media_type="application/json")

    def drop(self, method: str) -> Drop | None:
        """Count a call; returns the mode that says to lose it, if one does."""
        self.seen[method] += 1
        for drop in self._plane.modes.drop:
            if drop.method == method and drop.occurrence == self.seen[method]:
                return drop
        return None


class _Calls:
    """The Flyte services."""

    def __init__(
        self,
        applications: dict[str, ASGIApp],
        cut: Callable[[tuple[str, int]], None],
        rpc_log: TextIO,
        control: _Control,
    ) -> None:
        self._applications = applications
        self._cut = cut
        self._log = rpc_log
        self._control = control

    def knows(self, path: str) -> bool:
        return path.startswith("/flyteidl2.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, _, name = scope["path"].rpartition("/")
        method = f"{service.rpartition('.')[2]}/{name}"
        application = self._applications.get(service)
        if application is None:
            self._note(method, 0.0, 404)
            refusal = {"code": "unimplemented", "message": f"This plane does not do {method}."}
            await JSONResponse(refusal, 404)(scope, receive, send)
            return
        drop = self._control.drop(method)
        if drop is not None and drop.when == "request":
            self._note(method, 0.0, 0)
            await self._lose(scope, receive, method, drop)
            return
        started, status = time.monotonic(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            if drop is None:
                await send(message)

        await _until_hung_up(application, scope, receive, answer)
        self._note(method, time.monotonic() - started, status if drop is None else 0)
        if drop is not None:
            await self._lose(scope, receive, method, drop)

    async def _lose(self, scope: Scope, receive: Receive, method: str, drop: Drop) -> None:
        """Cut the connection and wait until that is done, so that the server does not answer for us."""
        log.warning("Lost the %s of call %d of %s, as told.", drop.when, drop.occurrence, method)
        self._cut(tuple(scope["client"]))
        while (await receive())["type"] != "http.disconnect":
            pass

    def _note(self, method: str, seconds: float, status: int) -> None:
        self._log.write(f"{time.time():.3f} {method} {seconds * 1000:.1f}ms {status or 'dropped'}\n")


async def _until_hung_up(application: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run an application until it is done or its client is gone.

    The services notice that a stream's client hung up when they next send to it, which may be never.
    """
    task: asyncio.Future[None] | None = None
    gone = False

    async def listen() -> Message:
        nonlocal gone
        message = await receive()
        if message["type"] == "http.disconnect" and task is not None:
            gone = True
            task.cancel()
        return message

    task = asyncio.ensure_future(application(scope, listen, send))
    try:
        await task
    except asyncio.CancelledError:
        task.cancel()
        if not gone:
            raise
    except Exception:
        if not gone:
            raise
        log.debug("A call whose client hung up did not end cleanly.", exc_info=True)


class _Files:
    """The files behind the URLs that the data service hands out."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def _file(self, request: Request) -> Path:
        return self._plane.layout.path(str(self._plane.layout.data / request.path_params["path"]))

    async def put(self, request: Request) -> Response:
        try:
            file = self._file(request)
        except OutsideDataFolderError as e:
            return PlainTextResponse(str(e), 403)
        if not file.resolve().is_relative_to(self._plane.layout.uploads):
            return PlainTextResponse(f"{file} is not in the folder for uploads.", 403)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part")
        with part.open("wb") as out:
            async for chunk in request.stream():
                out.write(chunk)
        part.replace(file)
        return Response()

    async def get(self, request: Request) -> Response:
        try:
            file = self._file(request)
        except OutsideDataFolderError as e:
            return PlainTextResponse(str(e), 403)
        if not file.is_file():
            return PlainTextResponse(f"There is no file {file}.", 404)
        return FileResponse(file)
