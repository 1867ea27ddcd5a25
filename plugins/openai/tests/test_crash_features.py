"""Each thing that the SDK can do in a run, killed after each record: nothing that is on record is paid or done twice."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flyteplugins.agents.conformance.crash import POINTS
from flyteplugins.agents.conformance.faults import (
    DIRECTORY_VARIABLE,
    PLAN_VARIABLE,
    POINTS_VARIABLE,
    Fault,
    dump_points,
    reached,
)
from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

APP = Path(__file__).parent / "apps" / "features.py"
QUESTION = "How heavy is it?"
ANSWER = "It is heavy, and that is all there is to say."


@dataclass(frozen=True)
class Feature:
    """What the model says in a run.

    Attributes:
        scripts: Replies by the question.
        kills: After which records the process is killed; a run makes these at least.
        repeats: What happens again on each attempt, because it is the agent's own code and no leaf.
    """

    scripts: dict[str, tuple[Reply | str, ...]]
    kills: tuple[int, ...]
    repeats: frozenset[str] = frozenset()


WEIGH = Reply(calls=(call("weigh", thing="iron"), call("weigh", thing="feather")))
TALK = Reply(ANSWER, pieces=6)

FEATURES = {
    "streamed": Feature({QUESTION: (WEIGH, TALK)}, kills=(1, 3)),
    "handoff": Feature({QUESTION: (WEIGH, Reply(calls=(call("transfer_to_closer"),)), WEIGH, ANSWER)}, kills=(4, 5)),
    "agent_as_tool": Feature(
        {QUESTION: (Reply(calls=(call("ask_expert", input="Really?"),)), ANSWER), "Really?": (WEIGH, "Yes.")},
        kills=(2, 5),
    ),
    "guarded": Feature(
        {QUESTION: (WEIGH, ANSWER), "Is the question fine?": ("fine",), "Is the answer fine?": ("fine",)},
        kills=(1, 6),
        repeats=frozenset({"guard input", "guard output"}),
    ),
    "mcp": Feature(
        {QUESTION: (Reply(calls=(call("find", text="it"), call("break", text="it"))), ANSWER)}, kills=(1, 5)
    ),
    "own_model": Feature({}, kills=(2, 5)),
    "own_model_listened_to": Feature({}, kills=(2, 5)),
    "own_session": Feature({QUESTION: (WEIGH, ANSWER)}, kills=(2, 6)),
    "streamed_inside": Feature(
        {QUESTION: (Reply(calls=(call("ask_streamed", question="Loud?"),)), ANSWER), "Loud?": (WEIGH, TALK)},
        kills=(2, 5),
        repeats=frozenset({"ask streamed"}),
    ),
}


@dataclass
class Attempt:
    """What came of a run."""

    result: dict[str, Any]
    effects: Counter[str]
    requests: dict[str, dict[int, int]]
    records: int
    folder: Path


Run = Callable[..., Attempt]


@pytest.fixture
def run(local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, run_name: str) -> Run:
    """Runs the agent of a feature, killed after a record or not at all, and goes on until it has its answer."""

    def run(feature: str, kill: int | None = None) -> Attempt:
        name = f"{run_name}-{kill}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "effects").touch()
        model_server.clear()
        for question, replies in FEATURES[feature].scripts.items():
            model_server.script(f"^{question[:-1]}.$", *replies)
        environment = {
            "FOLDER": str(folder),
            PLAN_VARIABLE: str(Fault("after-record", kill)) if kill else "",
            POINTS_VARIABLE: dump_points(POINTS),
            DIRECTORY_VARIABLE: str(folder / "faults"),
        }
        for attempt in range(2):
            outcome = local_runs.run(APP, feature, name=name, inputs={"question": QUESTION}, env=environment)
            if outcome.succeeded:
                break
            assert (outcome.status, attempt) == (-9, 0), outcome.output
        assert outcome.succeeded, outcome.output
        assert attempt == (1 if kill else 0), f"There is no record {kill}."
        return Attempt(
            json.loads((folder / "result.json").read_text()),
            Counter((folder / "effects").read_text().split("\n")[:-1]),
            {question: model_server.journal.per_turn(user=question) for question in FEATURES[feature].scripts},
            reached(folder / "faults")["after-record"],
            folder,
        )

    return run


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what tells a replay from a fresh answer. Parallel calls end in any order."""
    turns = [{name: turn[name] for name in turn if name not in ("replayed", "seconds")} for turn in result["turns"]]
    calls = [{name: one[name] for name in one if name not in ("replayed", "seconds")} for one in result["tool_calls"]]
    usage = result["usage"]
    return {
        "output": result["output"],
        "turns": turns,
        "calls": sorted(calls, key=str),
        "usage": {name: usage["fresh"][name] + usage["replayed"][name] for name in usage["fresh"]},
        "events": without_run_ids(result.get("events", [])),
    }


def without_run_ids(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name != "run"} for event in events]


@pytest.mark.parametrize("feature", FEATURES)
def test_a_run_that_dies_goes_on_like_an_unbroken_one(run: Run, feature: str) -> None:
    unbroken = run(feature)
    assert max(FEATURES[feature].kills) <= unbroken.records
    for kill in FEATURES[feature].kills:
        killed = run(feature, kill)
        assert comparable(killed.result) == comparable(unbroken.result), f"killed after record {kill}"
        assert killed.requests == unbroken.requests, f"killed after record {kill}"
        again = killed.effects - unbroken.effects
        for effect in FEATURES[feature].repeats:
            again.pop(effect, None)
        # a tool may have been at work beside the one whose record was made
        assert sum(again.values()) <= 1, f"killed after record {kill}: {again}"
        assert not unbroken.effects - killed.effects
        assert killed.result["usage"]["replayed"]["requests"] > 0 or kill == 1


def test_what_is_streamed_comes_in_pieces_on_a_replay_as_well(run: Run) -> None:
    texts = [event["text"] for event in run("streamed", 4).result["events"] if event["type"] == "text delta"]
    assert (len(texts), "".join(texts)) == (6, ANSWER)


def test_the_tools_of_an_mcp_server_are_listed_once_per_turn_and_called_once(run: Run) -> None:
    assert run("mcp", 5).effects == Counter({"list": 2, "find it": 1, "break it": 1})


@pytest.mark.parametrize("kill", [2, 6], ids=["killed in the middle", "killed after the commit"])
def test_a_session_of_the_callers_gets_each_message_once(run: Run, kill: int) -> None:
    attempt = run("own_session", kill)
    with sqlite3.connect(attempt.folder / "session.db") as database:
        messages = [
            json.loads(row[0]) for row in database.execute("select message_data from agent_messages order by id")
        ]
    kinds = [message.get("type", message.get("role")) for message in messages]
    assert sorted(kinds[1:5]) == ["function_call"] * 2 + ["function_call_output"] * 2
    assert [kinds[0], kinds[-1], len(kinds)] == ["user", "message", 6]
