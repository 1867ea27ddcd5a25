"""A run that failed after all its retries goes on in a new run: what that asks again, in each of the ways that there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import flyte.remote
import pytest

from flyteplugins.agents.conformance.local import SharedForkServer
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.conformance.plane import LocalPlane, Modes

APPS = Path(__file__).parent / "apps"
QUESTION = "Book a trip to Oslo."
PLAN = ("failing_trip.py", "plan", "--city", "Oslo")
ANSWER = "Your trip is booked."
ATTEMPTS, REQUESTS = 2, 3  # the task's, and those that the SDK's client makes of a turn that gets 500


@dataclass
class Place:
    """A plane with a run that failed in its third turn, on both attempts; the model answers now."""

    plane: LocalPlane
    server: ModelServer
    effects: Path

    def run(self, name: str, *command: str) -> str:
        """Type a command of `flyte` that starts a run of that name, and wait for its end; returns its phase."""
        self.plane.flyte(command[0], "--name", name, *command[1:], cwd=APPS)
        self.plane.connect(APPS)
        run = flyte.remote.Run.get(name=name)
        run.wait(quiet=True)
        if run.phase == "succeeded":
            assert run.outputs()[0] == ANSWER
        return run.phase

    @property
    def turns(self) -> Counter[int]:
        """How often the model was asked, by turn."""
        return Counter(self.server.journal.per_turn(user=QUESTION))

    @property
    def done(self) -> Counter[str]:
        """What the tools did."""
        return Counter(line.split()[0] for line in self.effects.read_text().splitlines())

    @property
    def keys(self) -> set[str]:
        """The idempotency keys that the inline tool had."""
        return {line.split()[1] for line in self.effects.read_text().splitlines() if line.startswith("note")}

    def commits(self) -> int:
        """How often a run was added to the conversation."""
        return sum("/transcript/openai/" in str(file) for file in self.plane.data.rglob("*.json"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, any_sdk: tuple[SharedForkServer, ...]) -> Iterator[Place]:
    effects = tmp_path_factory.mktemp("effects") / "lines"
    with ModelServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        server.script(
            "trip to Oslo",
            Reply(calls=(call("take_note", text="Oslo"),)),
            Reply(calls=(call("book", city="Oslo"),)),
            Reply(ANSWER, faults=(Fault.error(500, times=ATTEMPTS * REQUESTS),)),
        )
        plane = LocalPlane(
            tmp_path_factory.mktemp("plane"),
            env={**server.env(), "EFFECTS": str(effects)},
            forks=any_sdk,
            commands=any_sdk[0],
        ).start()
        try:
            place = Place(plane, server, effects)
            assert place.run("failed", "run", *PLAN) == "failed"
            assert place.turns == {1: 1, 2: 1, 3: ATTEMPTS * REQUESTS}
            assert place.done == {"note": 1, "book": 1}
            assert place.commits() == 0
            yield place
        finally:
            plane.close()


def test_a_plain_rerun_begins_anew(place: Place) -> None:
    turns, done, keys = place.turns, place.done, place.keys
    assert place.run("plain", "rerun", "failed") == "succeeded"
    assert place.turns - turns == {1: 1, 2: 1, 3: 1}
    assert place.done - done == {"note": 1, "book": 1}
    assert len(place.keys) == len(keys) + 1, "another run's call is another call"


def test_where_a_backend_recovers_tasks_alone_turns_and_inline_tools_are_made_again(place: Place) -> None:
    turns, done = place.turns, place.done
    assert place.run("tasks", "rerun", "failed", "--recover") == "succeeded"
    assert place.turns - turns == {1: 1, 2: 1, 3: 1}
    assert place.done - done == {"note": 1}, "a tool on a task is recovered"


def test_where_a_backend_recovers_traces_too_only_what_was_not_answered_is_asked(place: Place) -> None:
    turns, done = place.turns, place.done
    place.plane.set_modes(Modes(serve_traces=True))
    try:
        assert place.run("traces", "rerun", "failed", "--recover") == "succeeded"
    finally:
        place.plane.set_modes(Modes())
    assert place.turns - turns == {3: 1}
    assert place.done == done


def test_a_run_that_resumes_the_failed_one_asks_only_what_was_not_answered_on_any_backend(place: Place) -> None:
    turns, done, commits = place.turns, place.done, place.commits()
    # with the code as it is here, so a fault in it may have been mended
    assert place.run("resumed", "run", "--env", "FLYTE_AGENTS_RESUME=failed", *PLAN) == "succeeded"
    assert place.turns - turns == {3: 1}
    assert place.done == done
    said = place.plane.worker_log("resumed")
    assert "Run resumed goes on from run failed. On record, and not made again: 2 turns, 2 tool calls." in said
    assert place.commits() == commits + 1
    # with the code and inputs of the failed run; all is on record by now, and the memory has it
    assert place.run("again", "rerun", "failed", "-e", "FLYTE_AGENTS_RESUME=failed") == "succeeded"
    assert place.turns - turns == {3: 1}
    assert place.done == done
    assert place.commits() == commits + 1


def test_a_name_mistyped_fails_and_asks_nothing(place: Place) -> None:
    turns = place.turns
    assert place.run("mistyped", "rerun", "failed", "-e", "FLYTE_AGENTS_RESUME=faield") == "failed"
    assert place.turns == turns
    assert "names run faield, and there is no record of an agent run" in place.plane.worker_log("mistyped")
