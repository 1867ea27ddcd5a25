"""A task that is a tool stays a task for `flyte run`."""

from __future__ import annotations

from pathlib import Path

import flyte.remote
import pytest

from flyteplugins.agents.conformance.crash.testing import ForkServers
from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.plane import LocalPlane

PROGRAM = '''
import sys

import flyte

from flyteplugins.agents.openai import tool

env = flyte.TaskEnvironment("weather")


@tool
@env.task
async def get_weather(city: str) -> str:
    """The weather in a city."""
    assert "agents" not in sys.modules
    return f"sunny in {city}"


@tool
def inline(city: str) -> str:
    """No task."""
    return city
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    file = folder / "weather.py"
    file.write_text(PROGRAM)
    return file


def test_a_tool_that_is_a_task_runs_by_its_name_on_a_laptop(
    fork_servers: ForkServers, home: Path, program: Path, run_name: str
) -> None:
    runs = LocalRuns(home, servers=fork_servers())  # which have Flyte, and no SDK
    outcome = runs.run(program, "get_weather", name=run_name, inputs={"city": "Paris"})
    assert outcome.succeeded, outcome.output
    assert "sunny in Paris" in outcome.output
    runs.remove()


def test_a_tool_that_is_none_is_no_command(local_runs: LocalRuns, program: Path, run_name: str) -> None:
    outcome = local_runs.run(program, "inline", name=run_name, inputs={"city": "Paris"})
    assert not outcome.succeeded


def test_a_tool_that_is_a_task_runs_by_its_name_on_the_plane(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    plane = LocalPlane(tmp_path / "plane").start()
    try:
        plane.flyte("run", "--name", "by-name", program.name, "get_weather", "--city", "Oslo", cwd=program.parent)
        plane.connect(program.parent)
        run = flyte.remote.Run.get(name="by-name")
        run.wait(quiet=True)
        assert run.phase == "succeeded", plane.worker_log("by-name")
        assert run.outputs()[0] == "sunny in Oslo"
    finally:
        plane.close()
