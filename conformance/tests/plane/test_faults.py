"""Fault points: reached, counted, struck once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.faults import (
    Fault,
    FaultPoint,
    dump_points,
    load_points,
    parse_plan,
    reach,
    reached,
    struck,
)

WORK = """
import asyncio

def plain(x):
    print("plain", x, flush=True)
    return x

class Thing:
    async def method(self, x):
        print("method", x, flush=True)
        return x

    async def broken(self):
        raise ValueError("broken")
"""

SCRIPT = """
import asyncio, sys
import work

async def main():
    work.plain(1)
    await work.Thing().method(2)
    try:
        await work.Thing().broken()
    except ValueError:
        print("broken", flush=True)
    print("done", *sys.argv[1:], flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the script with fault points; `plan` and `points` as given."""
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "script.py").write_text(SCRIPT)

    def start(plan: str, *points: FaultPoint, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "AGENTS_FAULTS": plan,
            "AGENTS_FAULT_POINTS": dump_points(points),
            "AGENTS_FAULT_DIR": str(tmp_path / "faults"),
            **env,
        }
        return subprocess.run(
            [sys.executable, "-m", "flyteplugins.agents.conformance.faults", str(tmp_path / "script.py"), "argument"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return start


def test_a_process_dies_where_the_plan_says_and_its_retry_lives(run: Run, tmp_path: Path) -> None:
    point = FaultPoint("after-method", "work:Thing.method", "after")
    first = run("after-method@1", point, ACTION_NAME="a0")
    assert (first.returncode, first.stdout.split("\n")) == (-9, ["plain 1", "method 2", ""])
    second = run("after-method@1", point)
    assert (second.returncode, second.stdout.splitlines()[-1]) == (0, "done argument")
    assert reached(tmp_path / "faults") == {"after-method": 2}
    (record,) = struck(tmp_path / "faults")
    assert (record.point, record.occurrence, record.action) == ("after-method", 1, "a0")


def test_before_and_after_are_before_and_after(run: Run) -> None:
    assert run("p@1", FaultPoint("p", "work:plain")).stdout == ""
    assert run("p@2", FaultPoint("p", "work:plain", "after")).stdout == "plain 1\n"


def test_a_call_that_raises_is_not_past_the_point_after_it(run: Run, tmp_path: Path) -> None:
    done = run("", FaultPoint("after-broken", "work:Thing.broken", "after"))
    assert done.stdout.splitlines()[2:] == ["broken", "done argument"]
    assert reached(tmp_path / "faults") == {}


def test_several_faults_strike_one_after_the_other(run: Run, tmp_path: Path) -> None:
    point = FaultPoint("p", "work:plain")
    assert [run("p@1,p@2", point).returncode for _ in range(3)] == [-9, -9, 0]
    assert [(record.point, record.occurrence) for record in struck(tmp_path / "faults")] == [("p", 1), ("p", 2)]


def test_a_point_whose_function_does_not_exist_is_an_error_and_not_a_crash_that_never_comes(run: Run) -> None:
    done = run("p@1", FaultPoint("p", "work:missing"))
    assert done.returncode == 1
    assert "work has no 'missing'" in done.stderr


@pytest.mark.parametrize(
    ("plan", "env", "complaint"),
    [
        ("p@x", {}, "occurrence 'x'"),
        ("p@1", {"AGENTS_FAULT_DIR": ""}, "AGENTS_FAULT_DIR is not"),
        ("", {"AGENTS_FAULT_POINTS": "{"}, "not a JSON list"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_an_error_at_the_start(
    run: Run, plan: str, env: dict[str, str], complaint: str
) -> None:
    done = run(plan, **env)
    assert (done.returncode, done.stdout) == (1, "")
    assert complaint in done.stderr


def test_many_processes_get_a_number_each(tmp_path: Path) -> None:
    program = "from flyteplugins.agents.conformance.faults import reach\nfor _ in range(100): reach('p')"
    env = {**os.environ, "AGENTS_FAULT_DIR": str(tmp_path), "AGENTS_FAULTS": "p@250"}
    processes = [subprocess.Popen([sys.executable, "-c", program], env=env) for _ in range(3)]
    assert sorted(process.wait() for process in processes) == [-9, 0, 0]
    (record,) = struck(tmp_path)
    assert record.occurrence == 250


def test_without_a_folder_to_count_in_reaching_a_point_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTS_FAULT_DIR", raising=False)
    monkeypatch.setenv("AGENTS_FAULTS", "p@1")
    reach("p")


def test_plans_and_points_survive_being_written_and_read() -> None:
    faults = (Fault("a"), Fault("b", 3))
    assert parse_plan(",".join(map(str, faults))) == parse_plan(" a , b@3 ") == faults
    points = (FaultPoint("a", "m:f"), FaultPoint("b", "m.n:C.f", "after"))
    assert (FaultPoint.parse("a=m:f"), FaultPoint.parse("b=m.n:C.f:after")) == points
    assert load_points(dump_points(points)) == points


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fault("../up"),
        lambda: Fault("p", 0),
        lambda: FaultPoint("p", "module.function"),
        lambda: FaultPoint("p", "m:f", "between"),  # type: ignore[arg-type]
        lambda: FaultPoint.parse("p"),
        lambda: load_points('[{"name": "p"}]'),
    ],
)
def test_a_fault_or_point_that_makes_no_sense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        make()
