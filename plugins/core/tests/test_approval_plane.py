"""Approvals on the control plane, with workers that are killed: asked once, run once, and only what was approved."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import flyte
import flyte.remote
import pytest
from flyteidl2.common import phase_pb2

from flyteplugins.agents.conformance.crash.testing import ForkServers
from flyteplugins.agents.conformance.plane.modes import Modes
from flyteplugins.agents.conformance.plane.testing import LocalPlane, kill_worker, load_flow, plane_factory
from flyteplugins.agents.core import canonical_json

__all__ = ["plane_factory"]

APPS = Path(__file__).parent / "apps"


def wait_until(what: Callable[[], Any], timeout: float = 120.0) -> Any:
    give_up = time.monotonic() + timeout
    while not (found := what()):
        assert time.monotonic() < give_up, f"In {timeout} seconds it did not come about."
        time.sleep(0.05)
    return found


@dataclass
class Story:
    """A run that asks somebody.

    Attributes:
        plane: Where it runs.
        effects: The file in which its tasks note what they did.
        run: The run.
    """

    plane: LocalPlane
    effects: Path
    run: Any

    @property
    def lines(self) -> Counter[str]:
        return Counter(self.effects.read_text().splitlines() if self.effects.exists() else ())

    def conditions(self) -> list[Any]:
        return list(flyte.remote.Condition.listall(run_name=self.run.name))

    def asked(self, number: int = 1) -> list[Any]:
        """Its conditions that wait, once there are some."""

        def paused() -> list[Any]:
            found = [one for one in self.conditions() if one.pb2.status.phase == phase_pb2.ACTION_PHASE_PAUSED]
            return found if len(found) >= number else []

        return sorted(wait_until(paused), key=lambda one: one.name)

    def noted(self, line: str, times: int = 1) -> None:
        wait_until(lambda: self.lines[line] >= times)

    def kill(self) -> None:
        """Kill all of its workers, as lost nodes would; the next ones take their time."""
        self.plane.set_modes(replace(self.plane.modes, warm_workers=False))
        for pid in self.plane.workers():
            kill_worker(pid)

    def answer(self) -> Any:
        self.run.wait(quiet=True)
        return json.loads(self.run.outputs()[0])


@pytest.fixture(scope="module")
def flow() -> ModuleType:
    return load_flow(APPS / "approvals.py")


Start = Callable[..., Story]


@pytest.fixture(scope="module")
def plane(plane_factory: Callable[..., LocalPlane], fork_servers: ForkServers) -> LocalPlane:
    """One for all tests, which run one at a time: killing all of its workers kills those of a test."""
    return plane_factory(forks=fork_servers("flyteplugins.agents.core"))


@pytest.fixture
def start(plane: LocalPlane, flow: ModuleType, tmp_path: Path) -> Start:
    """Starts a run on the plane."""

    def start(*proposals: dict[str, Any], task: str = "agent", modes: Modes | None = None) -> Story:
        assert plane.workers() == []
        plane.set_modes(modes or Modes())
        effects = tmp_path / "effects"
        plane.connect(APPS)
        inputs = {"effects": str(effects)} | ({"proposals": json.dumps(proposals)} if proposals else {})
        return Story(plane, effects, flyte.with_runcontext(copy_style="all").run(getattr(flow, task), **inputs))

    return start


def proposal(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


def test_an_approval_given_while_the_worker_is_down_is_asked_for_once_and_the_tool_runs_once(start: Start) -> None:
    story = start(
        proposal("refund", order="a", cents=100),
        proposal("look_up", order="b"),
        proposal("refund_much", order="c", cents=999),
    )
    [condition] = story.asked()
    story.noted("refund c 999 EUR")
    story.noted("look up b")
    wait_until(lambda: len(story.plane.workers()) == 1)  # they have also told of it
    details = flyte.remote.ActionDetails.get(run_name=story.run.name, name=condition.action_name).pb2
    arguments = {"effects": str(story.effects), "order": "a", "cents": 100, "currency": "EUR"}
    digest = hashlib.sha256(canonical_json(arguments)).hexdigest()
    assert digest in condition.name
    assert f"SHA-256 {digest}" in details.condition.prompt
    assert '"currency": "EUR"' in details.condition.prompt
    assert story.lines["refund a 100 EUR"] == 0

    story.plane.connect(APPS, user="alice")
    story.kill()
    condition.signal(True)
    condition.signal(True)
    with pytest.raises(Exception, match="already"):  # a second decision that is another one
        condition.signal(False)
    assert story.lines["begin agent"] == 1, "the answer came too late to come while the worker was down"

    assert story.answer() == ["refunded a", "found b", "refunded c"]
    assert len(story.conditions()) == 1
    assert story.lines == Counter(
        {"begin agent": 2, "ask model": 1, "refund a 100 EUR": 1, "look up b": 1, "refund c 999 EUR": 1}
    )
    [record] = (story.plane.data / "runs" / story.run.name).rglob("approval.*")
    kept = json.loads(record.read_bytes().partition(b"\n")[2])
    assert (kept["decision"], kept["by"], kept["digest"]) == ("approved", "alice", digest)
    [report] = story.plane.attempt(story.run.name).rglob("report.html")
    assert "alice" in report.read_text()
    assert digest in report.read_text()


def test_a_worker_that_is_restarted_while_nobody_has_answered_waits_on_and_gets_the_answer(start: Start) -> None:
    story = start(proposal("refund_reminded", order="a", cents=1), proposal("refund", order="b", cents=2))
    first, second = story.asked(2)
    wait_until(lambda: list((story.plane.data / "runs" / story.run.name).rglob("*.reminded")))
    story.kill()
    story.noted("begin agent", 2)
    first.signal(True)  # Flyte's own wait gives None for these
    second.signal(False)
    texts = story.answer()
    assert sum(text.startswith("refunded ") for text in texts) == 1
    assert any("a person denied it" in text for text in texts)
    assert len(story.conditions()) == 2
    assert sum(times for line, times in story.lines.items() if line.startswith("refund ")) == 1
    assert sum(times for line, times in story.lines.items() if line.startswith("remind ")) == 1


def test_what_the_platform_has_forgotten_is_not_asked_again(start: Start) -> None:
    story = start(
        proposal("refund", order="a", cents=1),
        proposal("refund", order="b", cents=2),
        modes=Modes(forget_children_after=0),
    )
    conditions = story.asked(2)
    [first] = [one for one in conditions if '"a"' in _prompt(story, one)]
    [second] = [one for one in conditions if one.name != first.name]
    first.signal(True)
    wait_until(lambda: list((story.plane.data / "runs" / story.run.name).rglob("tool.*")))
    story.kill()
    second.signal(True)
    assert story.lines["begin agent"] == 1
    assert story.answer() == ["refunded a", "refunded b"]
    assert story.lines["refund a 1 EUR"] == story.lines["refund b 2 EUR"] == 1
    assert len(story.conditions()) == 2


def _prompt(story: Story, condition: Any) -> str:
    details = flyte.remote.ActionDetails.get(run_name=story.run.name, name=condition.action_name)
    return str(details.pb2.condition.prompt)


def test_nobody_answers_in_time_somebody_is_reminded_and_the_model_is_told(start: Start) -> None:
    story = start(proposal("refund_soon", order="a", cents=1), proposal("refund_edited", order="b", cents=2))
    edited = [one for one in story.asked(2) if one.expected_type is str]
    edited[0].signal("rather less, I think")
    [again] = [one for one in wait_until(lambda: _new(story, edited)) if one.expected_type is str]
    assert "is no answer" in _prompt(story, again)
    arguments = {"effects": str(story.effects), "order": "b", "cents": "1"}
    again.signal(json.dumps(arguments))
    late, done = story.answer()
    assert "nobody answered in time" in late
    assert done == "refunded b"
    assert story.lines["refund b 1 EUR"] == 1
    [reminder] = [line for line in story.lines if line.startswith("remind ")]
    action = reminder.split()[2]
    assert reminder.split()[1] == story.run.name
    assert action in {one.action_name for one in story.conditions()}
    assert not any(line.startswith("refund a") for line in story.lines)


def _new(story: Story, known: list[Any]) -> list[Any]:
    names = {one.name for one in known}
    return [
        one
        for one in story.conditions()
        if one.name not in names and one.expected_type is str and one.pb2.status.phase == phase_pb2.ACTION_PHASE_PAUSED
    ]


def test_a_proposal_that_is_changed_after_the_decision_does_not_run(start: Start) -> None:
    story = start(proposal("refund", order="a", cents=1), proposal("refund", order="b", cents=2))
    conditions = story.asked(2)
    [first] = [one for one in conditions if '"a"' in _prompt(story, one)]
    # Somebody changes what the model is on record to have proposed, once the first is approved and before it has run.
    story.plane.kill()
    for pid in story.plane.workers():
        kill_worker(pid)
    [turn] = (story.plane.data / "runs" / story.run.name).rglob("turn.*")
    header, _, payload = turn.read_bytes().partition(b"\n")
    changed = payload.replace(b'"cents":1', b'"cents":100000')
    assert changed != payload
    kept = json.loads(header) | {"bytes": len(changed), "sha256": hashlib.sha256(changed).hexdigest()}
    turn.write_bytes(json.dumps(kept).encode() + b"\n" + changed)
    story.plane.start()
    first.signal(True)
    [asked_anew] = wait_until(lambda: _third(story, conditions))
    assert '"cents": 100000' in _prompt(story, asked_anew)
    assert not any(line.startswith("refund") for line in story.lines)
    for condition in (asked_anew, *(one for one in conditions if one.name != first.name)):
        condition.signal(False)
    assert all("a person denied it" in text for text in story.answer())
    assert not any(line.startswith("refund") for line in story.lines)


def _third(story: Story, known: list[Any]) -> list[Any]:
    names = {one.name for one in known}
    return [one for one in story.conditions() if one.name not in names]


@pytest.mark.parametrize(
    ("tool", "forgotten"), [("plain_refund", False), ("asking_refund", False), ("asking_refund", True)]
)
def test_a_tool_that_asks_in_its_own_task_is_asked_once_and_runs_once(start: Start, tool: str, forgotten: bool) -> None:
    modes = Modes(forget_children_after=0) if forgotten else None
    story = start(proposal(tool, order="a"), proposal("refund", order="b", cents=2), modes=modes)
    conditions = story.asked(2)
    story.kill()  # the agent's worker and the tool's
    for condition in conditions:
        condition.signal(True)
    assert story.lines["begin agent"] == 1
    assert story.answer() == ["refunded a", "refunded b"]
    assert len(story.conditions()) == 2
    assert story.lines["refund b 2 EUR"] == 1
    [times] = [times for line, times in story.lines.items() if line.startswith("refund a")]
    # A tool that ends while its agent is down, and is forgotten before that is back, has left nobody its outcome.
    assert times == 1 or (forgotten and times == 2)


def test_the_plain_pattern_asks_once_and_pays_once_also_where_its_worker_comes_back_before_the_answer(
    start: Start,
) -> None:
    """Flyte's own wait gives no value then. The task fails, which is neither a yes nor a no, and its next attempt is told."""
    story = start(proposal("plain_refund", order="a"))
    [condition] = story.asked()
    story.kill()
    story.noted("begin a", 2)
    condition.signal(True)
    assert story.answer() == ["refunded a"]
    assert story.lines["refund a"] == 1
    assert len(story.conditions()) == 1


def test_a_list_of_actions_is_approved_under_one_digest_also_without_an_agent(start: Start) -> None:
    story = start(task="batch")
    [condition] = story.asked()
    prompt = _prompt(story, condition)
    story.kill()
    condition.signal(True)
    listed = [
        {"action": "refund", "arguments": {"order": "a"}},
        {"action": "send_email", "arguments": {"to": "maya@example.test"}},
    ]
    digests = [hashlib.sha256(canonical_json(one)).hexdigest() for one in (listed, *(x["arguments"] for x in listed))]
    assert story.answer() == digests
    assert all(digest in prompt for digest in digests)
    assert prompt.index("refund, SHA-256") < prompt.index("send_email, SHA-256")
    assert story.lines == Counter({"begin batch": 2, "decided approved": 1})
