"""Attempts: which failure starts which."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import flyte.remote
import pytest
from flyteidl2.workflow import run_definition_pb2

from flyteplugins.agents.conformance.plane.testing import LocalPlane

Start = Callable[..., Any]
Lines = Callable[[Path], list[str]]

FLOWS = Path(__file__).parent / "flows"


@pytest.fixture(scope="module")
def runs(
    plane: LocalPlane, flow: ModuleType, run_on: Start, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Any, Path]]:
    """All runs of this module, started together, with the files of their effects."""
    folder = tmp_path_factory.mktemp("effects")
    started = {}
    for name in ("fail_once", "refuse", "die_once"):
        started[name] = (run_on(plane, getattr(flow, name), effects=str(folder / name)), folder / name)
    started["catch_timeout"] = (run_on(plane, flow.catch_timeout), folder / "none")
    for run, _ in started.values():
        run.wait(quiet=True)
    return started


def _details(run: Any) -> run_definition_pb2.ActionDetails:
    return flyte.remote.Run.get(name=run.name).details().action_details.pb2


def test_a_failure_of_the_users_code_starts_an_attempt_with_the_next_number_and_a_folder_of_its_own(
    plane: LocalPlane, runs: dict[str, tuple[Any, Path]], lines: Lines
) -> None:
    run, effects = runs["fail_once"]
    assert run.phase == "succeeded"
    assert lines(effects) == ["attempt 0", "attempt 1"]
    attempts = _details(run).attempts
    assert [attempt.attempt for attempt in attempts] == [1, 2]
    assert [attempt.error_info.message for attempt in attempts] == ["attempt 0 fails", ""]
    for number, left in ((1, "error.pb"), (2, "outputs.pb")):
        assert (plane.attempt(run.name, number=number) / left).exists()
        assert "Flyte runtime started" in plane.worker_log(run.name, number=number)


def test_the_next_attempt_finds_the_checkpoint_of_the_one_before(runs: dict[str, tuple[Any, Path]]) -> None:
    run, _ = runs["fail_once"]
    assert run.outputs()[0] == "saved by 0"


def test_an_error_that_is_not_recoverable_is_not_retried(runs: dict[str, tuple[Any, Path]], lines: Lines) -> None:
    run, effects = runs["refuse"]
    assert run.phase == "failed"
    assert lines(effects) == ["refused"]
    assert _details(run).error_info.code == "NonRecoverableError"


def test_a_killed_worker_restarts_the_same_attempt_in_the_same_folder_without_a_checkpoint(
    plane: LocalPlane, runs: dict[str, tuple[Any, Path]], lines: Lines
) -> None:
    run, effects = runs["die_once"]
    assert run.phase == "succeeded", "a system failure does not use up the task's own retries"
    assert run.outputs()[0] == "0"
    assert lines(effects) == ["attempt 0 checkpoint False"] * 2
    (attempt,) = _details(run).attempts
    assert attempt.attempt == 1
    assert [event.reason for event in attempt.cluster_events] == ["Interrupted"]
    assert not plane.attempt(run.name, number=2).exists()


def test_an_attempt_that_runs_too_long_is_killed_and_its_parent_hears_of_a_timeout(
    runs: dict[str, tuple[Any, Path]],
) -> None:
    run, _ = runs["catch_timeout"]
    assert run.outputs()[0] == "timed out"
    child = next(a for a in flyte.remote.Action.listall(for_run_name=run.name) if a.name != "a0")
    assert child.phase == "timed_out"


@pytest.fixture(scope="module")
def suicidal(plane_factory: Callable[..., LocalPlane], tmp_path_factory: pytest.TempPathFactory) -> LocalPlane:
    """A plane whose workers die at once, each by the signal or with the code in the file `how`."""
    binaries = tmp_path_factory.mktemp("bin")
    program = binaries / "a0"
    program.write_text(f"#!/bin/sh\necho started >> {binaries}/starts\n. {binaries}/how\n")
    program.chmod(0o755)
    return plane_factory(binaries=binaries)


@pytest.mark.parametrize(
    ("how", "starts", "code"),
    [
        ("kill -9 $$", 4, "Interrupted"),  # the first, and as many as the open-source backend restarts
        ("exit 3", 1, "NonZeroExitCode"),  # the user's code did that, and the task has no retries
        ("kill -11 $$", 1, "NonZeroExitCode"),
    ],
)
def test_workers_that_keep_dying_fail_the_action(
    suicidal: LocalPlane, flow: ModuleType, run_on: Start, how: str, starts: int, code: str
) -> None:
    binaries = suicidal.binaries
    (binaries / "how").write_text(how)
    (binaries / "starts").write_text("")
    run = run_on(suicidal, flow.double, x=1)
    run.wait(quiet=True)
    assert run.phase == "failed"
    assert len((binaries / "starts").read_text().split()) == starts
    assert _details(run).error_info.code == code


def test_a_follower_sees_the_worker_that_takes_a_lost_ones_place(plane: LocalPlane, tmp_path: Path) -> None:
    """It is the same attempt, with one log."""
    effects = str(tmp_path / "effects")
    said = plane.flyte("run", "--follow", "plane_flow.py", "die_once", "--effects", effects, cwd=FLOWS)
    assert Path(effects).read_text().count("attempt 0") == 2
    assert said.count("Flyte runtime started") == 2
    assert said.count("Flyte runtime completed") == 1
