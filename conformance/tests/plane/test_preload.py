"""Workers that are forked from a process which has imported what they need."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flyteplugins.agents.conformance.plane import Modes
from flyteplugins.agents.conformance.plane.testing import LocalPlane, kill_worker

Start = Callable[..., Any]
Wait = Callable[..., Any]
Lines = Callable[[Path], list[str]]


@pytest.fixture(scope="module")
def warm(plane_factory: Callable[..., LocalPlane]) -> LocalPlane:
    """A plane whose workers have imported a module of the standard library that nothing else imports."""
    return plane_factory(preload=("this",))


def test_a_worker_has_the_module_before_its_program_begins_and_is_a_process_of_its_own(
    warm: LocalPlane, flow: ModuleType, run_on: Start
) -> None:
    runs = [run_on(warm, flow.imported, module="this") for _ in range(2)]
    for run in runs:
        run.wait(quiet=True)
        assert run.phase == "succeeded", warm.worker_log(run.name)
    told = [run.outputs()[0].split() for run in runs]
    assert [loaded for loaded, _, _ in told] == ["True", "True"]
    # Two servers take turns, so that what depends on the hash seed shows.
    assert len({seed for _, seed, _ in told}) == 2
    assert len({pid for _, _, pid in told}) == 2


def test_with_cold_workers_each_starts_from_nothing(warm: LocalPlane, flow: ModuleType, run_on: Start) -> None:
    warm.set_modes(Modes(warm_workers=False))
    try:
        run = run_on(warm, flow.imported, module="this")
        run.wait(quiet=True)
    finally:
        warm.set_modes(Modes())
    assert run.outputs()[0].split()[0] == "False"


def test_a_killed_one_is_retried_and_a_failure_counts_as_one(
    warm: LocalPlane, flow: ModuleType, run_on: Start, tmp_path: Path, lines: Lines
) -> None:
    runs = {name: run_on(warm, getattr(flow, name), effects=str(tmp_path / name)) for name in ("die_once", "fail_once")}
    for run in runs.values():
        run.wait(quiet=True)
        assert run.phase == "succeeded", warm.worker_log(run.name)
    assert [line[:9] for line in lines(tmp_path / "die_once")] == ["attempt 0", "attempt 0"]
    assert lines(tmp_path / "fail_once") == ["attempt 0", "attempt 1"]


def test_it_outlives_a_plane_that_is_killed_and_is_adopted(
    warm: LocalPlane, flow: ModuleType, run_on: Start, wait_until: Wait, tmp_path: Path
) -> None:
    run = run_on(warm, flow.stay, effects=str(tmp_path / "effects"), go=str(tmp_path / "go"))
    (pid,) = wait_until(lambda: warm.workers() if (tmp_path / "effects").exists() else [])
    warm.kill()
    os.kill(pid, 0)
    warm.start()
    (tmp_path / "go").touch()
    run.wait(quiet=True)
    assert run.phase == "succeeded", warm.worker_log(run.name)
    assert (tmp_path / "effects").read_text().splitlines() == [str(pid)]


def test_an_aborted_one_is_killed(
    warm: LocalPlane, flow: ModuleType, run_on: Start, wait_until: Wait, tmp_path: Path
) -> None:
    run = run_on(warm, flow.stay, effects=str(tmp_path / "effects"), go=str(tmp_path / "go"))
    (pid,) = wait_until(lambda: warm.workers() if (tmp_path / "effects").exists() else [])
    run.abort()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_it_is_known_to_have_been_killed_when_its_server_is_gone(
    plane_factory: Callable[..., LocalPlane], flow: ModuleType, run_on: Start, wait_until: Wait, tmp_path: Path
) -> None:
    plane = plane_factory(preload=("this",))
    run = run_on(plane, flow.stay, effects=str(tmp_path / "effects"), go=str(tmp_path / "go"))
    (pid,) = wait_until(lambda: plane.workers() if (tmp_path / "effects").exists() else [])
    kill_worker(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
    (tmp_path / "go").touch()
    run.wait(quiet=True)
    assert run.phase == "succeeded", logs(plane, run)


def logs(plane: LocalPlane, run: Any) -> str:
    """What the plane and the run's worker said."""
    return plane.log.read_text() + plane.worker_log(run.name)


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ("no_such_module", "No module named 'no_such_module'"),
        ("starts_a_thread", "started the threads ['at-import'], which a forked process would lack"),
    ],
)
def test_a_module_that_cannot_be_preloaded_keeps_the_plane_from_starting(
    tmp_path: Path, module: str, complaint: str
) -> None:
    (tmp_path / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), name='at-import', daemon=True).start()\n"
    )
    with closing(LocalPlane(tmp_path / "plane", preload=(module,), env={"PYTHONPATH": str(tmp_path)})) as plane:
        with pytest.raises(RuntimeError, match=f"Cannot preload {module}"):
            plane.start()
        assert complaint in plane.log.read_text()
