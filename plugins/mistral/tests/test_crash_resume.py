"""A process that dies when a request was applied, and its answer is on record nowhere."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mistralai.client import Mistral

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
from flyteplugins.agents.conformance.models import ModelServer

APP = Path(__file__).parent / "apps" / "kept.py"
QUESTION = "How warm is it in Oslo and Rome? Keep notes."
ANSWER = "Rome is warmer than Oslo."
EFFECTS = Counter(["temperature Oslo", "temperature Rome", "note Oslo 20", "note Rome 20", "note done"])

ANSWERED = FaultPoint("answered", "flyteplugins.agents.core._recorder:ask", "after")

# Leaves of a run, in the order in which they answer: the memory, a turn, two task tools, a turn, a note, ... Of these the turns:
TURNS = {1: 2, 2: 5, 3: 7, 4: 9, 5: 11}


# the crash suite has runs without server state
@pytest.mark.parametrize(
    ("mode", "turn"),
    [
        pytest.param(
            mode,
            turn,
            id=f"{name}-{turn}",
            # streamed or not, by turns
            marks=[pytest.mark.thorough] if not mode or (turn % 2 == 0) != ("streaming" in mode) else [],
        )
        for name, mode in {
            "stateless": {},
            "server state": {"server_state": True},
            "server state, streamed": {"server_state": True, "streaming": True},
        }.items()
        for turn in TURNS
    ],
)
def test_a_process_that_is_killed_after_an_append_is_gone_on_with(
    local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, mode: dict[str, Any], turn: int
) -> None:
    """The answer is right, no tool runs twice, and the server's conversation says everything once."""
    Dialogue.script(model_server)
    name = f"kept-{uuid.uuid4().hex[:12]}"
    environment = {
        "MODE": json.dumps(mode),
        "CRASH_FOLDER": str(tmp_path),
        PLAN_VARIABLE: str(Fault("answered", TURNS[turn])),
        POINTS_VARIABLE: dump_points([ANSWERED]),
        DIRECTORY_VARIABLE: str(tmp_path / "faults"),
    }

    def run() -> bool:
        outcome = local_runs.run(
            APP, "chat", name=name, inputs={"message": QUESTION, "memory_key": name}, env=environment
        )
        assert outcome.succeeded or outcome.status == -9, outcome.output
        return outcome.succeeded

    assert not run()
    assert model_server.journal.per_turn(user=QUESTION) == dict.fromkeys(range(1, turn + 1), 1)
    assert run()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["output"] == ANSWER
    assert Counter((tmp_path / "effects").read_text().split("\n")[:-1]) == EFFECTS
    asked = model_server.journal.per_turn(user=QUESTION)
    if "server_state" not in mode:
        assert asked == {number: 2 if number == turn else 1 for number in range(1, 6)}
        return
    assert asked == {number: 2 if number == turn == 1 else 1 for number in range(1, 6)}
    with Mistral(api_key="k", server_url=model_server.mistral_server_url) as client:
        history = client.beta.conversations.get_history(conversation_id=result["conversation_id"]).entries
    kinds = Counter(entry.type for entry in history)
    assert kinds == {"message.input": 1, "function.call": 5, "function.result": 5, "message.output": 1}
