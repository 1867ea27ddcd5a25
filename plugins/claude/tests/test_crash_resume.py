"""Processes that are killed, and gone on with elsewhere: another home, another directory, another day."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.crash import Dialogue
from flyteplugins.agents.conformance.faults import (
    DIRECTORY_VARIABLE,
    PLAN_VARIABLE,
    POINTS_VARIABLE,
    Fault,
    FaultPoint,
    dump_points,
)
from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

QUESTION = "How warm is it in Oslo and Rome? Keep notes."
ANSWER = "Rome is warmer than Oslo."
EFFECTS = Counter(["temperature Oslo", "temperature Rome", "note Oslo 20", "note Rome 20", "note done"])

POINTS = (FaultPoint("on-record", "flyteplugins.agents.core._records:RecordFolder.write", "after"),)

LATER, EARLIER = "claude-sonnet-5-5", "claude-sonnet-4-5"
"""Models that Claude Code tells of the run in a message of its own, and in the user's."""

PLACES = [
    pytest.param(LATER, Fault("in-tool", 1), 1, id="in tool 1"),
    pytest.param(LATER, Fault("in-tool", 3), 3, id="in tool 3"),
    pytest.param(LATER, Fault("in-tool", 4), 4, id="in tool 4", marks=pytest.mark.thorough),
    pytest.param(LATER, Fault("in-tool", 5), 5, id="in tool 5", marks=pytest.mark.thorough),
    pytest.param(LATER, Fault("on-record", 1), None, id="behind the first turn", marks=pytest.mark.thorough),
    pytest.param(LATER, Fault("on-record", 4), None, id="behind the second turn"),
    pytest.param(EARLIER, Fault("on-record", 4), None, id="behind the second turn, with an earlier model"),
]
"""In each tool (the first two run side by side), and between turns."""


def processes_of(mark: str) -> list[str]:
    """The programs that run with a mark in their environment."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


@pytest.mark.parametrize(("model", "fault", "tool"), PLACES)
def test_a_killed_process_is_gone_on_with_elsewhere(
    local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, model: str, fault: Fault, tool: int | None
) -> None:
    """No recorded turn is asked again, no finished tool runs again, and nothing of the killed process runs on."""
    Dialogue.script(model_server)
    name = f"claude-{uuid.uuid4().hex[:12]}"
    places = [tmp_path / "here", tmp_path / "there"]
    for place in places:
        (place / "home").mkdir(parents=True)
    program = Dialogue("claude", model=model).write_program(places[0])
    shutil.copy(program, places[1])
    environment = {
        "CRASH_FOLDER": str(tmp_path),
        PLAN_VARIABLE: str(fault),
        POINTS_VARIABLE: dump_points(POINTS),
        DIRECTORY_VARIABLE: str(tmp_path / "faults"),
    }

    def run(place: Path, zone: str) -> bool:
        outcome = local_runs.run(
            place / program.name,
            "chat",
            name=name,
            inputs={"message": QUESTION},
            env={**environment, "HOME": str(place / "home"), "TZ": zone},
        )
        assert outcome.succeeded or outcome.status == -9, outcome.output
        return outcome.succeeded

    assert not run(places[0], "Pacific/Pago_Pago")
    deadline = time.monotonic() + 60
    while left := processes_of(f"CRASH_FOLDER={tmp_path}"):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    asked = dict(model_server.journal.per_turn(user=QUESTION))
    assert run(places[1], "Pacific/Kiritimati")  # where it is another day
    assert json.loads((tmp_path / "result.json").read_text())["output"] == ANSWER
    turns = model_server.journal.per_turn(user=QUESTION)
    assert turns == dict.fromkeys(range(1, 6), 1), f"after the kill {asked}, then {dict(turns)}"
    effects = Counter((tmp_path / "effects").read_text().split("\n")[:-1])
    assert effects >= EFFECTS
    assert (effects - EFFECTS).total() <= (0 if tool is None else 2 if tool == 1 else 1)
    sessions = {entry.headers["x-claude-code-session-id"] for entry in model_server.journal.requests()}
    assert len(sessions) == 2
    assert not processes_of(f"CRASH_FOLDER={tmp_path}")


def test_of_a_killed_process_nothing_runs_on(
    local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, run_name: str
) -> None:
    """No Claude Code, no shell of its built-in tools with what runs in it, and no MCP server that was started."""
    model_server.script(
        "go",
        Reply(calls=(call("mcp__theirs__echo", text="a"),)),
        Reply(calls=(call("Bash", command="touch begun; kill -9 $WORKER; sleep 1000", description="x"),)),
    )
    program = Path(__file__).parent / "apps" / "dies_in_a_tool.py"
    outcome = local_runs.run(
        program, "chat", name=run_name, inputs={"message": "go"}, env={"CRASH_FOLDER": str(tmp_path)}
    )
    assert outcome.status == -9, outcome.output
    assert (tmp_path / "begun").exists()
    assert "echo a" in (tmp_path / "server.log").read_text()
    deadline = time.monotonic() + 60
    while left := processes_of(f"CRASH_FOLDER={tmp_path}"):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
