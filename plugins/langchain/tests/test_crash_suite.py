"""The standard dialogue, killed at every boundary: as an agent that is built from arguments, and as a graph of the caller's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import flyte
import pytest

from flyteplugins.agents.conformance.crash import (
    BOUNDARIES,
    Dialogue,
    LocalPlace,
    Outcome,
    PlanePlace,
    compare,
    crash_at,
    kept_messages,
)
from flyteplugins.agents.conformance.faults import Fault
from flyteplugins.agents.conformance.local import ForkServer, LocalRuns
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.plane import LocalPlane, Modes, load_flow
from flyteplugins.agents.conformance.plane.testing import plane_factory

__all__ = ["plane_factory"]

_GRAPH = '''
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


async def ask(state: MessagesState) -> dict:
    """Make the model in the node, where nobody can reach it beforehand."""
    model = ChatOpenAI(model="gpt-4.1").bind_tools([temperature, note])
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("ask", ask)
builder.add_node("tools", ToolNode([temperature, note]))
builder.add_edge(START, "ask")
builder.add_conditional_edges("ask", tools_condition)
builder.add_edge("tools", "ask")
graph = builder.compile()
'''


class GraphDialogue(Dialogue):
    """The standard dialogue on a graph that the caller built."""

    def write_program(self, folder: Path) -> Path:
        """Write the program, and have it run the graph."""
        file = super().write_program(folder)
        text = file.read_text()
        arguments = f'tools=[temperature, note],\n        model="{self.model}",'
        task = "@env.task(retries=2, report=True)"
        assert arguments in text
        assert task in text
        file.unlink()
        other = file.with_name("standard_langgraph.py")  # both programs may be imported in one process
        other.write_text(text.replace(arguments, "agent=graph,").replace(task, f"{_GRAPH}\n\n{task}"))
        return other


DIALOGUES: dict[str, Dialogue] = {
    "create_agent": Dialogue("langchain", model="openai:gpt-4.1"),
    "a StateGraph": GraphDialogue("langchain", model="openai:gpt-4.1"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module", params=list(DIALOGUES))
def dialogue(request: pytest.FixtureRequest) -> Dialogue:
    """Each way into a run."""
    return DIALOGUES[request.param]


@pytest.fixture(scope="module")
def local(
    dialogue: Dialogue,
    server: ModelServer,
    fork_servers: Callable[..., tuple[ForkServer, ...]],
    sdk_modules: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[LocalPlace, Outcome]]:
    """A place for local runs, and what comes of an unbroken one."""
    runs = LocalRuns(tmp_path_factory.mktemp("home"), server.env(), fork_servers(*sdk_modules))
    place = LocalPlace(dialogue, runs, server, tmp_path_factory.mktemp("crash"))
    yield place, place.run(memory=True)
    runs.remove()


@pytest.mark.parametrize("boundary", [boundary.name for boundary in BOUNDARIES])
def test_a_local_run_that_is_killed_at_a_boundary_comes_out_like_an_unbroken_one(
    local: tuple[LocalPlace, Outcome], boundary: str
) -> None:
    place, unbroken = local
    occurrence = 0
    while True:
        occurrence += 1
        try:
            crash_at(place, unbroken, Fault(boundary, occurrence), memory=True)
        except AssertionError:
            if place.boundaries().get(boundary, 0) < occurrence:  # the run has no more of them
                break
            raise
    assert occurrence > 1, f"no run reached {boundary}"


@pytest.fixture(scope="module")
def the_plane(server: ModelServer, plane_factory: Callable[..., LocalPlane]) -> LocalPlane:
    return plane_factory(env=server.env())


@pytest.fixture(scope="module")
def plane(
    dialogue: Dialogue, server: ModelServer, the_plane: LocalPlane, tmp_path_factory: pytest.TempPathFactory
) -> tuple[PlanePlace, Outcome]:
    """A place for runs on a control plane, and what comes of an unbroken one."""
    place = PlanePlace(dialogue, the_plane, server, tmp_path_factory.mktemp("crash"))
    return place, place.run(memory=True)


ON_THE_PLANE = [
    Fault("before-call", 2),
    Fault("after-call", 4),
    Fault("after-record", 2),
    Fault("after-record", 6),
    Fault("in-tool", 1),
    Fault("after-tool", 3),
    Fault("before-commit", 1),
    Fault("after-commit", 1),
]


@pytest.mark.parametrize("fault", ON_THE_PLANE, ids=str)
def test_a_worker_that_is_killed_at_a_boundary_is_retried_and_comes_out_like_an_unbroken_one(
    plane: tuple[PlanePlace, Outcome], fault: Fault
) -> None:
    place, unbroken = plane
    crash_at(place, unbroken, fault, memory=True)


@pytest.mark.parametrize(
    "modes",
    [Modes(snapshot_delay=7), Modes(forget_children_after=0), Modes(serve_traces=True)],
    ids=["the snapshot is late", "children are forgotten", "traces are served"],
)
def test_what_the_backend_remembers_makes_no_difference(
    plane: tuple[PlanePlace, Outcome], the_plane: LocalPlane, modes: Modes
) -> None:
    place, unbroken = plane
    the_plane.set_modes(modes)
    try:
        crash_at(place, unbroken, Fault("after-record", 6), memory=True)
    finally:
        the_plane.set_modes(Modes())


def test_nothing_recorded_repeats_when_the_plane_itself_is_killed_in_mid_run(
    plane: tuple[PlanePlace, Outcome], the_plane: LocalPlane, server: ModelServer
) -> None:
    place, unbroken = plane
    run = place.start(memory=True)
    deadline = time.monotonic() + 120
    while server.journal.count() < 2:
        assert time.monotonic() < deadline, "the run did not get to its second turn"
        time.sleep(0.02)
    the_plane.kill()
    the_plane.start()
    compare(unbroken, place.finish(run))


@pytest.fixture
def light(the_plane: LocalPlane, server: ModelServer) -> Callable[..., str]:
    """Runs the application `light` on the plane, and returns its answer."""
    folder = Path(__file__).parent / "apps"
    flow = load_flow(folder / "light.py")
    server.clear()

    def run(message: str, memory_key: str = "") -> str:
        the_plane.connect(folder)
        started = flyte.run(flow.chat, message=message, memory_key=memory_key)
        started.wait(quiet=True)
        assert started.phase == "succeeded", the_plane.worker_log(started.name)
        return str(started.outputs()[0])

    return run


def test_the_worker_of_a_tool_does_not_load_the_sdk(light: Callable[..., str], server: ModelServer) -> None:
    server.script("which", Reply(calls=(call("loaded"),)), Reply("done"))
    assert light("which") == "[]"


def test_a_second_run_whose_actions_have_the_same_names_is_no_repeat(
    light: Callable[..., str], server: ModelServer, the_plane: LocalPlane
) -> None:
    """On a cluster the agent's action is `a0` in every run, and these two have equal inputs as well."""
    server.script("hello", Reply("hello"), Reply("hello"), repeat_last=True)
    for _ in range(2):
        assert light("hello", memory_key="twice") == "hello"
    said = [message["type"] for message in kept_messages(the_plane.data / "agents", "twice")]
    assert said == ["human", "ai", "human", "ai"]


def test_local_runs_and_workers_come_to_the_same(
    local: tuple[LocalPlace, Outcome],
    plane: tuple[PlanePlace, Outcome],
) -> None:
    assert local[1].answer == plane[1].answer
    assert local[1].effects == plane[1].effects
    assert local[1].usage == plane[1].usage
    assert local[1].transcript == plane[1].transcript
