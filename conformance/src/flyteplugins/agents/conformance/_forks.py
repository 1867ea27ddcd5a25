"""The client of the fork server: it starts programs in processes that have imported some modules already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["FLYTE", "WORKER", "ForkServer", "ForkedProcess"]

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
        self._process = subprocess.Popen(
            # `-P`: what is in the folder where the server happens to be started is no program's business.
            [sys.executable, "-P", "-m", f"{__package__}._forkserver", *modules],
            env=dict(os.environ if env is None else env) | {"PYTHONHASHSEED": str(hash_seed)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a signal to a group that this process is in is not for the server
        )
        self._asked: dict[str, _Asked] = {}
        self._ready: Future[None] = Future()
        self._ended: RuntimeError | None = None
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="fork-server", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The server's number."""
        return self._process.pid

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
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": identifier, **request}).encode() + b"\n")
            self._process.stdin.flush()
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
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._hear(json.loads(line))
        finally:
            # Only now does it have a status: its output ends a moment before it does.
            error = RuntimeError(f"The fork server ended with status {self._process.wait()}.")
            with self._lock:
                self._ended = error
                left, self._asked = self._asked, {}
            if not self._ready.done():
                self._ready.set_exception(error)
            for asked in left.values():
                for future in (asked.pid, asked.status):
                    if not future.done():
                        future.set_exception(error)

    def _hear(self, answer: dict[str, Any]) -> None:
        if "ready" in answer:
            self._ready.set_result(None)
        elif "pid" in answer:
            self._asked[answer["id"]].pid.set_result(answer["pid"])
        else:
            self._asked.pop(answer["id"]).status.set_result(answer["status"])

    def close(self) -> None:
        """Stop the server; what it started goes on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.close()
