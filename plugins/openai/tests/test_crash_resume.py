"""A run that dies goes on in another process, and nothing that is on record is paid or done twice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

APP = Path(__file__).parent / "apps" / "dialogue.py"
QUESTION = "How warm is it in Oslo and Rome, and should I book?"
ANSWER = "Rome is warmer; it is booked as AB12."
EFFECTS = Counter(["temperature Oslo", "temperature Rome", "book Rome", "write_note"])
MESSAGES = 10  # the question, four calls and their results, the answer

KILLED = 17


@dataclass
class Dialogue:
    """The four-turn dialogue in processes of their own."""

    runs: LocalRuns
    server: ModelServer
    folder: Path

    def __post_init__(self) -> None:
        self.server.script(
            "How warm is it",
            Reply(
                calls=(
                    call("temperature", city="Oslo", unit="celsius"),
                    call("temperature", city="Rome", unit="celsius"),
                )
            ),
            Reply(calls=(call("book", city="Rome"),)),
            Reply(calls=(call("write_note", text="booked"),)),
            Reply(ANSWER),
        )

    def start(self, name: str, *, kill: str = "", memory_key: str = "") -> bool:
        """Run it; tells whether the task succeeded."""
        self.answer.unlink(missing_ok=True)
        outcome = self.runs.run(
            APP,
            "chat",
            name=name,
            inputs={"message": QUESTION, "memory_key": memory_key},
            env={"KILL": kill, "EFFECTS": str(self.folder / "effects"), "ANSWER": str(self.answer)},
        )
        assert outcome.status == (KILLED if kill else 0), outcome.output
        assert outcome.succeeded == (not kill), outcome.output
        return outcome.succeeded

    @property
    def answer(self) -> Path:
        return self.folder / "answer.json"

    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.answer.read_text())
        return result

    def effects(self) -> Counter[str]:
        return Counter((self.folder / "effects").read_text().split("\n")[:-1])

    def transcript(self) -> list[Any]:
        files = sorted((self.runs.home / ".flyte" / "agents" / "memory").rglob("transcript/openai/*.json"))
        return [message for file in files for message in json.loads(file.read_text())["messages"]]


@pytest.fixture
def dialogue(local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path) -> Dialogue:
    return Dialogue(local_runs, model_server, tmp_path)


@pytest.mark.parametrize("turn", [2])  # the crash suite kills at every boundary
def test_a_run_that_dies_after_a_turn_asks_only_the_later_ones(dialogue: Dialogue, run_name: str, turn: int) -> None:
    dialogue.start(run_name, kill=f"turn {turn}")
    before = dialogue.server.journal.per_turn(user=QUESTION)
    assert before == dict.fromkeys(range(1, turn + 1), 1)
    dialogue.start(run_name)
    assert dialogue.server.journal.per_turn(user=QUESTION) == dict.fromkeys(range(1, 5), 1)
    result = dialogue.result()
    assert result["output"] == ANSWER
    assert [item["replayed"] for item in result["turns"]] == [number <= turn for number in range(1, 5)]
    assert result["usage"]["fresh"]["requests"] == 4 - turn
    assert result["usage"]["replayed"]["requests"] == turn
    assert dialogue.effects() == EFFECTS


@pytest.mark.parametrize(
    ("place", "repeated"),
    [
        ("tool book Rome", ["book Rome"]),
    ],
)
def test_a_run_that_dies_in_a_tool_runs_that_call_again_and_no_other(
    dialogue: Dialogue, run_name: str, place: str, repeated: list[str]
) -> None:
    dialogue.start(run_name, kill=place)
    asked = dialogue.server.journal.count(user=QUESTION)
    dialogue.start(run_name)
    assert dialogue.server.journal.count(user=QUESTION) == 4
    assert sum(not turn["replayed"] for turn in dialogue.result()["turns"]) == 4 - asked
    assert dialogue.result()["output"] == ANSWER
    again = dialogue.effects() - EFFECTS
    assert set(again) <= {*repeated, "temperature Rome"}  # the parallel call may have been on its way
    assert again[repeated[0]] == 1
    assert (
        dialogue.effects()["temperature Rome"] <= 2 if "Oslo" in place else dialogue.effects()["temperature Rome"] == 1
    )


@pytest.mark.parametrize("place", ["committed"])
def test_with_a_memory_key_each_message_is_kept_once(dialogue: Dialogue, run_name: str, place: str) -> None:
    dialogue.start(run_name, kill=place, memory_key="ada")
    assert bool(dialogue.transcript()) == (place == "committed")
    dialogue.start(run_name, memory_key="ada")
    kept = dialogue.transcript()
    assert len(kept) == MESSAGES, kept
    assert len({json.dumps(message, sort_keys=True) for message in kept}) == len(kept)
    assert dialogue.server.journal.count(user=QUESTION) == 4
    dialogue.start(run_name, memory_key="ada")  # the same run once more: everything is on record
    assert dialogue.transcript() == kept
    assert dialogue.server.journal.count(user=QUESTION) == 4


def test_another_run_of_the_same_inputs_is_not_taken_for_a_repeat(dialogue: Dialogue, run_name: str) -> None:
    dialogue.start(run_name, memory_key="ada")
    first = dialogue.transcript()
    dialogue.server.script("How warm is it", Reply("As I said: Rome."), anywhere=True)
    dialogue.start(f"{run_name}-2", memory_key="ada")
    both = dialogue.transcript()
    assert both[: len(first)] == first
    assert len(both) > len(first)


def test_the_same_holds_for_processes_that_start_from_nothing(
    fresh_local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, run_name: str
) -> None:
    dialogue = Dialogue(fresh_local_runs, model_server, tmp_path)
    dialogue.start(run_name, kill="turn 2", memory_key="ada")
    dialogue.start(run_name, memory_key="ada")
    assert model_server.journal.per_turn(user=QUESTION) == dict.fromkeys(range(1, 5), 1)
    assert dialogue.effects() == EFFECTS
    assert len(dialogue.transcript()) == MESSAGES
