"""Conditions: who may signal what, and what becomes of it."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from types import ModuleType
from typing import Any

import flyte.remote
import pytest
from connectrpc.errors import ConnectError
from flyteidl2.common import phase_pb2
from flyteidl2.workflow import run_definition_pb2

from flyteplugins.agents.conformance.plane.testing import LocalPlane

Start = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(
    plane: LocalPlane, flow: ModuleType, run_on: Start, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Runs that wait for a condition, and one that waits in vain."""
    effects = str(tmp_path_factory.mktemp("effects") / "answers")
    asking = {name: run_on(plane, flow.ask, name=name, effects=effects) for name in ("cli", "sdk")}
    return asking | {"in-vain": run_on(plane, flow.ask_in_vain)}


def _condition(run: Any, wait_until: Callable[..., Any]) -> Any:
    def paused() -> Any:
        found = list(flyte.remote.Condition.listall(run_name=run.name))
        return found[0] if found and found[0].pb2.status.phase == phase_pb2.ACTION_PHASE_PAUSED else None

    return wait_until(paused)


def _details(condition: Any) -> run_definition_pb2.ActionDetails:
    details = flyte.remote.ActionDetails.get(run_name=condition.run_name, name=condition.action_name)
    return details.pb2


def test_the_command_line_signals_a_condition_and_the_details_say_who_did(
    plane: LocalPlane, runs: dict[str, Any], wait_until: Callable[..., Any]
) -> None:
    condition = _condition(runs["cli"], wait_until)
    assert "Go on?" in plane.flyte(
        "signal", "condition", condition.run_name, condition.action_name, "true", user="alice"
    )
    runs["cli"].wait(quiet=True)
    assert runs["cli"].outputs()[0] == "answered True"
    signal = _details(condition).signal_info
    assert signal.signalled_by.user.id.subject == "alice"
    assert signal.output.scalar.primitive.boolean is True


def test_a_signal_is_checked_for_its_type_and_cannot_be_changed_but_repeated(
    runs: dict[str, Any], wait_until: Callable[..., Any]
) -> None:
    condition = _condition(runs["sdk"], wait_until)
    for wrong in ("true", 1, 1.0):
        with pytest.raises(ConnectError, match="waits for BOOLEAN and was signalled with"):
            condition.signal(wrong)
    assert _details(condition).status.phase == phase_pb2.ACTION_PHASE_PAUSED
    condition.signal(False)
    condition.signal(False)
    with pytest.raises(ConnectError, match="was signalled already, with another value"):
        condition.signal(True)
    runs["sdk"].wait(quiet=True)
    assert runs["sdk"].outputs()[0] == "answered False"
    assert _details(condition).signal_info.signalled_by.user.id.subject == getpass.getuser()


def test_a_condition_that_nobody_signals_times_out_and_is_then_over(runs: dict[str, Any]) -> None:
    run = runs["in-vain"]
    run.wait(quiet=True)
    assert run.outputs()[0] == "nobody answered"
    (condition,) = flyte.remote.Condition.listall(run_name=run.name)
    assert condition.pb2.status.phase == phase_pb2.ACTION_PHASE_TIMED_OUT
    with pytest.raises(ConnectError, match="timed out or was aborted"):
        condition.signal("too late")


def test_an_action_that_is_no_condition_takes_no_signal(runs: dict[str, Any]) -> None:
    root = flyte.remote.Action.get(run_name=runs["sdk"].name, name="a0")
    with pytest.raises(ConnectError, match="is a task: only conditions take a signal"):
        flyte.remote.Condition(pb2=root.pb2).signal(True)
