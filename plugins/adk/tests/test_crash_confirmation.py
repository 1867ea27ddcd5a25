"""The example on the control plane: a worker that is killed while somebody is asked, and answers given by `flyte signal`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flyte
import flyte.remote
import pytest
from flyteidl2.common import phase_pb2

from flyteplugins.agents.conformance.crash.testing import ForkServers
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.plane.testing import LocalPlane, kill_worker, load_flow, plane_factory

__all__ = ["plane_factory"]

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


def wait_until(what: Callable[[], Any], timeout: float = 120.0) -> Any:
    give_up = time.monotonic() + timeout
    while not (found := what()):
        assert time.monotonic() < give_up, f"In {timeout} seconds it did not come about."
        time.sleep(0.05)
    return found


def asked(run: Any, action: str) -> Any:
    """The condition about an action that waits, once there is one."""

    def paused() -> Any:
        for one in flyte.remote.Condition.listall(run_name=run.name):
            if one.pb2.status.phase == phase_pb2.ACTION_PHASE_PAUSED and one.name.startswith(f"approve-{action}-"):
                return one
        return None

    return wait_until(paused)


def test_a_worker_that_is_killed_while_somebody_is_asked_goes_on_with_the_answer(
    plane_factory: Callable[..., LocalPlane],
    fork_servers: ForkServers,
    sdk_modules: tuple[str, ...],
    server: ModelServer,
) -> None:
    """The SDK's own confirmations, as Flyte conditions: nobody is asked twice, and each thing is done once."""
    server.script(
        "refund order A-17",
        Reply(calls=(call("goodwill", order="A-17"), call("time_off", days=5), call("goodwill", order="B-18"))),
        lambda conversation: Reply(json.dumps([one.text for one in conversation.results])),
    )
    plane = plane_factory(env=server.env(), forks=fork_servers(*sdk_modules))
    plane.connect(EXAMPLES)
    run: Any = flyte.with_runcontext(copy_style="all").run(
        load_flow(EXAMPLES / "adk_approval.py").support, order="A-17"
    )
    time_off = asked(run, "time_off")
    wait_until(lambda: len(list(flyte.remote.Condition.listall(run_name=run.name))) == 3)
    vouchers = {
        one.action_name: flyte.remote.ActionDetails.get(run_name=run.name, name=one.action_name).pb2.condition.prompt
        for one in flyte.remote.Condition.listall(run_name=run.name)
        if one.name.startswith("approve-goodwill-")
    }
    [given] = [name for name, prompt in vouchers.items() if '"A-17"' in prompt and '"cents": 500' in prompt]
    [refused] = [name for name, prompt in vouchers.items() if '"B-18"' in prompt]
    for pid in plane.workers():
        kill_worker(pid)
    for action, decision in ((given, "true"), (refused, "false"), (time_off.action_name, '{"days": 2}')):
        # what it says counts: once it has said so, its native threads may abort the process that ends
        said = plane.flyte("signal", "condition", run.name, action, decision, check=False)
        assert "has been signaled" in said, said
    run.wait(quiet=True)
    assert run.phase == "succeeded", plane.worker_log(run.name)
    told = json.loads(run.outputs()[0])
    assert "A voucher of 5.00 EUR for order A-17." in told[0]
    assert '"days":2' in told[1].replace(" ", "").replace("\\", "")
    assert "This tool call is rejected." in told[2]
    assert len(list(flyte.remote.Condition.listall(run_name=run.name))) == 3
    assert server.journal.count() == 2
