"""Each example does what its first comment says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.local import LocalRuns, ProcessOutcome
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def _no_marks(run_name: str) -> Iterator[None]:
    yield
    for mark in Path(tempfile.gettempdir()).glob(f"*-{run_name}"):
        mark.unlink()


def typed(example: str) -> list[str]:
    """The command that the example's first comment says to type."""
    line = re.search(r"^# Type[^:]*:\s+(flyte run .*)$", (EXAMPLES / example).read_text(), re.MULTILINE)
    assert line is not None, f"{example} does not say what to type"
    return shlex.split(line[1])


def run(local_runs: LocalRuns, example: str, name: str) -> ProcessOutcome:
    words = typed(example)
    at = words.index(f"examples/{example}")
    inputs = dict(zip((word.removeprefix("--") for word in words[at + 2 :: 2]), words[at + 3 :: 2], strict=True))
    return local_runs.run(EXAMPLES / example, words[at + 1], name=name, inputs=inputs)


def printed(outcome: ProcessOutcome) -> list[str]:
    return [line.strip() for line in outcome.output.splitlines() if line.startswith("    ")]


def test_streaming_prints_the_answer_as_it_is_made_and_goes_on_after_its_death(
    local_runs: LocalRuns, model_server: ModelServer, run_name: str
) -> None:
    first = run(local_runs, "streaming.py", run_name)
    assert first.status == 1
    assert "*** the process dies in the middle of the answer ***" in printed(first)
    assert "[get_weather: Sunny and 24 °C in Lisbon.]" in printed(first)
    again = run(local_runs, "streaming.py", run_name)
    assert again.succeeded, again.output
    assert "[get_weather: Sunny and 24 °C in Lisbon. (replayed)]" in printed(again)
    turns = [line for line in printed(again) if line.startswith("[a turn of")]
    assert [("(replayed)" in line) for line in turns] == [True, True, False]
    assert model_server.journal.count(user="What is the weather in Lisbon?") == 2
    assert model_server.journal.count(user="Tell me a long story") == 2  # the one that was cut off, and the whole one


def test_structured_gives_a_task_a_typed_value(local_runs: LocalRuns, model_server: ModelServer, run_name: str) -> None:
    days = [{"activity": "walk", "cost": 0}, {"activity": "museum", "cost": 12.5}]
    model_server.script(
        "Propose a short trip",
        Reply(calls=(call("get_weather", city="Lisbon"),)),
        Reply(structured={"city": "Lisbon", "days": days, "needs_umbrella": False}),
    )
    outcome = run(local_runs, "structured.py", run_name)
    assert outcome.succeeded, outcome.output
    assert "Lisbon: 2 days, 12.50 EUR" in outcome.output
    assert any(line.startswith("Trip(city='Lisbon', days=[Day(activity='walk', cost=0.0)") for line in printed(outcome))


def test_multi_agent_asks_one_agent_per_city_and_one_about_them_all(
    local_runs: LocalRuns, model_server: ModelServer, run_name: str
) -> None:
    model_server.script("Which city is the warmest", Reply("Lisbon, at 24 °C."))
    outcome = run(local_runs, "multi_agent.py", run_name)
    assert outcome.succeeded, outcome.output
    assert "Lisbon, at 24 °C." in outcome.output
    assert {line.partition(":")[0] for line in printed(outcome)} >= {"Lisbon", "Oslo", "Rome"}
    asked = model_server.journal.requests()[-1].user
    assert all(
        f"Sunny and {degrees} °C in {city}" in asked for city, degrees in (("Lisbon", 24), ("Oslo", 16), ("Rome", 16))
    )
    assert model_server.journal.count() == 7


def test_the_examples_run_with_the_offline_server_as_they_say(tmp_path: Path, run_name: str) -> None:
    """Without a key, with nothing but the lenient server in front of the command."""
    words = typed("structured.py")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "flyteplugins.agents.conformance.models",
            "--",
            *words[:2],
            "--name",
            run_name,
            *words[2:],
        ],
        cwd=EXAMPLES.parent,
        env={**os.environ, "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EUR" in done.stdout
