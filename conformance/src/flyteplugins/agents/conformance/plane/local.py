"""A plane in a process of its own, to start, kill, run tasks on and look into from Python."""

from __future__ import annotations

import importlib.util
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType

from flyteplugins.agents.conformance._forks import ForkServer, SharedForkServer
from flyteplugins.agents.conformance.faults import FaultRecord, reached, struck

from .modes import Modes

_START_TIMEOUT = 30.0  # seconds
_COMMAND_TIMEOUT = 120.0  # seconds


class LocalPlane:
    """A plane in a process of its own.

    Args:
        data: its data folder.
        modes: how it is to behave.
        slots: workers that may compute at once.
        abort_grace: seconds that an aborted worker goes on.
        preload: modules that its workers have imported before they begin.
        forks: what its workers are forked from, in turns, in place of processes of its own that have preloaded something.
        binaries: folder with the `a0` program; the one beside this Python by default.
        env: environment variables for it, and so for its workers, beside those of this process.
        commands: what the commands of `flyte` are forked from; without it each starts from nothing.
    """

    def __init__(
        self,
        data: Path,
        *,
        modes: Modes | None = None,
        slots: int = 4,
        abort_grace: float = 0.5,
        preload: Sequence[str] = (),
        forks: Sequence[SharedForkServer] = (),
        binaries: Path | None = None,
        env: Mapping[str, str] | None = None,
        commands: ForkServer | None = None,
    ) -> None:
        self.data = data.resolve()
        self.modes = modes or Modes()
        self.endpoint = ""
        self._slots = slots
        self.abort_grace = abort_grace
        self._preload = tuple(preload)
        self._forks = tuple(forks)
        self.binaries = binaries or Path(sys.executable).parent
        self._env = dict(env or {})
        self._commands = commands
        self._process: subprocess.Popen[str] | None = None

    # ---- its life

    def start(self) -> LocalPlane:
        """Start it, with the port that it had before if it had one; returns once it takes calls.

        Raises:
            RuntimeError: it ended instead; the message has its last words.
        """
        self.data.mkdir(parents=True, exist_ok=True)
        port = self.endpoint.rpartition(":")[2] or "0"
        options = {
            "data": self.data,
            "port": port,
            "slots": self._slots,
            "abort-grace": self.abort_grace,
            "bin": self.binaries,
        }
        argv = [sys.executable, "-m", "flyteplugins.agents.conformance.plane", "up"]
        argv += [f"--{name}={value}" for name, value in options.items()]
        argv += [f"--preload={module}" for module in self._preload]
        argv += [f"--fork-server={server.address}" for server in self._forks]
        argv += self.modes.to_options()
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **self._env}
            )
        assert self._process.stdout is not None
        # "Flyte plane on http://127.0.0.1:8090, data in ...", or nothing at all if it ended.
        greeting = self._process.stdout.readline()
        self._process.stdout.readline()
        self._process.stdout.readline()
        if not greeting:
            self._wait()
            raise RuntimeError(f"The plane did not start. Its last words: {self.log.read_text()[-2000:]}")
        self.endpoint = greeting.partition(", data in ")[0].rpartition(" ")[2]
        return self

    def stop(self) -> None:
        """Stop it with SIGTERM, which ends its workers too."""
        if self._process is not None:
            self._process.terminate()
            self._wait()

    def kill(self) -> None:
        """Kill it with SIGKILL; its workers live on."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait(_START_TIMEOUT)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def close(self) -> None:
        """Stop it and see that no worker is left, also where it was killed before."""
        if self._process is not None and self._process.poll() is not None:
            self._wait()  # it ended by itself
        if self._process is None and self.workers():
            self.start()
        self.stop()

    @property
    def pid(self) -> int:
        """The number of its process."""
        if self._process is None:
            raise RuntimeError("The plane is not running: start it first.")
        return self._process.pid

    # ---- talking to it

    @property
    def config(self) -> Path:
        """Its config file, for `flyte --config`."""
        return self.data / "config.yaml"

    def config_of(self, user: str) -> Path:
        """A config file with which the plane takes the caller for that user."""
        file = self.data / f"config-{user}.yaml"
        file.write_text(self.config.read_text().replace(self.endpoint, f"{self.endpoint}/as/{user}"))
        return file

    def connect(self, root: Path, *, user: str | None = None) -> None:
        """Make this plane the one that `flyte` talks to in this process.

        Args:
            root: folder that holds the code of the tasks to run.
            user: who to be; the account that runs the tests by default.
        """
        import flyte

        flyte.init(
            endpoint=self.endpoint if user is None else f"{self.endpoint}/as/{user}",
            insecure=True,
            org="local",
            project="default",
            domain="development",
            image_builder="remote",
            root_dir=root,
        )

    def flyte(self, *arguments: str, cwd: Path | None = None, user: str | None = None, check: bool = True) -> str:
        """Run the real command line against it.

        Args:
            arguments: what to type after `flyte --config ...`.
            cwd: where to type it; `run` and `deploy` want a folder above the code.
            user: who to be; the account that runs the tests by default.
            check: raise if the command fails.

        Returns:
            What it printed, errors as well.

        Raises:
            AssertionError: the command failed; the message has what it printed.
        """
        config = self.config if user is None else self.config_of(user)
        environment = os.environ | {"DO_NOT_TRACK": "1", "COLUMNS": "400", "NO_COLOR": "1"}
        argv = [str(Path(sys.executable).parent / "flyte"), "--config", str(config), *arguments]
        with tempfile.NamedTemporaryFile() as output:
            if self._commands is not None:
                status = self._commands.run(argv, cwd=cwd or Path.cwd(), output=Path(output.name), env=environment)
            else:
                status = subprocess.run(
                    argv,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_COMMAND_TIMEOUT,
                    env=environment,
                    check=False,
                ).returncode
            printed = Path(output.name).read_text("utf-8", "replace")
        if check and status:
            raise AssertionError(f"flyte {' '.join(arguments)} ended with {status}: {printed}")
        return printed

    def set_modes(self, modes: Modes) -> None:
        """Have it behave otherwise from now on. Calls to be dropped are counted from here."""
        request = urllib.request.Request(f"{self.endpoint}/modes", modes.to_json().encode(), method="PUT")
        with urllib.request.urlopen(request, timeout=_START_TIMEOUT):
            self.modes = modes

    # ---- what became of a run

    @property
    def log(self) -> Path:
        """What it said."""
        return self.data / "plane.log"

    def calls(self, method: str) -> int:
        """How many calls of `Service/Method` it answered, or dropped."""
        return sum(line.split()[1] == method for line in (self.data / "rpc.log").read_text().splitlines())

    def workers(self) -> list[int]:
        """The numbers of the worker processes that it has, or had when it was killed."""
        database = self.data / "plane.db"
        if not database.exists():
            return []
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as state:
            return [row[0] for row in state.execute("SELECT pid FROM actions WHERE pid != 0 ORDER BY started")]

    def attempt(self, run: str, action: str = "a0", number: int = 1) -> Path:
        """The outputs folder of an attempt."""
        return self.data / "runs" / run / action / str(number)

    def worker_log(self, run: str, action: str = "a0", number: int = 1) -> str:
        """What an attempt's worker printed."""
        return (self.attempt(run, action, number) / "log.txt").read_text()

    def reached(self, run: str) -> dict[str, int]:
        """How often a run reached each fault point."""
        return reached(self.data / "faults" / run)

    def struck(self, run: str) -> list[FaultRecord]:
        """The faults that struck in a run."""
        return struck(self.data / "faults" / run)


def load_flow(file: Path) -> ModuleType:
    """Import a file of tasks under its own name, as `flyte run FILE` does, so that a worker finds them again.

    Args:
        file: the file; the folder it is in is the one to `connect` with.
    """
    name = file.stem
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def kill_worker(pid: int) -> None:
    """Kill a worker as a lost node would, unless it has just ended by itself."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
