"""The plane misbehaves as it is told, and a retry sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import flyte.remote
import pytest

from flyteplugins.agents.conformance.faults import FaultPoint
from flyteplugins.agents.conformance.local import SharedForkServer
from flyteplugins.agents.conformance.plane import Drop, Modes
from flyteplugins.agents.conformance.plane._cli import _modes, _parser
from flyteplugins.agents.conformance.plane.testing import LocalPlane

FLOWS = Path(__file__).parent / "flows"
RECORD = "flyte._internal.controllers.remote._controller:RemoteController.record_trace"

MODES = {
    "default": Modes(),
    "traces served": Modes(serve_traces=True),
    "children forgotten": Modes(serve_traces=True, forget_children_after=0),
    # Longer than the 5 seconds that the SDK waits, so that it goes on without.
    "snapshot delayed": Modes(serve_traces=True, snapshot_delay=7),
    "calls lost": Modes(
        drop=(Drop("ActionsService/Enqueue", 1, "request"), Drop("ActionsService/Enqueue", 3, "response"))
    ),
    "fault points": Modes(
        serve_traces=True,
        faults="before-record@2",
        fault_points=(FaultPoint("before-record", RECORD), FaultPoint("after-record", RECORD, "after")),
    ),
}
KILLED_IN_THE_MIDDLE = ("default", "traces served", "children forgotten", "snapshot delayed")


@pytest.fixture(scope="module")
def told(
    plane_factory: Callable[..., LocalPlane],
    flyte_imported: tuple[SharedForkServer, ...],
    flow: ModuleType,
    run_on: Callable[..., Any],
    lines: Callable[[Path], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[LocalPlane, Any, list[str]]]:
    """The same story on a plane of each mode, all at once; most workers are killed in the middle of it.

    Returns the plane, the run, and what was done.
    """
    folder = tmp_path_factory.mktemp("effects")
    (folder / "go").touch()
    started = {}
    for mode, modes in MODES.items():
        plane = plane_factory(modes=modes, forks=flyte_imported)
        plan = {"AGENTS_FAULTS": "in-the-middle@1"} if mode in KILLED_IN_THE_MIDDLE else {}
        run = run_on(
            plane, flow.story, env_vars=plan, effects=str(folder / mode), go=str(folder / "go"), epilogue=False
        )
        started[mode] = (plane, run)
    done = {}
    for mode, (plane, run) in started.items():
        plane.connect(FLOWS)
        run = flyte.remote.Run.get(name=run.name)
        run.wait(quiet=True)
        assert run.phase == "succeeded", plane.worker_log(run.name)
        did = [line for line in lines(folder / mode) if not line.startswith("waiting")]
        done[mode] = (plane, run, did)
    return done


Told = dict[str, tuple[LocalPlane, Any, list[str]]]
FIRST_HALF = ["step 1", "step 2", "part 1"]
REST = ["step 3", "done"]


def test_by_default_a_retry_takes_traced_steps_again_but_not_finished_children(told: Told) -> None:
    assert told["default"][2] == [*FIRST_HALF, "step 1", "step 2", *REST]


def test_a_retry_is_answered_its_traces_where_they_are_served(told: Told) -> None:
    assert told["traces served"][2] == [*FIRST_HALF, *REST]


def test_a_forgotten_child_runs_again_and_so_does_a_forgotten_trace(told: Told) -> None:
    assert told["children forgotten"][2] == [*FIRST_HALF, *FIRST_HALF, *REST]


def test_a_step_that_is_asked_for_before_the_late_snapshot_is_taken_again_and_a_finished_child_is_not(
    told: Told,
) -> None:
    # The first step is taken and recorded anew; by the time that the SDK hears of that it has the snapshot.
    assert told["snapshot delayed"][2] == [*FIRST_HALF, "step 1", *REST]


def test_lost_requests_and_answers_are_made_up_for_and_nothing_happens_twice(told: Told) -> None:
    plane, run, did = told["calls lost"]
    assert did == [*FIRST_HALF, *REST]
    lost = [line.split()[1] for line in (plane.data / "rpc.log").read_text().splitlines() if line.endswith("dropped")]
    assert lost == ["ActionsService/Enqueue"] * 2
    plane.connect(FLOWS)
    actions = sorted(action.pb2.metadata.funtion_name for action in flyte.remote.Action.listall(for_run_name=run.name))
    assert actions == ["part", "step", "step", "step", "story"]


def test_a_worker_dies_at_a_named_fault_point_once_and_its_retry_lives(told: Told) -> None:
    plane, run, did = told["fault points"]
    # The second step was taken and not recorded, so it is taken again; the first is answered from its record.
    assert did == ["step 1", "step 2", "step 2", "part 1", *REST]
    (fault,) = plane.struck(run.name)
    assert (fault.point, fault.occurrence, fault.action) == ("before-record", 2, "a0")
    assert plane.reached(run.name) == {"after-record": 3, "before-record": 4, "in-the-middle": 1}


def test_the_plan_of_a_run_itself_strikes_too(told: Told) -> None:
    for mode in KILLED_IN_THE_MIDDLE:
        plane, run, _ = told[mode]
        assert [(fault.point, fault.occurrence) for fault in plane.struck(run.name)] == [("in-the-middle", 1)]
        assert plane.reached(run.name) == {"in-the-middle": 2}


def test_modes_can_be_set_while_the_plane_runs(plane: LocalPlane) -> None:
    plane.set_modes(Modes(serve_traces=True))
    plane.set_modes(Modes())
    assert plane.modes == Modes()


def test_modes_survive_being_written_and_read() -> None:
    for modes in MODES.values():
        assert Modes.from_json(modes.to_json()) == modes
        options = _parser().parse_args(["up", "--data", "d", *modes.to_options()])
        assert _modes(options) == modes


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not modes in JSON"),
        ("[]", "not modes in JSON"),
        ('{"traces": true}', "no mode \\['traces'\\]"),
        ('{"snapshot_delay": -1}', "seconds, 0 or more"),
        ('{"forget_children_after": -1}', "seconds, 0 or more"),
        ('{"faults": "here@x"}', "occurrence 'x'"),
        ('{"drop": [{"method": "Enqueue"}]}', "write 'Service/Method'"),
    ],
)
def test_modes_that_make_no_sense_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Modes.from_json(text)


@pytest.mark.parametrize(
    ("text", "drop"),
    [
        ("A/B", Drop("A/B")),
        ("A/B@2", Drop("A/B", 2)),
        ("A/B@2:response", Drop("A/B", 2, "response")),
        ("A/B:response", Drop("A/B", 1, "response")),
    ],
)
def test_a_drop_is_read_from_the_command_line(text: str, drop: Drop) -> None:
    assert Drop.parse(text) == drop


@pytest.mark.parametrize("text", ["A", "A/B@0", "A/B@x", "A/B:never"])
def test_a_drop_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Drop"):
        Drop.parse(text)
