"""The SDK's own approvals on the control plane, with workers that are killed: asked once, run once, and what was approved."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flyte
import flyte.remote
import pytest
from flyteidl2.common import phase_pb2

from flyteplugins.agents.conformance.crash.testing import ForkServers
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.plane import Modes
from flyteplugins.agents.conformance.plane.testing import LocalPlane, kill_worker, load_flow, plane_factory
from flyteplugins.agents.core import canonical_json

__all__ = ["plane_factory"]

APP = Path(__file__).parent / "apps" / "approvals.py"


def wait_until(what: Callable[[], Any], timeout: float = 180.0) -> Any:
    give_up = time.monotonic() + timeout
    while not (found := what()):
        assert time.monotonic() < give_up, f"In {timeout} seconds it did not come about."
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def cluster(
    plane_factory: Callable[..., LocalPlane],
    fork_servers: ForkServers,
    sdk_modules: tuple[str, ...],
) -> Iterator[tuple[LocalPlane, ModelServer]]:
    """A plane whose workers have the offline model server."""
    with ModelServer() as server:
        yield plane_factory(env=server.env(), forks=fork_servers(*sdk_modules)), server


@pytest.mark.parametrize(
    ("form", "answer", "done", "told"),
    [
        ("can_use_tool", True, ["refund a 100"], "refunded a"),
        ("a hook", False, [], "a person denied it"),
        ("edited", '{"order": "b", "cents": 7}', ["refund b 7"], "refunded b"),
        ("edited", "deny: it is too late", [], "They said: it is too late"),
    ],
    ids=["approved", "denied", "edited", "denied with a reason"],
)
def test_a_decision_made_while_the_worker_is_down_is_asked_for_once_and_the_tool_runs_once(
    cluster: tuple[LocalPlane, ModelServer],
    tmp_path: Path,
    form: str,
    answer: bool | str,
    done: list[str],
    told: str,
) -> None:
    plane, model_server = cluster
    model_server.clear()
    model_server.script("^go$", Reply(calls=(call("refund", order="a"), call("look_up", order="x"))), "all done")
    (folder := tmp_path / "bundle").mkdir()
    flow = load_flow(Path(shutil.copy(APP, folder / f"approvals_{folder.parent.name}.py")))
    effects = tmp_path / "effects"
    plane.connect(folder)
    plane.set_modes(Modes())
    run = flyte.with_runcontext(copy_style="all", env_vars={"EFFECTS": str(effects)}).run(flow.agent, form=form)

    def lines() -> Counter[str]:
        return Counter(effects.read_text().splitlines() if effects.exists() else ())

    def conditions() -> list[Any]:
        return list(flyte.remote.Condition.listall(run_name=run.name))

    def paused() -> list[Any]:
        return [one for one in conditions() if one.pb2.status.phase == phase_pb2.ACTION_PHASE_PAUSED]

    [condition] = wait_until(paused)
    wait_until(lambda: lines()["look up x"] and len(plane.workers()) == 1)  # it has also told of it
    digest = hashlib.sha256(canonical_json({"order": "a", "cents": 100})).hexdigest()
    assert digest in condition.name
    plane.connect(folder, user="alice")
    plane.set_modes(Modes(warm_workers=False))  # the next worker takes its time, so that the answer comes before it
    for pid in plane.workers():
        kill_worker(pid)
    condition.signal(answer)
    assert lines()["begin agent"] == 1, "the answer came too late to come while the worker was down"

    run.wait(quiet=True)
    assert run.outputs()[0] == "all done"
    assert len(conditions()) == 1
    assert lines() == Counter(["begin agent", "begin agent", "look up x", *done])
    assert model_server.journal.per_turn() == {1: 1, 2: 1}
    assert told in str(model_server.journal.requests()[-1].body["messages"][-1])
    [report] = plane.attempt(run.name).rglob("report.html")
    assert "alice" in report.read_text()
