"""Serve a plane on this machine until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from flyteplugins.agents.conformance._forks import ForkServer, SharedForkServer

from ._app import LOOPBACK, build_app
from ._layout import Layout
from ._plane import Plane
from .modes import Modes

log = logging.getLogger(__name__)

_CONFIG = """\
# How the flyte command line finds this plane: flyte --config {path} ...
admin:
  endpoint: {endpoint}
  insecure: true
image:
  # The plane answers that any image is there; its workers run in its own Python instead.
  builder: remote
task:
  org: local
  project: {project}
  domain: {domain}
"""


class PlaneError(RuntimeError):
    """The plane cannot be started as asked."""


@dataclass(frozen=True)
class Settings:
    """How to serve a plane.

    Args:
        data: the data folder; made if it is missing.
        host: loopback address or name to listen on.
        port: port to listen on; 0 for any free one.
        slots: workers that may compute at once; those that wait for children or conditions do not count.
        abort_grace: seconds that an aborted worker goes on before it is killed.
        binaries: folder with the `a0` program that runs the tasks; the one beside this Python by default.
        preload: modules that workers have imported before they begin, since they are forked from processes that have; it saves
            the seconds of an SDK's import. Such modules may not start threads.
        fork_servers: sockets of servers that have imported something for others as well, in place of preloading it.
        modes: how the plane is to behave.
        project: project that the config file names.
        domain: domain that the config file names.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 8090
    slots: int = 4
    abort_grace: float = 2.0
    binaries: Path = field(default_factory=lambda: Path(sys.executable).parent)
    preload: tuple[str, ...] = ()
    fork_servers: tuple[Path, ...] = ()
    modes: Modes = field(default_factory=Modes)
    project: str = "default"
    domain: str = "development"


def serve(settings: Settings, *, ready: Callable[[str, Path], None] | None = None) -> None:
    """Serve a plane until SIGTERM or SIGINT, which also kills its workers; a later plane starts their attempts again.

    Args:
        settings: how.
        ready: called with the plane's URL and its config file once it takes calls.

    Raises:
        PlaneError: the host is not loopback, the port is taken, another plane has the data folder, there is no `a0`, or a
            module cannot be preloaded.
    """
    if not (settings.binaries / "a0").exists():
        raise PlaneError(f"There is no `a0` in {settings.binaries}: install flyte there, or name another folder.")
    if settings.preload and settings.fork_servers:
        raise PlaneError(
            "Workers are forked either from the plane's own processes or from others: give one of the two."
        )
    forked = bool(settings.preload or settings.fork_servers)
    if forked and settings.binaries.resolve() != Path(sys.executable).parent.resolve():
        raise PlaneError(
            f"Workers are forked from the plane's own Python, and the `a0` in {settings.binaries} has another: "
            "leave out the one or the other."
        )
    layout = Layout(settings.data)
    with (
        _lock(layout.lock),
        _listen(settings) as listener,
        layout.rpc_log.open("a", buffering=1) as rpc_log,
        _forks(settings) as forks,
    ):
        asyncio.run(_serve(settings, layout, listener, rpc_log, forks, ready))


async def _serve(
    settings: Settings,
    layout: Layout,
    listener: socket.socket,
    rpc_log: TextIO,
    forks: Sequence[ForkServer],
    ready: Callable[[str, Path], None] | None,
) -> None:
    host, port = listener.getsockname()[:2]
    endpoint = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    plane = Plane(
        layout.data,
        endpoint=endpoint,
        binaries=settings.binaries,
        slots=settings.slots,
        abort_grace=settings.abort_grace,
        modes=settings.modes,
        forks=forks,
    )
    connections = _Connections()
    config = uvicorn.Config(
        build_app(plane, cut=connections.cut, rpc_log=rpc_log),
        http=connections.protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    # Only now: a worker that is started, or adopted, calls at once.
    plane.recover()
    layout.config.write_text(
        _CONFIG.format(path=layout.config, endpoint=endpoint, project=settings.project, domain=settings.domain)
    )
    if ready is not None:
        ready(endpoint, layout.config)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    log.info("Stopping; workers are killed.")
    # Workers first: they would keep calling, and their streams would keep the server from ending.
    await plane.stop()
    connections.cut_all()
    server.should_exit = True
    stopping.cancel()
    await serving


class _Server(uvicorn.Server):
    """Leaves signals to us: workers end before the server does."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connections:
    """The open connections, so that one can be cut without an answer."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], asyncio.Transport] = {}
        connections = self._open

        class Protocol(H11Protocol):
            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
                super().connection_made(transport)
                connections[tuple(transport.get_extra_info("peername")[:2])] = transport

            def connection_lost(self, exc: Exception | None) -> None:
                connections.pop(tuple(self.transport.get_extra_info("peername")[:2]), None)
                super().connection_lost(exc)

        self.protocol: type[asyncio.Protocol] = Protocol

    def cut(self, client: tuple[str, int]) -> None:
        """Cut the connection of the client with that address and port."""
        transport = self._open.get(client)
        if transport is not None:
            transport.abort()

    def cut_all(self) -> None:
        """Cut every connection."""
        for transport in list(self._open.values()):
            transport.abort()


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Hold the data folder; the kernel lets go of it when the process dies, however it does."""
    with file.open("a") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaneError(f"Another plane has {file.parent}: stop it, or name another data folder.") from None
        yield


@contextlib.contextmanager
def _forks(settings: Settings) -> Iterator[tuple[ForkServer, ...]]:
    """What workers are forked from: two processes that import the modules, so that a retry hashes otherwise than before."""
    with contextlib.ExitStack() as stack:
        try:
            servers: list[ForkServer] = [
                stack.enter_context(SharedForkServer(address)) for address in settings.fork_servers
            ]
            if settings.preload:
                servers += [stack.enter_context(ForkServer(settings.preload, hash_seed=seed)) for seed in (1, 2)]
            for server in servers:
                server.wait_until_ready()
        except RuntimeError as e:
            what = f"Cannot preload {', '.join(settings.preload)}" if settings.preload else "Cannot fork workers"
            raise PlaneError(f"{what}: {e}") from e
        yield tuple(servers)


@contextlib.contextmanager
def _listen(settings: Settings) -> Iterator[socket.socket]:
    host = "127.0.0.1" if settings.host == "localhost" else settings.host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or str(address) not in LOOPBACK:
        raise PlaneError(
            f"This plane runs whatever code it is sent and asks nobody who they are, so it does not listen on "
            f"{settings.host!r}. Use one of {', '.join(LOOPBACK)}."
        )
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # The protocol is named because asyncio sets TCP_NODELAY only then; without it each message waits 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, settings.port))
        except OSError as e:
            raise PlaneError(f"Cannot listen on {host}:{settings.port}: {e.strerror}. Name another port.") from e
        yield listener
