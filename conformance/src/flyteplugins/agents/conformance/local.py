"""`flyte run --local` in processes of their own, which tests may kill.

Each process has a home of its own (Flyte keeps a cache there that outlives runs), another hash seed than the one before it, and
the environment that the test gives it. What happened is read from what the program under test wrote.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import faults
from ._forks import ForkServer, SharedForkServer
from .faults import POINTS_VARIABLE

__all__ = ["METADATA", "ForkServer", "LocalRuns", "ProcessOutcome", "SharedForkServer"]

METADATA = Path("/tmp/flyte/metadata")
"""Where `flyte run --local` keeps its runs."""


@dataclass(frozen=True)
class ProcessOutcome:
    """How a process ended.

    Attributes:
        status: Its exit status; negative for a signal.
        output: What it wrote to stdout and stderr.
    """

    status: int
    output: str

    @property
    def succeeded(self) -> bool:
        """Whether the run's task succeeded: the exit status alone does not tell."""
        return self.status == 0 and "Completed Local Run" in self.output


@dataclass
class LocalRuns:
    """Starts `flyte run --local` in new processes.

    Attributes:
        home: `HOME` of the processes, where Flyte's cache and the memories live.
        env: More environment variables, such as a model server's.
        servers: Fork servers to take turns with; without them each process starts from nothing.
        timeout: How long a process that starts from nothing may take, in seconds.
    """

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    servers: Sequence[ForkServer] = ()
    timeout: float = 240.0
    _started: int = 0
    _names: set[str] = field(default_factory=set)

    def run(
        self,
        file: Path,
        task: str,
        *,
        name: str,
        inputs: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ProcessOutcome:
        """Run a task, and wait for the process to end.

        Args:
            file: The program.
            task: The task's name in it.
            name: The run's name. A run of the same name and inputs goes on where an earlier one died.
            inputs: The task's inputs, as the command line takes them.
            env: Environment variables of this process.
        """
        self._started += 1
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FLYTE")}
        environment |= {"HOME": str(self.home), "NO_COLOR": "1", "COLUMNS": "200"}
        environment |= {**self.env, **(env or {})}
        command = [str(Path(sys.executable).with_name("flyte")), "run", "--local", "--name", name, file.name, task]
        for key, value in (inputs or {}).items():
            command += [f"--{key}", value]
        output = self.home / f"process-{self._started}.log"
        if self.servers:
            server = self.servers[self._started % len(self.servers)]
            status = server.run(command, env=environment, cwd=file.parent, output=output)
        else:
            environment["PYTHONHASHSEED"] = str(self._started)
            if POINTS_VARIABLE in environment:  # a fork server installs them itself
                command = [sys.executable, "-m", faults.__name__, *command]
            with output.open("wb") as log:
                status = subprocess.run(
                    command,
                    cwd=file.parent,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=self.timeout,
                    check=False,
                ).returncode
        self._names.add(name)
        return ProcessOutcome(status, output.read_text("utf-8", "replace"))

    def records(self, name: str) -> list[Path]:
        """The files in the records of a run, sorted by path.

        Args:
            name: The run's name.
        """
        return sorted(path for path in (METADATA / name / "flyte-agents").rglob("*") if path.is_file())

    def remove(self) -> None:
        """Remove what the runs left outside of their home."""
        for name in self._names:
            for folder in (METADATA, METADATA.with_name("raw_data")):
                shutil.rmtree(folder / name, ignore_errors=True)
