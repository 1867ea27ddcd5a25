"""Where the dialogue runs: in processes of `flyte run --local`, or in the workers of a control plane."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flyteplugins.agents.conformance.faults import (
    DIRECTORY_VARIABLE,
    PLAN_VARIABLE,
    POINTS_VARIABLE,
    Fault,
    dump_points,
    reached,
    struck,
)
from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.conformance.plane import LocalPlane, load_flow
from flyteplugins.agents.core import Folder, MemoryStore

from ._boundaries import POINTS
from ._dialogue import QUESTION, TASK, Dialogue, Outcome

if TYPE_CHECKING:
    from flyte.remote import Run

__all__ = ["LocalPlace", "Place", "PlanePlace", "kept_messages"]

_MOST_PROCESSES = 6


class Place(Protocol):
    """Somewhere to run the dialogue."""

    def run(self, *faults: Fault, memory: bool) -> Outcome:
        """Run it to its end, through the faults, and return what came of it.

        Args:
            faults: Where processes are killed.
            memory: Whether it has a memory.

        Raises:
            AssertionError: It did not end well, or a fault did not strike.
        """
        ...

    def boundaries(self) -> dict[str, int]:
        """How often the last run reached each boundary, by name."""
        ...


class LocalPlace:
    """Processes of `flyte run --local`; a killed one is started again with the same command.

    Args:
        dialogue: The dialogue.
        runs: Starts the processes.
        server: The model server.
        folder: An empty folder.
    """

    def __init__(self, dialogue: Dialogue, runs: LocalRuns, server: ModelServer, folder: Path) -> None:
        self._runs = runs
        self._server = server
        self._folder = folder
        self._program = dialogue.write_program(folder)
        self._dialogue = dialogue
        self._last = folder
        self._unbroken: dict[str, int] = {}

    def occurrences(self, boundary: str) -> int:
        """How often an unbroken run reaches a boundary; one has to have been made.

        Args:
            boundary: Its name.
        """
        return self._unbroken.get(boundary, 0)

    def run(self, *faults: Fault, memory: bool) -> Outcome:
        """Run the dialogue. See `Place`."""
        name = f"crash-{uuid.uuid4().hex[:12]}"
        folder = self._last = self._folder / name
        folder.mkdir()
        self._server.clear()
        self._dialogue.script(self._server)
        environment = {
            "CRASH_FOLDER": str(folder),
            PLAN_VARIABLE: ",".join(map(str, faults)),
            POINTS_VARIABLE: dump_points(POINTS),
            DIRECTORY_VARIABLE: str(folder / "faults"),
        }
        inputs = {"message": QUESTION, "memory_key": name if memory else ""}
        for _ in range(_MOST_PROCESSES):
            outcome = self._runs.run(self._program, TASK, name=name, inputs=inputs, env=environment)
            if outcome.succeeded:
                break
            assert outcome.status == -9, f"The process was not killed, and did not succeed:\n{outcome.output}"
        else:
            raise AssertionError(f"{_MOST_PROCESSES} processes were killed, and {faults} are {len(faults)} faults.")
        _check_struck(folder / "faults", faults)
        if not faults:
            self._unbroken = self.boundaries()
        memories = self._runs.home / ".flyte" / "agents" / "memory"
        return self._dialogue.outcome(folder, self._server, kept_messages(memories, name))

    def boundaries(self) -> dict[str, int]:
        """How often the last run reached each boundary."""
        return reached(self._last / "faults")


class PlanePlace:
    """The workers of a control plane; Flyte retries a killed one by itself.

    Args:
        dialogue: The dialogue.
        plane: The plane, started with the model server's environment.
        server: The model server.
        folder: An empty folder.
    """

    def __init__(self, dialogue: Dialogue, plane: LocalPlane, server: ModelServer, folder: Path) -> None:
        self._plane = plane
        self._server = server
        self._folder = folder
        (program := folder / "program").mkdir()
        self._flow = load_flow(dialogue.write_program(program))
        # A process imports a program once, and two planes of one process may have the same one.
        self._root = Path(str(self._flow.__file__)).parent
        self._dialogue = dialogue
        self._last = ""

    def run(self, *faults: Fault, memory: bool) -> Outcome:
        """Run the dialogue. See `Place`."""
        return self.finish(self.start(*faults, memory=memory), *faults)

    def start(self, *faults: Fault, memory: bool) -> Run:
        """Start the dialogue, and return its run at once."""
        import flyte

        name = self._last = f"crash{uuid.uuid4().hex[:12]}"
        folder = self._folder / name
        folder.mkdir()
        self._server.clear()
        self._dialogue.script(self._server)
        self._plane.connect(self._root)
        environment = {
            "CRASH_FOLDER": str(folder),
            PLAN_VARIABLE: ",".join(map(str, faults)),
            POINTS_VARIABLE: dump_points(POINTS),
        }
        # All files of the program's folder: to look which of a test process's thousands of modules stand there takes seconds.
        runner = flyte.with_runcontext(name=name, env_vars=environment, copy_style="all")
        started: Run = runner.run(getattr(self._flow, TASK), message=QUESTION, memory_key=name if memory else "")
        return started

    def finish(self, run: Run, *faults: Fault) -> Outcome:
        """Wait for a run to end, and return what came of it.

        Raises:
            AssertionError: It did not end well, or a fault did not strike.
        """
        name = run.name
        run.wait(quiet=True)
        assert run.phase == "succeeded", f"{name} {run.phase}:\n{self._plane.worker_log(name)[-4000:]}"
        _check_struck(self._plane.data / "faults" / name, faults)
        return self._dialogue.outcome(
            self._folder / name, self._server, kept_messages(self._plane.data / "agents", name)
        )

    def boundaries(self) -> dict[str, int]:
        """How often the last run reached each boundary."""
        return self._plane.reached(self._last)


def _check_struck(folder: Path, faults: tuple[Fault, ...]) -> None:
    happened = {f"{record.point}@{record.occurrence}" for record in struck(folder)}
    assert happened == set(map(str, faults)), f"{sorted(map(str, faults))} were to strike; {sorted(happened)} did."


def kept_messages(memories: Path, key: str) -> list[Any]:
    """The messages that are kept under a key, whichever SDK's they are.

    Args:
        memories: A folder that the memory is in, at any depth.
        key: The memory key.
    """

    folders = sorted(memories.rglob(key))

    async def read() -> list[Any]:
        messages: list[Any] = []
        for folder in folders:
            store = MemoryStore(key, Folder.at(str(folder)))
            for sdk in await store.transcripts():
                messages += await store.messages(sdk)
        return messages

    return asyncio.run(read())
