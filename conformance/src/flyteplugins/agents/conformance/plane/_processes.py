"""Worker processes: start one, tell it from another with its number, wait for it, end it.

A worker outlives a plane that is killed, so everything about it can be found again from its number and what tells it
from a later process with the same number.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from flyteplugins.agents.conformance._forks import WORKER, ForkedProcess, ForkServer

_LINUX: Final = platform.system() == "Linux"
_POLL: Final = 0.05  # seconds between looks at a process
_BIRTH: Final = 2.0  # seconds that a worker has to write down its number

# The worker writes its number itself before it becomes what it runs, so that a plane killed just after the start, and
# before it could note the number, still finds the worker when it comes back.
_SHELL: Final = 'echo $$ > "$1.tmp" && mv "$1.tmp" "$1" && shift && exec "$@"'


def identity(pid: int) -> str:
    """What tells a living process from another with its number: when it started. Empty if there is no such process."""
    if _LINUX:
        try:
            # The name in parentheses may hold spaces; the state is the first field after it, the start time the 20th.
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return "" if after_name[0] in "ZX" else after_name[19]
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def handles_sigterm(pid: int) -> bool:
    """Whether a process has a handler of its own for SIGTERM (told on Linux only)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


class Worker:
    """A worker process, ours or one that an earlier plane started.

    Args:
        pid: its number.
        process: its `identity`.
        child: the handle, if it is our own child.
    """

    def __init__(self, pid: int, process: str, child: subprocess.Popen[bytes] | ForkedProcess | None = None) -> None:
        self.pid = pid
        self.process = process
        self._child = child

    @classmethod
    def start(cls, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, pid_file: Path) -> Worker:
        """Start a worker in a session of its own, with its output appended to `log` and its number in `pid_file`."""
        pid_file.unlink(missing_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL, "worker", str(pid_file), *argv],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(child.pid, identity(child.pid), child)

    @classmethod
    def fork(
        cls, server: ForkServer, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path, pid_file: Path
    ) -> Worker:
        """The same, from a server that has imported the SDK already.

        Raises:
            RuntimeError: The server has died.
        """
        pid_file.unlink(missing_ok=True)
        child = server.start(WORKER, argv, env=env, cwd=cwd, output=log, session=True, pid_file=pid_file)
        return cls(child.pid, identity(child.pid), child)

    @classmethod
    async def find(cls, pid: int, process: str, pid_file: Path) -> Worker | None:
        """The worker that an earlier plane started, if it lives.

        Args:
            pid: its number as the plane noted it; 0 if it was killed before it could.
            process: its identity, if noted.
            pid_file: where the worker itself wrote its number.
        """
        if pid:
            return cls(pid, process) if process and identity(pid) == process else None
        written_by = time.monotonic() + _BIRTH
        while (written := _written(pid_file)) is None:
            if time.monotonic() > written_by:
                return None
            await asyncio.sleep(_POLL)
        pid, process = written, identity(written)
        return cls(pid, process) if process and _works_in(pid, pid_file.parent) else None

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        if self._child is not None:
            try:
                return self._child.poll() is None
            except RuntimeError:  # its fork server was killed, and who ended how is not known any more
                self._child = None
        return bool(self.process) and identity(self.pid) == self.process

    async def wait(self) -> int | None:
        """Wait for its end, and end whatever it leaves behind in its session, as the end of a container does.

        Returns:
            Its exit code, negative for a signal; `None` if it is not our child, as only a parent learns it.
        """
        while self.alive:  # noqa: ASYNC110 - the kernel sets no Event
            await asyncio.sleep(_POLL)
        self._signal_session(signal.SIGKILL)
        return None if self._child is None else self._child.returncode

    async def end(self, grace: float) -> None:
        """End it as a cluster does.

        There a worker is its container's first process, for which the kernel drops signals without a handler. So it
        gets SIGTERM only if it handles it, goes on working through the grace, and is then killed.

        Args:
            grace: seconds.
        """
        if self.alive and handles_sigterm(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        give_up = time.monotonic() + grace
        while self.alive and time.monotonic() < give_up:  # noqa: ASYNC110 - the kernel sets no Event
            await asyncio.sleep(min(_POLL, grace))
        self.kill()

    def kill(self) -> None:
        """Kill it and everything in its session."""
        if self.alive:
            self._signal_session(signal.SIGKILL)

    def _signal_session(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


def _written(pid_file: Path) -> int | None:
    """The number that a worker wrote down, if it has."""
    try:
        return int(pid_file.read_text())
    except FileNotFoundError:
        return None


def _works_in(pid: int, folder: Path) -> bool:
    """Whether a process works below `folder` (told on Linux only; elsewhere it is taken to)."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)
    except OSError:
        return not _LINUX
