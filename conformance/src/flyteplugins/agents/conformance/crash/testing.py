"""The crash suite as tests: an adapter takes it in with one class.

    from flyteplugins.agents.conformance.crash import Dialogue
    from flyteplugins.agents.conformance.crash.testing import CrashSuite


    class TestCrash(CrashSuite):
        dialogue = Dialogue("openai", model="gpt-4.1")
        sdk = ("agents", "openai")

It needs pytest, and two fixtures where pytest finds them, for instance in `conftest.py`: what processes are forked from, and what
those have imported before, since importing an SDK takes seconds.

    from flyteplugins.agents.conformance.crash.testing import fork_servers


    @pytest.fixture(scope="session")
    def sdk_modules():
        return ("agents", "openai")
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import flyte
import pytest

from flyteplugins.agents.conformance.faults import Fault
from flyteplugins.agents.conformance.local import LocalRuns, SharedForkServer
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.plane import LocalPlane, Modes, load_flow

from ._boundaries import BOUNDARIES
from ._dialogue import Dialogue, Outcome
from ._places import LocalPlace, PlanePlace, kept_messages
from ._suite import compare, crash_at

__all__ = ["CrashSuite", "ForkServers", "StreamedCrashSuite", "ThoroughCrashSuite", "fork_servers"]

ForkServers = Callable[..., tuple[SharedForkServer, ...]]


@pytest.fixture(scope="session")
def fork_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServers]:
    """Starts two servers that have imported some modules, with different hash seeds: a resume never has its predecessor's.

    All processes of a parallel run, and their planes, have them in common.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with contextlib.ExitStack() as stack:

        @functools.cache
        def start(*modules: str) -> tuple[SharedForkServer, ...]:
            name = hashlib.sha256("\n".join(modules).encode()).hexdigest()[:16]
            return tuple(
                stack.enter_context(SharedForkServer(folder / f"{name}-{seed}.socket", modules, hash_seed=seed))
                for seed in (1, 2)
            )

        yield start


ON_THE_PLANE = (
    Fault("before-call", 2),
    Fault("after-call", 4),
    Fault("after-record", 2),
    Fault("after-record", 6),
    Fault("in-tool", 1),
    Fault("after-tool", 3),
    Fault("before-commit", 1),
    Fault("after-commit", 1),
)
"""Where workers of the plane are killed: eight boundaries, each of another kind or in another turn."""

MODES = {
    "the snapshot is late": Modes(snapshot_delay=7),
    "children are forgotten": Modes(forget_children_after=0),
    "traces are served": Modes(serve_traces=True),
}

_PROGRAM = '''\
"""Tools that tell whether their worker has the agent SDK loaded, take long, and fail."""

import os
import sys
import time
from pathlib import Path

import flyte

from flyteplugins.agents.{adapter} import run_agent, tool

env = flyte.TaskEnvironment("small")


@tool
@env.task(cache="disable")
async def loaded() -> list[str]:
    """Tell which SDK modules this process has imported."""
    return [name for name in {sdk} if name in sys.modules]


@tool
@env.task(cache="disable")
def slow(folder: str) -> str:
    """Take long."""
    Path(folder, "slow").write_text(str(os.getpid()))
    time.sleep(600)
    return "done"


@tool
@env.task(cache="disable")
def failing(folder: str) -> str:
    """Fail when the other one has begun."""
    while not Path(folder, "slow").exists():
        time.sleep(0.05)
    raise ValueError("this one fails")


@env.task
async def chat(message: str, memory_key: str = "") -> str:
    result = await run_agent(
        message,
        tools=[slow, failing],
        model="{model}",
        memory_key=memory_key or None,
        on_tool_error="raise",
        full_result=True,
    )
    return ", ".join(call.result for call in result.tool_calls) or result.text
'''


class CrashSuite:
    """The standard dialogue and a few small ones, killed with real processes under `--local` and on the control plane.

    Attributes:
        dialogue: The dialogue on the adapter.
        sdk: Modules of the SDK, which the worker of a tool must not load.
        every_occurrence: Whether local runs are killed each time that a boundary is reached, and not only the first and the
            last time. `make crash` does so for any adapter.
    """

    dialogue: ClassVar[Dialogue]
    sdk: ClassVar[tuple[str, ...]]
    every_occurrence: ClassVar[bool] = False

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[ModelServer]:
        """The model server of the class's tests."""
        with ModelServer() as server:
            yield server

    @pytest.fixture(scope="class")
    @classmethod
    def local(
        cls,
        server: ModelServer,
        fork_servers: ForkServers,
        sdk_modules: tuple[str, ...],
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[tuple[LocalPlace, Outcome]]:
        """A place for local runs, and what comes of an unbroken one."""
        runs = LocalRuns(tmp_path_factory.mktemp("home"), server.env(), fork_servers(*sdk_modules))
        place = LocalPlace(cls.dialogue, runs, server, tmp_path_factory.mktemp("crash"))
        yield place, place.run(memory=True)
        runs.remove()

    @pytest.fixture(scope="class")
    @classmethod
    def the_plane(
        cls,
        server: ModelServer,
        fork_servers: ForkServers,
        sdk_modules: tuple[str, ...],
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[LocalPlane]:
        """A control plane whose workers have imported the SDK, which takes most of a worker's time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
            patch.setenv("DO_NOT_TRACK", "1")
            forks = fork_servers(*sdk_modules)
            plane = LocalPlane(tmp_path_factory.mktemp("plane"), env=server.env(), forks=forks).start()
            try:
                yield plane
            finally:
                plane.close()

    @pytest.fixture(scope="class")
    @classmethod
    def plane(
        cls, server: ModelServer, the_plane: LocalPlane, tmp_path_factory: pytest.TempPathFactory
    ) -> tuple[PlanePlace, Outcome]:
        """A place for runs on the plane, and what comes of an unbroken one."""
        place = PlanePlace(cls.dialogue, the_plane, server, tmp_path_factory.mktemp("crash"))
        return place, place.run(memory=True)

    @pytest.fixture(scope="class")
    @classmethod
    def small(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ModuleType]:
        """The folder and the module of a program with a few small tools."""
        folder = tmp_path_factory.mktemp("small")
        # A module of a name is imported once, and two classes may have one adapter, or one name.
        file = folder / f"small_{cls.dialogue.adapter}_{cls.__name__}.py"
        file.write_text(_PROGRAM.format(adapter=cls.dialogue.adapter, model=cls.dialogue.model, sdk=repr(cls.sdk)))
        return folder, load_flow(file)

    @pytest.fixture
    def start(self, the_plane: LocalPlane, server: ModelServer, small: tuple[Path, ModuleType]) -> Callable[..., Any]:
        """Runs a task of the small program on the plane, and waits for its end."""
        folder, flow = small
        server.clear()

        def run(task: str, **inputs: str) -> Any:
            the_plane.connect(folder)
            found = getattr(flow, task)
            found = getattr(found, "__wrapped_task__", found)
            started = flyte.with_runcontext(copy_style="all").run(found, **inputs)
            started.wait(quiet=True)
            return started

        return run

    @pytest.mark.parametrize("boundary", [boundary.name for boundary in BOUNDARIES])
    def test_a_local_run_that_is_killed_at_a_boundary_comes_out_like_an_unbroken_one(
        self, local: tuple[LocalPlace, Outcome], boundary: str
    ) -> None:
        """A process dies there, another one goes on, and nothing is asked, done or kept twice."""
        place, unbroken = local
        last = place.occurrences(boundary)
        assert last, f"no run reached {boundary}"
        for occurrence in range(1, last + 1) if self.every_occurrence else sorted({1, last}):
            crash_at(place, unbroken, Fault(boundary, occurrence), memory=True)

    @pytest.mark.parametrize("fault", ON_THE_PLANE, ids=str)
    def test_a_worker_that_is_killed_at_a_boundary_is_retried_and_comes_out_like_an_unbroken_one(
        self, plane: tuple[PlanePlace, Outcome], fault: Fault
    ) -> None:
        """A worker dies there, Flyte retries, and nothing is asked, done or kept twice."""
        place, unbroken = plane
        crash_at(place, unbroken, fault, memory=True)

    def test_a_backend_that_is_late_and_forgets_makes_no_difference(
        self, plane: tuple[PlanePlace, Outcome], the_plane: LocalPlane
    ) -> None:
        """A retry needs nothing of the backend but its own records."""
        retried_with(Modes(snapshot_delay=7, forget_children_after=0), plane, the_plane)

    def test_local_runs_and_workers_come_to_the_same(
        self, local: tuple[LocalPlace, Outcome], plane: tuple[PlanePlace, Outcome]
    ) -> None:
        """A laptop and a cluster differ in nothing that a caller sees."""
        assert local[1].answer == plane[1].answer
        assert local[1].effects == plane[1].effects
        assert local[1].usage == plane[1].usage
        assert local[1].transcript == plane[1].transcript

    def test_the_worker_of_a_tool_does_not_load_the_sdk(self, start: Callable[..., Any], the_plane: LocalPlane) -> None:
        """Each call of a tool would pay the SDK's import. Its worker starts from nothing here, whoever has called it."""
        the_plane.set_modes(Modes(warm_workers=False))
        try:
            run = start("loaded")
        finally:
            the_plane.set_modes(Modes())
        assert run.phase == "succeeded", the_plane.worker_log(run.name)
        assert run.outputs()[0] == []

    def test_a_second_run_whose_actions_have_the_same_names_is_no_repeat(
        self, start: Callable[..., Any], server: ModelServer, the_plane: LocalPlane
    ) -> None:
        """On a cluster the agent's action is `a0` in every run, and these two have equal inputs as well."""
        server.script("hello", Reply("hello"), Reply("hello"), repeat_last=True)
        for _ in range(2):
            run = start("chat", message="hello", memory_key="twice")
            assert run.phase == "succeeded", the_plane.worker_log(run.name)
            assert run.outputs()[0] == "hello"
        assert len(kept_messages(the_plane.data / "agents", "twice")) == 4

    def test_a_failing_tool_leaves_no_sibling_behind(
        self, start: Callable[..., Any], server: ModelServer, the_plane: LocalPlane, tmp_path: Path
    ) -> None:
        """The sibling is a process of its own, which would sleep for ten minutes."""
        calls = (call("slow", folder=str(tmp_path)), call("failing", folder=str(tmp_path)))
        server.script("both", Reply(calls=calls))
        run = start("chat", message="both")
        assert run.phase == "failed"
        assert "this one fails" in the_plane.worker_log(run.name)
        worker = Path("/proc", (tmp_path / "slow").read_text(), "stat")
        deadline = time.monotonic() + 60
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            while worker.read_text().split()[2] != "Z":
                assert time.monotonic() < deadline, "the sibling runs on"
                time.sleep(0.1)


class StreamedCrashSuite(CrashSuite):
    """The same dialogue with somebody who listens, for an adapter whose streams are recorded in a way of their own."""

    @pytest.mark.parametrize(
        "fault", [Fault("after-call", 5), Fault("after-record", 4), Fault("before-call", 8)], ids=str
    )
    def test_a_streamed_run_that_is_killed_tells_what_an_unbroken_one_tells(
        self,
        server: ModelServer,
        fork_servers: ForkServers,
        sdk_modules: tuple[str, ...],
        tmp_path_factory: pytest.TempPathFactory,
        fault: Fault,
    ) -> None:
        """Pieces of text that a listener had are not made again, and those of the next attempt are the same."""
        runs = LocalRuns(tmp_path_factory.mktemp("home"), server.env(), fork_servers(*sdk_modules))
        place = LocalPlace(replace(self.dialogue, streamed=True), runs, server, tmp_path_factory.mktemp("crash"))
        try:
            unbroken = place.run(memory=True)
            assert [kind for kind, _ in unbroken.told] == ["turn finished"] * 4 + ["text delta"] * 4 + ["turn finished"]
            crash_at(place, unbroken, fault, memory=True)
        finally:
            runs.remove()

    def test_a_streamed_run_on_the_plane_tells_what_an_unbroken_one_tells(
        self, server: ModelServer, the_plane: LocalPlane, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """The same with a worker that Flyte retries."""
        dialogue = replace(self.dialogue, streamed=True)
        place = PlanePlace(dialogue, the_plane, server, tmp_path_factory.mktemp("crash"))
        unbroken = place.run(memory=True)
        assert sum(kind == "text delta" for kind, _ in unbroken.told) == 4
        crash_at(place, unbroken, Fault("after-record", 6), memory=True)


class ThoroughCrashSuite(StreamedCrashSuite):
    """More of the same, which is about the runtime more than about an adapter: one adapter's tests take it in.

    Each occurrence of a boundary is a place to die at, each way of the backend's to forget is tried by itself, and the control
    plane dies as well.
    """

    every_occurrence = True

    @pytest.mark.parametrize("mode", list(MODES))
    def test_what_the_backend_remembers_makes_no_difference(
        self, plane: tuple[PlanePlace, Outcome], the_plane: LocalPlane, mode: str
    ) -> None:
        """A retry needs nothing of the backend but its own records."""
        retried_with(MODES[mode], plane, the_plane)

    def test_two_places_of_one_process_run_the_same_program(
        self,
        plane: tuple[PlanePlace, Outcome],
        the_plane: LocalPlane,
        server: ModelServer,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        """A process imports a program once, from wherever it first was: a soak has a place on each of two planes."""
        second = PlanePlace(self.dialogue, the_plane, server, tmp_path_factory.mktemp("crash"))
        compare(plane[1], second.run(memory=True))

    def test_nothing_recorded_repeats_when_the_plane_itself_is_killed_in_mid_run(
        self, plane: tuple[PlanePlace, Outcome], the_plane: LocalPlane, server: ModelServer
    ) -> None:
        """The plane is killed and started again, and the run goes on."""
        place, unbroken = plane
        run = place.start(memory=True)
        deadline = time.monotonic() + 120
        while server.journal.count() < 2:
            assert time.monotonic() < deadline, "the run did not get to its second turn"
            time.sleep(0.02)
        the_plane.kill()
        the_plane.start()
        compare(unbroken, place.finish(run))


def retried_with(modes: Modes, plane: tuple[PlanePlace, Outcome], the_plane: LocalPlane) -> None:
    """Kill a worker on a plane that has some modes, and compare."""
    place, unbroken = plane
    the_plane.set_modes(modes)
    try:
        crash_at(place, unbroken, Fault("after-record", 6), memory=True)
    finally:
        the_plane.set_modes(Modes())
