"""The client of the fork server: it starts programs in processes that have imported some modules already."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

__all__ = ["FLYTE", "WORKER", "ForkServer", "ForkedProcess", "SharedForkServer"]

FLYTE = "flyte.cli.main:main"
"""What `flyte` runs."""

WORKER = "flyte._bin.runtime:main"
"""What `a0` runs."""


class ForkedProcess:
    """A process that a fork server started.

    Attributes:
        pid: Its number.
    """

    def __init__(self, pid: int, ended: Future[int]) -> None:
        self.pid = pid
        self._ended = ended

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; `None` while it runs."""
        return self._ended.result() if self._ended.done() else None

    def wait(self) -> int:
        """Wait for it to end, and return its exit status."""
        return self._ended.result()

    @property
    def returncode(self) -> int | None:
        """What `poll` tells."""
        return self.poll()


@dataclass
class _Asked:
    """What the server has to tell of a process."""

    pid: Future[int] = field(default_factory=Future)
    status: Future[int] = field(default_factory=Future)


class ForkServer:
    """Starts programs in processes that have imported some modules, side by side. It may be used from several threads.

    Where the process that has the server dies, the server ends, and the processes that it started go on.

    Args:
        modules: What to import once, such as an agent SDK. They must not start threads.
        hash_seed: `PYTHONHASHSEED` of the processes.
        env: The server's own environment, in which the modules are imported; this process's by default.

    Raises:
        RuntimeError: From each method, where the server could not import the modules, or died; the text has its last words if
            they are not on this process's standard error.
    """

    def __init__(self, modules: Sequence[str], *, hash_seed: int, env: Mapping[str, str] | None = None) -> None:
        self._process: subprocess.Popen[bytes] | None = _start(
            modules, hash_seed=hash_seed, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._hear_from(self._process.stdout)

    def _send(self, request: bytes) -> None:
        self._requests.write(request)
        self._requests.flush()

    def _hear_from(self, answers: IO[bytes]) -> None:
        self._answers = answers
        self._asked: dict[str, _Asked] = {}
        self._ready: Future[None] = Future()
        self._ended: RuntimeError | None = None
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="fork-server", daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> None:
        """Wait until the modules are imported."""
        self._ready.result()

    def start(
        self,
        main: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        output: Path,
        input: Path = Path(os.devnull),
        session: bool = False,
        pid_file: Path | None = None,
    ) -> ForkedProcess:
        """Start a program, and return when its process is there.

        Args:
            main: The function that is the program, as `MODULE:FUNCTION`; see `FLYTE` and `WORKER`.
            argv: Its command line.
            env: Its whole environment. What the interpreter reads before it begins, such as `PYTHONPATH`, has no effect.
            cwd: Its folder.
            output: The file that gets its stdout and stderr.
            input: The file that it reads as stdin, such as a terminal.
            session: Whether it leads a session of its own.
            pid_file: A file for its number, which it writes first of all.
        """
        asked = _Asked()
        request = {
            "main": main,
            "argv": list(argv),
            "env": dict(env),
            "cwd": str(cwd),
            "output": str(output),
            "input": str(input),
            "session": session,
            "pid_file": str(pid_file) if pid_file else None,
        }
        with self._lock:
            if self._ended is not None:
                raise self._ended
            identifier = str(id(asked))
            self._asked[identifier] = asked
            with contextlib.suppress(ConnectionError):  # the reader says how it ended
                self._send(json.dumps({"id": identifier, **request}).encode() + b"\n")
        return ForkedProcess(asked.pid.result(), asked.status)

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output: Path) -> int:
        """Run the `flyte` command line, and wait for its process to end.

        Args:
            argv: The command line.
            env: The process's whole environment.
            cwd: The process's folder.
            output: The file that gets its stdout and stderr.

        Returns:
            Its exit status; negative for a signal.
        """
        return self.start(FLYTE, argv, env=env, cwd=cwd, output=output).wait()

    def _read(self) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                for line in self._answers:
                    self._hear(json.loads(line))
        finally:
            error = RuntimeError(self._last_words())
            with self._lock:
                self._ended = error
                left, self._asked = self._asked, {}
            if not self._ready.done():
                self._ready.set_exception(error)
            for asked in left.values():
                for future in (asked.pid, asked.status):
                    if not future.done():
                        future.set_exception(error)

    def _last_words(self) -> str:
        if self._process is None:
            return "The fork server ended."
        # Only now does it have a status: its output ends a moment before it does.
        return f"The fork server ended with status {self._process.wait()}."

    def _hear(self, answer: dict[str, Any]) -> None:
        if "ready" in answer:
            self._ready.set_result(None)
        elif "pid" in answer:
            self._asked[answer["id"]].pid.set_result(answer["pid"])
        else:
            self._asked.pop(answer["id"]).status.set_result(answer["status"])

    def close(self) -> None:
        """Stop the server; what it started goes on."""
        assert self._process is not None
        self._requests.close()
        self._process.wait(timeout=60)
        self._reader.join()
        self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.close()


_STARTED: list[subprocess.Popen[bytes]] = []
"""Servers that outlive what started them: others may use them."""


class SharedForkServer(ForkServer):
    """A fork server that several processes use: the first one starts it, and it ends with the last of them.

    Args:
        address: Where it listens: a socket in a folder that nobody else may write to.
        modules: What to import once, if it is not there yet; see `ForkServer`. `None`: it is to be there.
        hash_seed: `PYTHONHASHSEED` of the processes.

    Raises:
        RuntimeError: It is not there.
    """

    def __init__(self, address: Path, modules: Sequence[str] | None = None, *, hash_seed: int = 0) -> None:
        self.address = address
        self._process = None
        # Held as long as the server is used. While it is about to end, this waits for that.
        self._use = address.with_suffix(".users").open("a")
        fcntl.flock(self._use, fcntl.LOCK_SH)
        with address.with_suffix(".start").open("a") as first, _near(address) as name:
            fcntl.flock(first, fcntl.LOCK_EX)
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(name)
            except (FileNotFoundError, ConnectionRefusedError) as error:
                if modules is None:
                    connection.close()
                    self._use.close()
                    raise RuntimeError(f"No fork server listens at {address}.") from error
                address.unlink(missing_ok=True)  # of one that has ended
                with socket.socket(socket.AF_UNIX) as listener:
                    listener.bind(name)
                    listener.listen()
                    users = Path(self._use.name)
                    _STARTED.append(_start(modules, hash_seed=hash_seed, listener=listener, users=users))
                connection.connect(name)
        self._connection = connection
        self._hear_from(connection.makefile("rb"))

    def _send(self, request: bytes) -> None:
        self._connection.sendall(request)

    def close(self) -> None:
        """Use the server no more; what it started goes on."""
        with contextlib.suppress(OSError):  # it was killed
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        for file in (self._answers, self._connection, self._use):
            file.close()


def _start(
    modules: Sequence[str],
    *,
    hash_seed: int,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    listener: socket.socket | None = None,
    users: Path | None = None,
) -> subprocess.Popen[bytes]:
    listening = [] if listener is None else [f"--listener={listener.fileno()}", f"--users={users}"]
    return subprocess.Popen(
        # `-P`: what is in the folder where the server happens to be started is no program's business.
        [sys.executable, "-P", "-m", f"{__package__}._forkserver", *listening, "--", *modules],
        env=dict(os.environ if env is None else env) | {"PYTHONHASHSEED": str(hash_seed)},
        stdin=stdin,
        stdout=stdout,
        pass_fds=[] if listener is None else [listener.fileno()],
        start_new_session=True,  # a signal to a group that this process is in is not for the server
    )


@contextlib.contextmanager
def _near(address: Path) -> Iterator[str]:
    """A short name of a socket: its path may be longer than the 107 bytes that a socket's may have."""
    folder = os.open(address.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{address.name}"
    finally:
        os.close(folder)
