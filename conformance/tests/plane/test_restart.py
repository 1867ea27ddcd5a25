"""The plane dies and comes back; workers die and come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import flyte.remote
import pytest

from flyteplugins.agents.conformance.local import SharedForkServer
from flyteplugins.agents.conformance.plane import Modes
from flyteplugins.agents.conformance.plane._processes import identity
from flyteplugins.agents.conformance.plane.testing import LocalPlane, kill_worker

Lines = Callable[[Path], list[str]]

FIRST_HALF = ["step 1", "step 2", "part 1"]


@dataclass
class Scene:
    """Something to do on a plane that is going to die."""

    plane: LocalPlane
    flow: ModuleType
    run_on: Callable[..., Any]
    lines: Lines
    wait_until: Callable[..., Any]
    folder: Path

    def story(self, name: str, *, epilogue: bool = False) -> Any:
        """A run that has done its first half and waits for `go`."""
        return self.waiting(
            self.run_on(
                self.plane, self.flow.story, effects=str(self.effects(name)), go=str(self.go), epilogue=epilogue
            ),
            name,
            "waiting",
        )

    def waiting(self, run: Any, name: str, for_line: str) -> Any:
        """A run, once it noted that line."""
        self.wait_until(lambda: any(line.startswith(for_line) for line in self.lines(self.effects(name))))
        return run

    def effects(self, name: str) -> Path:
        return self.folder / name

    @property
    def go(self) -> Path:
        return self.folder / "go"

    def told(self, name: str) -> list[str]:
        """What a story did, without the notes of who waited."""
        return [line for line in self.lines(self.effects(name)) if not line.startswith("waiting")]


@pytest.fixture(scope="module")
def mortal(plane_factory: Callable[..., LocalPlane], flyte_imported: tuple[SharedForkServer, ...]) -> LocalPlane:
    """A plane to kill."""
    return plane_factory(forks=flyte_imported)


@pytest.fixture
def scene(
    mortal: LocalPlane,
    flow: ModuleType,
    run_on: Callable[..., Any],
    lines: Lines,
    wait_until: Callable[..., Any],
    tmp_path: Path,
) -> Scene:
    return Scene(mortal, flow, run_on, lines, wait_until, tmp_path)


def test_a_plane_that_is_killed_and_restarted_takes_up_all_its_runs_and_nothing_is_repeated(scene: Scene) -> None:
    plane = scene.plane
    plane.set_modes(Modes(warm_workers=False))  # each starts from nothing
    idle = scene.waiting(
        run := scene.run_on(plane, scene.flow.idle, effects=str(scene.effects("idle")), go=str(scene.go)),
        "idle",
        "idle",
    )
    (idler,) = plane.workers()
    asking = scene.run_on(plane, scene.flow.ask, effects=str(scene.effects("answer")), name="after-the-kill")
    story = scene.story("story", epilogue=True)
    (storyteller,) = {int(line.split()[1]) for line in scene.lines(scene.effects("story")) if "waiting" in line}
    scene.wait_until(lambda: list(flyte.remote.Condition.listall(run_name=asking.name)))

    plane.kill()
    scene.go.touch()  # the story records its next step while nobody listens, and the idler ends while nobody looks
    scene.wait_until(lambda: not identity(idler))
    plane.start()

    # The worker that outlived the plane was adopted: it goes on, and is not started again.
    story.wait(quiet=True)
    assert story.outputs()[0] == 9
    assert scene.lines(scene.effects("story")) == [*FIRST_HALF, f"waiting {storyteller}", "step 3", "part 2", "done"]
    # The worker that ended in between is judged by what it left.
    idle.wait(quiet=True)
    assert (run.outputs()[0], scene.lines(scene.effects("idle"))) == ("rested", ["idle"])
    # The condition still waits.
    (condition,) = flyte.remote.Condition.listall(run_name=asking.name)
    condition.signal(True)
    asking.wait(quiet=True)
    assert asking.outputs()[0] == "answered True"


def test_a_worker_that_dies_while_the_plane_is_dead_is_a_system_failure_of_the_same_attempt(scene: Scene) -> None:
    story = scene.story("story")
    (worker,) = scene.plane.workers()
    scene.plane.kill()
    kill_worker(worker)
    scene.go.touch()
    scene.plane.start()
    story.wait(quiet=True)
    assert story.outputs()[0] == 7
    # Traces are not served, so both steps are taken again; the finished child task is answered from its record.
    assert scene.told("story") == [*FIRST_HALF, "step 1", "step 2", "step 3", "done"]
    assert not scene.plane.attempt(story.name, number=2).exists()


def test_a_stopped_plane_ends_its_workers_and_a_later_one_resumes_the_attempt(scene: Scene) -> None:
    story = scene.story("story")
    (worker,) = scene.plane.workers()
    scene.plane.stop()
    assert not identity(worker)
    assert scene.plane.workers() == []
    scene.go.touch()
    scene.plane.start()
    story.wait(quiet=True)
    assert story.outputs()[0] == 7
    assert not scene.plane.attempt(story.name, number=2).exists()


def test_a_grace_that_the_plane_did_not_live_to_see_ends_after_its_restart(
    scene: Scene, plane_factory: Callable[..., LocalPlane]
) -> None:
    plane = plane_factory(abort_grace=3600)
    effects = scene.effects("linger")
    run = scene.waiting(scene.run_on(plane, scene.flow.linger, effects=str(effects), who="it"), "linger", "it works")
    run.abort()
    (worker,) = plane.workers()
    plane.kill()
    plane.abort_grace = 0.1
    plane.start()
    scene.wait_until(lambda: not identity(worker))
    assert plane.workers() == []


def test_two_planes_cannot_have_one_data_folder(mortal: LocalPlane) -> None:
    second = LocalPlane(mortal.data)
    with pytest.raises(RuntimeError, match="Another plane has"):
        second.start()
