"""Python processes that have imported an agent SDK already.

Importing an SDK takes seconds, which a test that kills forty processes pays forty times. This server imports it once, with a hash
seed of its own, and forks a process for each program. Flyte and what agents have of ours are imported as well. What a fork would
spoil each process does for itself: Flyte starts a thread as it is imported, and fsspec reads the environment.

It reads one JSON object per line from its standard input, and answers with objects that bear its `id`: when the process has
started (`pid`), and when it has ended (`status`). Processes run side by side. When its input ends, so does it; they go on.

Or it listens at a socket, and has any number of users, who each get the answers to what they asked. It ends with the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import gc
import importlib
import json
import operator
import os
import pkgutil
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import wrapt

from flyteplugins.agents.conformance import faults

# What every program imports beside the SDK. Without one of them a program is slower, and that is all.
_ALWAYS = (
    *("aiosqlite", "anyio._backends._asyncio", "getpass", "pyqwest", "sqlite3", "truststore"),
    *(
        "pygments.lexers.python",
        "rich._emoji_codes",
        "rich.columns",
        "rich.live",
        "rich.progress",
        "rich.traceback",
        "rich.tree",
    ),
    *("genai_prices.data", "genai_prices.decompose", "genai_prices.validation"),
    *("docstring_parser", "flyte.cli.main", "flyte.cli._run", "flyte.report", "flyte._bin.runtime"),
    *("flyte.remote._artifact", "flyte.remote._run", "flyte.remote._trigger", "flyte._persistence._remote_reporter"),
    *(
        "flyte._internal.controllers._local_controller",
        "flyte._internal.controllers.remote",
        "flyte._internal.runtime.entrypoints",
    ),
)

_OURS = ("flyteplugins.agents.core.*", "flyteplugins.agents.core._report._page:_template")
"""What every agent's program imports of ours, and the report's page, which takes as long to compile."""

_later: list[Callable[[], None]] = []
"""What a program begins with."""


@wrapt.when_imported("flyte.syncify._api")
def _start_loops_later(module: Any) -> None:
    """Have each process start Flyte's event loops: a fork has neither their threads nor a selector of its own."""
    start = module._BackgroundLoop.__init__

    def keep(loop: Any, name: str) -> None:
        _later.append(functools.partial(start, loop, name))

    module._BackgroundLoop.__init__ = keep

    def undo() -> None:
        module._BackgroundLoop.__init__ = start

    _later.append(undo)


@wrapt.when_imported("fsspec.config")
def _read_environment_later(module: Any) -> None:
    """Have each process read fsspec's part of its own environment, as an import would."""
    _later.append(lambda: module.set_conf_env(module.conf))


class _User:
    """Who asks for processes: the one that started the server, or a connection.

    Args:
        asks: The file that its requests are read from.
        hears: The file that answers are written to.
    """

    def __init__(self, asks: int, hears: int) -> None:
        self.asks = asks
        self.hears = hears
        self._unread = b""

    def requests(self) -> Iterator[dict[str, Any]] | None:
        """What it has asked since the last time; `None` if it is gone."""
        try:
            read = os.read(self.asks, 65536)
        except ConnectionError:
            read = b""
        if not read:
            return None
        *lines, self._unread = (self._unread + read).split(b"\n")
        return map(json.loads, lines)

    def tell(self, **values: object) -> None:
        """Answer, if it is still there."""
        with contextlib.suppress(OSError):
            os.write(self.hears, json.dumps(values).encode() + b"\n")

    def close(self) -> None:
        """Let go of its files."""
        for number in {self.asks, self.hears}:
            os.close(number)
        self.hears = -1  # its processes may run on, and the number be another user's


class _Listener:
    """Where users come from, if anybody may become one.

    Args:
        number: The socket that they connect to.
        users: The file on which each user has a shared lock, from before it connects.
    """

    def __init__(self, number: int, users: str) -> None:
        self.socket = socket.socket(fileno=number)
        self._users = users

    def accept(self) -> _User:
        """Take a connection."""
        number = self.socket.accept()[0].detach()
        return _User(number, number)

    def may_end(self) -> bool:
        """Whether nobody uses the server or is about to. Then nobody can before this process has ended."""
        lock = os.open(self._users, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        return True


_ALONE = 1.0
"""How often a server without users looks whether it may end, in seconds: one may have died before it connected."""


def serve(modules: list[str], listener: _Listener | None = None) -> None:
    """Import the modules, then fork a process for each request until nobody can ask any more.

    Args:
        modules: Their names. `PACKAGE.*` imports all modules of a package. `MODULE:FUNCTION` calls a function of one: some of an
            SDK's classes are made when they are first used.
        listener: Who may ask; without it, who writes to the standard input.
    """
    answers = os.dup(1)
    os.dup2(2, 1)  # what a module prints as it is imported is no answer
    gc.disable()  # nothing of what is imported will be collected
    _import(modules)
    gc.enable()
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        raise SystemExit(f"importing {modules} started the threads {others}, which a forked process would lack")
    gc.freeze()  # a child that collects would otherwise copy every page
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(ended, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    users: dict[int, _User] = {}
    if listener is None:
        users[0] = _User(0, answers)
        users[0].tell(ready=True)
    running: dict[int, tuple[_User, str]] = {}
    while users or (listener is not None and not listener.may_end()):
        asking = [*users] if listener is None else [*users, listener.socket.fileno()]
        readable, _, _ = select.select([*asking, ended], [], [], None if users else _ALONE)
        if ended in readable:
            os.read(ended, 65536)
        _reap(running)
        for number in readable:
            if number in users:
                requests = users[number].requests()
                if requests is None:
                    users.pop(number).close()
                    continue
                for request in requests:
                    pid = _fork(request, (ended, wake, answers, *asking, *(user.hears for user in users.values())))
                    running[pid] = users[number], request["id"]
                    users[number].tell(id=request["id"], pid=pid)
            elif listener is not None and number == listener.socket.fileno():
                user = listener.accept()
                users[user.asks] = user
                user.tell(ready=True)


def _import(modules: list[str]) -> None:
    for module in _ALWAYS:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    for name in (*_OURS, *modules):
        module, _, function = name.partition(":")
        package = module.removesuffix(".*")
        found: Any = importlib.import_module(package)
        if package != module:
            for inner in pkgutil.walk_packages(found.__path__, f"{package}."):
                importlib.import_module(inner.name)
        if function:
            operator.attrgetter(function)(found)()


def _reap(running: dict[int, tuple[_User, str]]) -> None:
    """Tell of the processes that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        user, identifier = running.pop(pid)
        user.tell(id=identifier, status=os.waitstatus_to_exitcode(status))


def _fork(request: dict[str, Any], ours: tuple[int, ...]) -> int:
    """Fork a process, and return its number once it has its files, and leads a session of its own if it is to."""
    stands, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        for number in {stands, *ours}:
            if number:
                os.close(number)
        _become(request, tell)
    os.close(tell)
    os.read(stands, 1)
    os.close(stands)
    return pid


def _become(request: dict[str, Any], tell: int) -> NoReturn:
    """Be the program that was asked for, as if it had been started by itself."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = 1
    try:
        if request.get("session"):
            os.setsid()
        if request.get("pid_file"):
            temporary = request["pid_file"] + ".tmp"
            with open(temporary, "w") as file:
                file.write(str(os.getpid()))
            os.rename(temporary, request["pid_file"])
        os.chdir(request["cwd"])
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        given = os.open(request["input"], os.O_RDONLY | os.O_NOCTTY)
        for source, target in ((given, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.close(tell)
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = request["argv"]
        for begin in _later:
            begin()
        if "/" in sys.argv[0]:
            sys.path.insert(0, os.path.dirname(sys.argv[0]))  # as for any script
        if faults.POINTS_VARIABLE in os.environ or faults.PLAN_VARIABLE in os.environ:
            faults.install(faults.load_points(os.environ.get(faults.POINTS_VARIABLE, "")))
        module, _, function = request["main"].partition(":")
        getattr(importlib.import_module(module), function)()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--listener", type=int)
    parser.add_argument("--users")
    parser.add_argument("modules", nargs="*")
    options = parser.parse_args()
    serve(options.modules, None if options.listener is None else _Listener(options.listener, options.users))


if __name__ == "__main__":
    _main()
