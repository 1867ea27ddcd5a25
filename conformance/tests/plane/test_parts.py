# ruff: noqa: ASYNC110 - these tests watch processes and files

"""The plane's parts by themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from connectrpc.errors import ConnectError
from flyteidl2.common import list_pb2
from flyteidl2.core import execution_pb2, interface_pb2, literals_pb2, tasks_pb2
from flyteidl2.task import common_pb2

from flyteplugins.agents.conformance.plane._launch import render
from flyteplugins.agents.conformance.plane._layout import Layout, OutsideDataFolderError
from flyteplugins.agents.conformance.plane._listing import page
from flyteplugins.agents.conformance.plane._outcome import clear, has_ended, judge
from flyteplugins.agents.conformance.plane._processes import Worker, handles_sigterm, identity
from flyteplugins.agents.conformance.plane._store import ABORTED, RUNNING, SUCCEEDED, Action, Store

# ---- the command line


def test_placeholders_are_filled_in_whatever_their_case_and_unknown_ones_stay() -> None:
    values = {"input": "/in", "outputPrefix": "/out"}
    args = ["{{.input}}", "{{ .outputprefix }}", "{{$input}}", "{{.unknown}}", "a {{.input}} b"]
    assert render(args, values) == ["/in", "/out", "/in", "{{.unknown}}", "a /in b"]


# ---- judging attempts


@pytest.fixture
def template() -> tasks_pb2.TaskTemplate:
    """A task with one output."""
    entry = interface_pb2.VariableEntry(key="o0")
    return tasks_pb2.TaskTemplate(
        interface=interface_pb2.TypedInterface(outputs=interface_pb2.VariableMap(variables=[entry]))
    )


def _outputs() -> bytes:
    literal = literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=literals_pb2.Primitive(string_value="x" * 100)))
    return common_pb2.Outputs(literals=[common_pb2.NamedLiteral(name="o0", value=literal)]).SerializeToString()


def _error(**fields: object) -> bytes:
    error = execution_pb2.ContainerError(code="E", message="m", **fields)  # type: ignore[arg-type]
    return execution_pb2.ErrorDocument(error=error).SerializeToString()


@pytest.mark.parametrize("code", [0, 1, -9, None])
def test_what_an_attempt_left_decides_and_not_its_exit_code(
    tmp_path: Path, template: tasks_pb2.TaskTemplate, code: int | None
) -> None:
    (tmp_path / "outputs.pb").write_bytes(_outputs())
    assert judge(tmp_path, code, template).error is None
    (tmp_path / "error.pb").write_bytes(_error(kind=execution_pb2.ContainerError.RECOVERABLE))
    outcome = judge(tmp_path, code, template)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.final, outcome.system) == ("E", False, False)
    clear(tmp_path)
    assert judge(tmp_path, code, template).error is not None


def test_errors_say_whether_to_try_again_and_whose_they_are(tmp_path: Path, template: tasks_pb2.TaskTemplate) -> None:
    (tmp_path / "error.pb").write_bytes(_error(kind=execution_pb2.ContainerError.NON_RECOVERABLE))
    assert judge(tmp_path, 0, template).final
    (tmp_path / "error.pb").write_bytes(_error(origin=execution_pb2.ExecutionError.SYSTEM))
    assert judge(tmp_path, 0, template).system


@pytest.mark.parametrize(("code", "system"), [(-9, True), (None, True), (1, False), (-11, False), (0, False)])
def test_a_worker_that_left_nothing_died_by_the_platform_only_if_it_was_killed_or_nobody_saw_it(
    tmp_path: Path, template: tasks_pb2.TaskTemplate, code: int | None, system: bool
) -> None:
    (tmp_path / "log.txt").write_text("famous last words")
    outcome = judge(tmp_path, code, template)
    assert outcome.error is not None
    assert (outcome.system, outcome.final) == (system, False)
    assert "famous last words" in outcome.error.message


@pytest.mark.parametrize("name", ["outputs.pb", "error.pb"])
def test_a_file_that_a_dying_worker_wrote_in_part_does_not_count(
    tmp_path: Path, template: tasks_pb2.TaskTemplate, name: str
) -> None:
    whole = _outputs() if name == "outputs.pb" else _error()
    for length in (0, len(whole) // 2):
        (tmp_path / name).write_bytes(whole[:length])
        outcome = judge(tmp_path, -9, template)
        assert outcome.error is not None
        assert outcome.error.code == "Interrupted"


def test_an_attempt_whose_worker_has_begun_to_say_how_it_ended_is_not_started_again(tmp_path: Path) -> None:
    assert not has_ended(tmp_path)
    (tmp_path / "outputs.pb").touch()
    assert has_ended(tmp_path)


# ---- listing


def _page(items: list[int], **request: object) -> tuple[list[int], str]:
    fields: dict[str, Callable[[int], str | float]] = {"name": str, "time": float}
    return page(items, list_pb2.ListRequest(**request), fields)  # type: ignore[arg-type]


def test_a_listing_comes_in_pages_that_follow_each_other() -> None:
    shown, token = _page(list(range(5)), limit=2)
    assert (shown, token) == ([0, 1], "2")
    assert _page(list(range(5)), limit=2, token="4") == ([4], "")


def test_a_listing_is_sorted_and_filtered_as_asked() -> None:
    down = list_pb2.Sort(key="time", direction=list_pb2.Sort.DESCENDING)
    assert _page([1, 3, 2], sort_by=down)[0] == [3, 2, 1]
    wanted = list_pb2.Filter(function=list_pb2.Filter.VALUE_IN, field="name", values=["1", "2"])
    assert _page([1, 3, 2], filters=[wanted])[0] == [1, 2]
    later = list_pb2.Filter(
        function=list_pb2.Filter.GREATER_THAN_OR_EQUAL, field="time", values=["1970-01-01T00:00:02+00:00"]
    )
    assert _page([1, 3, 2, 10], filters=[later])[0] == [3, 2, 10]


@pytest.mark.parametrize(
    "wish",
    [
        list_pb2.Filter(function=list_pb2.Filter.EQUAL, field="colour", values=["red"]),
        list_pb2.Filter(function=list_pb2.Filter.EXISTS, field="name"),
    ],
)
def test_a_filter_that_is_not_known_is_an_error_and_not_left_out(wish: list_pb2.Filter) -> None:
    with pytest.raises(ConnectError, match="does not filter"):
        _page([1], filters=[wish])


# ---- the data folder


@pytest.mark.parametrize("uri", ["relative", "/etc/passwd", "file:///etc/passwd", "s3://bucket/key", "{data}/../x"])
def test_a_path_outside_the_data_folder_is_refused(tmp_path: Path, uri: str) -> None:
    layout = Layout(tmp_path / "data")
    with pytest.raises(OutsideDataFolderError, match="not in the plane's data folder"):
        layout.path(uri.format(data=layout.data))
    assert layout.path(f"file://{layout.data}/x") == layout.data / "x"


# ---- the state


def test_an_action_that_is_over_is_not_changed_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    store.put(action := Action("run", "a0", phase=RUNNING))
    assert store.update(action.key, phase=ABORTED) is not None
    assert store.update(action.key, phase=SUCCEEDED) is None
    assert store.action(action.key) == Action("run", "a0", phase=ABORTED, created=action.created)
    store.close()


async def test_who_watches_hears_of_what_changed_once_each_time_it_looks(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    with store.watch("children", "run", "a0") as news:
        for name in ("x", "y", "x"):
            store.put(Action("run", name, parent="a0"))
        store.put(Action("other", "z", parent="a0"))
        assert await asyncio.wait_for(news.next(), 5) == ["x", "y"]
        store.put(Action("run", "y", parent="a0"))
        assert await asyncio.wait_for(news.next(), 5) == ["y"]
    store.close()


# ---- processes


def _start(tmp_path: Path, program: str) -> Worker:
    tmp_path.mkdir(exist_ok=True)
    return Worker.start(
        [sys.executable, "-c", program],
        env=dict(os.environ),
        cwd=tmp_path,
        log=tmp_path / "log.txt",
        pid_file=tmp_path / "pid",
    )


async def test_a_worker_can_be_found_again_by_what_was_noted_or_by_what_it_wrote_itself(tmp_path: Path) -> None:
    worker = _start(tmp_path, "import time; time.sleep(60)")
    try:
        by_note = await Worker.find(worker.pid, worker.process, tmp_path / "pid")
        by_file = await Worker.find(0, "", tmp_path / "pid")
        assert by_note is not None
        assert by_file is not None
        assert by_file.pid == by_note.pid == worker.pid
        # Another process with its number is not it.
        assert await Worker.find(worker.pid, "some other time", tmp_path / "pid") is None
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "pid").write_text(str(os.getpid()))
        assert await Worker.find(0, "", tmp_path / "elsewhere" / "pid") is None
    finally:
        worker.kill()
        assert await worker.wait() == -9
    assert identity(worker.pid) == ""


async def test_what_a_worker_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '3600']).pid, flush=True)"
    worker = _start(tmp_path, program)
    assert await worker.wait() == 0
    left = int((tmp_path / "log.txt").read_text())
    try:
        async with asyncio.timeout(10):
            while identity(left):  # the kernel takes a moment
                await asyncio.sleep(0.01)
    except TimeoutError:
        os.kill(left, signal.SIGKILL)
        raise


async def test_only_a_worker_that_handles_sigterm_hears_of_its_end(tmp_path: Path) -> None:
    deaf = _start(tmp_path / "deaf", "import time; print('up', flush=True); time.sleep(60)")
    listens = _start(
        tmp_path / "listens",
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True);"
        " time.sleep(60)",
    )
    async with asyncio.timeout(60):
        while not all((tmp_path / name / "log.txt").read_text() for name in ("deaf", "listens")):
            await asyncio.sleep(0.01)
    assert (handles_sigterm(deaf.pid), handles_sigterm(listens.pid)) == (False, True)
    await asyncio.gather(deaf.end(0.2), listens.end(60))
    assert (await deaf.wait(), await listens.wait()) == (-signal.SIGKILL, 7)


def test_a_dead_process_has_no_identity_even_before_it_is_reaped() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert identity(process.pid) != ""
    process.kill()
    while identity(process.pid):
        pass
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
