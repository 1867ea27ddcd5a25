"""One run with everything in it, and what clients see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import flyte.errors
import flyte.remote
import pytest
from connectrpc.errors import ConnectError
from flyteidl2.common import identifier_pb2, phase_pb2
from flyteidl2.common import run_pb2 as common_run_pb2
from flyteidl2.core import catalog_pb2
from flyteidl2.workflow import run_service_pb2
from flyteidl2.workflow.run_service_connect import RunServiceClientSync

from flyteplugins.agents.conformance.plane.testing import LocalPlane

Start = Callable[..., Any]
FLOWS = Path(__file__).parent / "flows"


@pytest.fixture(scope="module")
def started(
    plane: LocalPlane, flow: ModuleType, run_on: Start, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Any, Path]]:
    """Runs that other tests wait for, started together, with the files of their effects."""
    folder = tmp_path_factory.mktemp("effects")
    return {
        "pass_on": (run_on(plane, flow.pass_on, text="far away"), folder),
        "ask_twice": (run_on(plane, flow.ask_twice, effects=str(folder / "ask"), x=7), folder / "ask"),
        "remembered": (run_on(plane, flow.remembered, effects=str(folder / "remember"), x=8), folder / "remember"),
    }


@pytest.fixture(scope="module")
def tour(plane: LocalPlane, started: dict[str, tuple[Any, Path]]) -> str:
    """A run that succeeded; its name."""
    plane.flyte("run", "--name", "the-tour", "plane_flow.py", "tour", "--x", "4", cwd=FLOWS)
    plane.connect(FLOWS)
    run = flyte.remote.Run.get(name="the-tour")
    run.wait(quiet=True)
    assert run.phase == "succeeded", plane.worker_log("the-tour")
    return "the-tour"


def test_a_run_returns_its_output_and_lists_its_trace_and_its_child(tour: str) -> None:
    assert flyte.remote.Run.get(name=tour).outputs()[0] == 10
    actions = {action.pb2.metadata.funtion_name: action for action in flyte.remote.Action.listall(for_run_name=tour)}
    assert set(actions) == {"tour", "add_one", "double"}
    assert {name: action.phase for name, action in actions.items()} == dict.fromkeys(actions, "succeeded")
    assert actions["add_one"].parent_name == actions["double"].parent_name == "a0"
    child = flyte.remote.ActionDetails.get(run_name=tour, name=actions["double"].name)
    assert (dict(asyncio.run(child.inputs())), asyncio.run(child.outputs())[0]) == ({"x": 5}, 10)
    trace = flyte.remote.ActionDetails.get(run_name=tour, name=actions["add_one"].name)
    assert (dict(asyncio.run(trace.inputs())), asyncio.run(trace.outputs())[0]) == ({"x": 4}, 5)


def test_the_command_line_shows_run_actions_data_and_logs(plane: LocalPlane, tour: str) -> None:
    asked = (("get", "run"), ("get", "action", tour), ("get", "io", tour), ("get", "logs", tour))
    with ThreadPoolExecutor(2) as together:
        runs, actions, data, logs = together.map(lambda words: plane.flyte(*words), asked)
    assert tour in runs
    assert actions.count("SUCCEEDED") == 3
    assert "'x': 4" in data
    assert "the total is 10" in logs


def test_a_report_can_be_fetched(tour: str) -> None:
    assert "total 10" in flyte.remote.Run.get(name=tour).get_report()


def test_the_code_of_a_run_can_be_fetched(tour: str, tmp_path: Path) -> None:
    code = flyte.remote.Run.get(name=tour).download_code(dest=tmp_path)
    assert "A trace, a child, an offloaded file" in (code / "plane_flow.py").read_text()


def test_a_worker_has_home_temporary_and_working_folders_in_the_data_folder(plane: LocalPlane, tour: str) -> None:
    said = next(line for line in plane.worker_log(tour).splitlines() if line.startswith("home="))
    folders = [Path(part.partition("=")[2]) for part in said.split()]
    assert len(folders) == 3
    assert all(folder.is_relative_to(plane.data) for folder in folders)


def test_offloaded_data_can_be_read_by_other_workers_and_stays_in_the_data_folder(
    plane: LocalPlane, started: dict[str, tuple[Any, Path]]
) -> None:
    run, _ = started["pass_on"]
    run.wait(quiet=True)
    read, path, raw = run.outputs()[0]
    assert read == "far away"
    assert Path(path).is_relative_to(plane.data)
    # Below `rd/` and one segment: that is how `flyte.ai.agents.memory` finds the root that runs share.
    assert Path(raw).relative_to(plane.data).parts == ("rd", f"{run.name}-a0-1")


def test_a_second_run_of_the_same_name_is_refused(
    plane: LocalPlane, tour: str, flow: ModuleType, run_on: Start
) -> None:
    with pytest.raises(flyte.errors.RuntimeUserError, match="already exists"):
        run_on(plane, flow.tour, run_name=tour, x=1)


@pytest.mark.parametrize("name", ["../up", "a/b", ""])
def test_a_run_cannot_have_a_name_that_leads_out_of_the_data_folder(plane: LocalPlane, name: str) -> None:
    run_id = identifier_pb2.RunIdentifier(org="o", project="p", domain="d", name=name)
    with pytest.raises(ConnectError, match="cannot name a run"):
        RunServiceClientSync(plane.endpoint).create_run(run_service_pb2.CreateRunRequest(run_id=run_id))


def test_a_run_outside_the_data_folder_is_refused(plane: LocalPlane, flow: ModuleType, tmp_path: Path) -> None:
    plane.connect(FLOWS)
    with pytest.raises(flyte.errors.RuntimeUserError, match="not in the plane's data folder"):
        flyte.with_runcontext(run_base_dir=str(tmp_path), copy_style="all").run(flow.tour, x=1)
    with pytest.raises(flyte.errors.RuntimeUserError, match="not in the plane's data folder"):
        flyte.with_runcontext(raw_data_path=str(tmp_path), copy_style="all").run(flow.tour, x=1)


def test_rerun_takes_the_task_and_the_inputs_of_an_earlier_run(plane: LocalPlane, tour: str) -> None:
    plane.flyte("rerun", tour, "--name", "again")
    again = flyte.remote.Run.get(name="again")
    again.wait(quiet=True)
    assert again.outputs()[0] == 10
    assert again.action.relation.related_to.name == tour


def _children(run: str) -> dict[str, flyte.remote.ActionDetails]:
    actions = [action for action in flyte.remote.Action.listall(for_run_name=run) if action.name != "a0"]
    return {a.pb2.metadata.funtion_name: flyte.remote.ActionDetails.get(run_name=run, name=a.name) for a in actions}


def test_a_run_that_recovers_another_takes_its_finished_tasks_over(plane: LocalPlane, tour: str) -> None:
    plane.flyte("rerun", tour, "--recover", "--name", "recovered")
    recovered = flyte.remote.Run.get(name="recovered")
    recovered.wait(quiet=True)
    assert recovered.outputs()[0] == 10
    assert recovered.action.relation.relation_type == common_run_pb2.RELATION_TYPE_RECOVER
    double = _children("recovered")["double"]
    assert double.pb2.status.phase == phase_pb2.ACTION_PHASE_RECOVERED
    assert (double.pb2.metadata.recovered_from.run.name, double.pb2.metadata.recovered_from.name) == (tour, double.name)
    assert (dict(asyncio.run(double.inputs())), asyncio.run(double.outputs())[0]) == ({"x": 5}, 10)
    assert not (plane.data / "runs" / "recovered" / double.name / "1").exists(), "no worker ran it"


def test_what_the_caller_names_runs_again_though_it_is_recovered(plane: LocalPlane, tour: str) -> None:
    plane.connect(FLOWS)
    double = _children(tour)["double"].name
    plane.flyte("rerun", tour, "--recover", "--force-rerun-action", double, "--name", "forced")
    forced = flyte.remote.Run.get(name="forced")
    forced.wait(quiet=True)
    assert forced.outputs()[0] == 10
    assert _children("forced")["double"].pb2.status.phase == phase_pb2.ACTION_PHASE_SUCCEEDED
    assert (plane.data / "runs" / "forced" / double / "1" / "outputs.pb").exists()


def test_a_run_that_is_not_over_cannot_be_recovered(
    plane: LocalPlane, flow: ModuleType, run_on: Start, tmp_path: Path
) -> None:
    run = run_on(plane, flow.idle, run_name="unfinished", effects=str(tmp_path / "idle"), go=str(tmp_path / "go"))
    with pytest.raises(flyte.errors.RuntimeSystemError, match="is not over"):
        flyte.with_runcontext(mode="remote", name="too-early").rerun("unfinished", recover=True)
    assert not (plane.data / "runs" / "too-early").exists()
    run.abort()


def test_a_deployed_task_runs_by_reference(plane: LocalPlane, flow: ModuleType) -> None:
    plane.flyte("deploy", "--version", "v1", "plane_flow.py", "env", cwd=FLOWS)
    plane.connect(FLOWS)
    assert "plane_flow.double" in {task.name for task in flyte.remote.Task.listall()}
    task = flyte.remote.Task.get("plane_flow.double", auto_version="latest")
    run = flyte.run(task, x=21)
    run.wait(quiet=True)
    assert run.outputs()[0] == 42
    with pytest.raises(flyte.errors.RemoteTaskNotFoundError):
        flyte.remote.Task.get("plane_flow.double", version="v2").fetch()


def test_an_equal_child_is_answered_from_the_cache_in_and_across_runs(
    plane: LocalPlane, flow: ModuleType, run_on: Start, started: dict[str, tuple[Any, Path]]
) -> None:
    first, effects = started["ask_twice"]
    first.wait(quiet=True)
    # Both children were asked for at once: `serialize` has the second wait for the first.
    assert (first.outputs()[0], effects.read_text()) == (140, "ran 7\n")
    second = run_on(plane, flow.ask_twice, effects=str(effects), x=7)
    second.wait(quiet=True)
    assert (second.outputs()[0], effects.read_text()) == (140, "ran 7\n")
    children = [action for action in flyte.remote.Action.listall(for_run_name=second.name) if action.name != "a0"]
    assert [child.pb2.status.cache_status for child in children] == [catalog_pb2.CACHE_HIT] * 2


def test_a_cached_root_is_answered_from_the_cache_unless_told_to_overwrite(
    plane: LocalPlane, flow: ModuleType, started: dict[str, tuple[Any, Path]]
) -> None:
    first, effects = started["remembered"]
    first.wait(quiet=True)
    for overwrite, ran in ((False, 1), (True, 2)):
        plane.connect(FLOWS)
        again = flyte.with_runcontext(overwrite_cache=overwrite, copy_style="all")
        run = again.run(flow.remembered, effects=str(effects), x=8)
        run.wait(quiet=True)
        assert (run.outputs()[0], effects.read_text()) == (80, "ran 8\n" * ran)


def test_what_the_plane_does_not_do_is_an_error_that_says_so(plane: LocalPlane, tour: str) -> None:
    plane.connect(FLOWS)
    with pytest.raises(ConnectError, match="does not do SecretService/ListSecrets"):
        list(flyte.remote.Secret.listall())
    with pytest.raises(ConnectError, match=r"does not filter or sort by 'labels\.a'"):
        list(flyte.remote.Run.listall(with_labels={"a": "b"}))
