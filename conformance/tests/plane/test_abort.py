"""Abort: at once for the record, after its grace for the worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import flyte.remote
import pytest

from flyteplugins.agents.conformance.local import SharedForkServer
from flyteplugins.agents.conformance.plane._processes import identity
from flyteplugins.agents.conformance.plane.testing import LocalPlane

FLOWS = Path(__file__).parent / "flows"
GRACE = 1.5  # seconds


@pytest.fixture(scope="module")
def patient(plane_factory: Callable[..., LocalPlane], flyte_imported: tuple[SharedForkServer, ...]) -> LocalPlane:
    """A plane that lets an aborted worker go on for a while."""
    return plane_factory(abort_grace=GRACE, forks=flyte_imported)


def test_an_aborted_run_ends_with_its_children_whose_workers_work_through_the_grace_and_then_just_die(
    patient: LocalPlane,
    flow: ModuleType,
    run_on: Callable[..., Any],
    effects: Path,
    lines: Callable[[Path], list[str]],
    wait_until: Callable[..., Any],
) -> None:
    run = run_on(patient, flow.linger_with_child, effects=str(effects))
    wait_until(lambda: "child works" in lines(effects))
    workers = patient.workers()
    assert len(workers) == 2

    patient.connect(FLOWS, user="bob")
    run = flyte.remote.Run.get(name=run.name)
    run.abort(reason="enough")
    noted = len(lines(effects))
    run = flyte.remote.Run.get(name=run.name)
    details = run.details().action_details.pb2
    assert run.phase == "aborted"
    assert (details.abort_info.reason, details.abort_info.aborted_by.user.id.subject) == ("enough", "bob")
    assert {action.phase for action in flyte.remote.Action.listall(for_run_name=run.name)} == {"aborted"}

    wait_until(lambda: patient.workers() == [])
    assert not any(identity(pid) for pid in workers)
    assert len(lines(effects)) > noted + 1, "the worker went on through the grace"
    # No signal that it handles, so nothing of its own runs any more: no cancellation, no `finally`.
    assert not [line for line in lines(effects) if "cancelled" in line or "cleaned up" in line]


def test_what_an_aborted_action_asks_for_in_its_grace_is_refused(patient: LocalPlane) -> None:
    from connectrpc.errors import ConnectError
    from flyteidl2.actions import actions_service_pb2
    from flyteidl2.actions.actions_service_connect import ActionsServiceClientSync

    aborted = next(run for run in flyte.remote.Run.listall() if run.phase == "aborted")
    request = actions_service_pb2.EnqueueRequest()
    request.action.action_id.CopyFrom(aborted.pb2.action.id)
    request.action.action_id.name = "late"
    request.action.parent_action_name = "a0"
    request.action.input_uri = request.action.run_output_base = str(patient.data / "runs" / aborted.name)
    request.action.trace.name = "late"
    with pytest.raises(ConnectError, match="is over and cannot ask for late"):
        ActionsServiceClientSync(patient.endpoint).enqueue(request)


def test_an_action_that_waits_for_a_slot_is_aborted_without_ever_starting(
    plane_factory: Callable[..., LocalPlane],
    tmp_path: Path,
    flow: ModuleType,
    run_on: Callable[..., Any],
    wait_until: Callable[..., Any],
) -> None:
    program = tmp_path / "a0"
    program.write_text("#!/bin/sh\nexec sleep 3600\n")
    program.chmod(0o755)
    plane = plane_factory(slots=1, binaries=tmp_path)
    first, second = (run_on(plane, flow.double, x=x) for x in (1, 2))
    wait_until(plane.workers)
    assert "has been aborted" in plane.flyte("abort", "run", second.name)
    first.abort()
    wait_until(lambda: plane.workers() == [])
    assert flyte.remote.Run.get(name=second.name).phase == "aborted"
    assert not (plane.data / "runs" / second.name / "a0").exists()
