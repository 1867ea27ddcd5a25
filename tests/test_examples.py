"""Every example does what its first comment says, on a laptop and on the control plane. A new one that is in no table is noticed.

What is typed is read from the comment: each command below `Type`, as often as it says. A row of the table says what is printed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flyte
import pytest

from flyteplugins.agents.conformance.local import LocalRuns, SharedForkServer
from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.conformance.plane import LocalPlane, load_flow

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
NAMES = {path.name for path in EXAMPLES.glob("*.py")}
TIMES = {"twice": 2, "three times": 3}


@dataclass(frozen=True)
class Row:
    """What one example shows.

    Attributes:
        task: The task to run on the plane.
        inputs: Its inputs.
        says: What its output has in it.
        prints: For each process of a laptop in turn, a line of what it prints.
        dies: How many of the processes on a laptop die on the way.
        tools: How many tools run as tasks on the plane.
    """

    task: str
    inputs: dict[str, Any]
    says: str
    prints: tuple[str, ...]
    dies: int = 0
    tools: int = 0


WEATHER = {"message": "What is the weather in Rome?"}
CHAT = Row("chat", WEATHER, "21 °C", ("Nice to meet you, Ada", "Your name is Ada"), tools=1)
ROWS = {
    "chat.py": CHAT,
    "adk_chat.py": CHAT,
    "claude_chat.py": CHAT,
    "langchain_chat.py": CHAT,
    "mistral_chat.py": CHAT,
    "pydantic_ai_chat.py": CHAT,
    "crash_resume.py": Row(
        "plan",
        {"city": "Lisbon"},
        "reference AB12",
        (
            "*** the process dies after turn 2 ***",
            "find_hotels: Hotel Central",
            "find_flights: TP 1234 to Lisbon, 180 EUR. (replayed)",
        ),
        dies=2,
        tools=4,
    ),
    "deep_agent_chat.py": Row(
        "chat",
        {"message": "What is the weather in Oslo?"},
        "21 °C",
        ("21 °C", "deepagents/files/weather.md"),
        tools=1,
    ),
    "langgraph_chat.py": Row(
        "chat",
        {"message": "What is the weather in Oslo?"},
        "21 °C",
        ("*** the process dies ***", "turn: get_weather (replayed)"),
        dies=1,
        tools=1,
    ),
    "multi_agent.py": Row(
        "compare",
        {"cities": ["Lisbon", "Oslo"]},
        "Lisbon is the warmest",
        ("Lisbon is the warmest, at 24 °C",),
        tools=2,
    ),
    "streaming.py": Row(
        "tell",
        {"question": "Tell me a long story"},
        "",
        (
            "*** the process dies in the middle of the answer ***",
            "[get_weather: Sunny and 24 °C in Lisbon. (replayed)]",
        ),
        dies=1,
        tools=1,
    ),
    "structured.py": Row("plan", {"city": "Lisbon"}, "EUR", ("Trip(city=",), tools=1),
    "watch.py": Row("tell", {"question": "Tell me a long story"}, "Once upon a time", ("Once upon a time",)),
}
TOUR = {"tour.py": "tests/test_readme.py"}
"""It is no task; the test compares what it prints with the README."""


def first_comment(example: str) -> str:
    return re.match(r"(#.*\n)*", (EXAMPLES / example).read_text())[0]  # type: ignore[index]  # it always matches


def typed(example: str) -> list[list[str]]:
    """The commands that the first comment says to type, in order, each as often as it says."""
    commands = []
    times = 0
    for line in first_comment(example).splitlines():
        if begins := re.match(r"# Type(?:, ([^:]*))?:", line):
            times = TIMES.get(begins[1], 1)
        elif line.startswith("# See:"):
            break
        if times and (command := re.search(r"(flyte run .*)$", line)):
            commands += [shlex.split(command[1])] * times
    return commands


def test_each_example_is_in_the_table_or_is_run_by_a_test_of_its_own() -> None:
    tests = [path for folder in ("plugins", "tests", "conformance") for path in (ROOT / folder).rglob("test_*.py")]
    assert set(ROWS) <= NAMES
    for example in sorted(NAMES - set(ROWS) - set(TOUR)):
        # those that ask a person need somebody at the terminal
        assert example.endswith("approval.py"), f"{example}: add a row to the table of {Path(__file__).name}"
        assert any(re.search(rf'"{re.escape(example)}"', path.read_text()) for path in tests), f"no test runs {example}"


@pytest.mark.parametrize("example", sorted(NAMES))
def test_the_first_comment_says_what_to_type_and_what_to_see(example: str) -> None:
    comment = first_comment(example)
    assert re.search(r"^# Type[^:]*:\s+\S", comment, re.MULTILINE)
    assert re.search(r"^# See:\s+\S", comment, re.MULTILINE)
    if example in TOUR:
        return
    assert typed(example)
    assert all(f"examples/{example}" in command for command in typed(example))
    assert "# With a key of your own:  export " in comment
    assert "# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local" in comment


@pytest.mark.parametrize("example", sorted(ROWS))
def test_on_a_laptop_it_does_what_its_first_comment_says(
    home: Path, any_sdk: tuple[SharedForkServer, ...], lenient: ModelServer, run_name: str, example: str
) -> None:
    row = ROWS[example]
    runs = LocalRuns(home, lenient.env(), any_sdk)
    commands = typed(example)
    assert len(commands) == len(row.prints)
    try:
        for number, (command, line) in enumerate(zip(commands, row.prints, strict=True)):
            at = command.index(f"examples/{example}")
            given = command[at + 2 :]
            inputs = dict(zip((word.removeprefix("--") for word in given[::2]), given[1::2], strict=True))
            name = run_name if "--name" in command else f"{run_name}-{number}"
            outcome = runs.run(EXAMPLES / example, command[at + 1], name=name, inputs=inputs)
            assert outcome.succeeded == (number >= row.dies), outcome.output
            assert line in outcome.output
    finally:
        runs.remove()


@pytest.fixture(scope="module")
def lenient() -> Iterator[ModelServer]:
    """The model server as a reader starts it."""
    with ModelServer(strict=False) as server:
        yield server


@pytest.fixture(scope="module")
def on_the_plane(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    lenient: ModelServer,
    any_sdk: tuple[SharedForkServer, ...],
) -> Iterator[dict[str, Any]]:
    """All examples that tests want to look at, started at once on one plane."""
    items: list[Any] = [item for item in request.session.items if "on_the_plane" in getattr(item, "fixturenames", ())]
    wanted = sorted({item.callspec.params["example"] for item in items})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        plane = LocalPlane(tmp_path_factory.mktemp("plane"), env=lenient.env(), forks=any_sdk).start()
        try:
            plane.connect(EXAMPLES)
            tasks = {example: getattr(load_flow(EXAMPLES / example), ROWS[example].task) for example in wanted}
            # Flyte by itself would go through all that this process has imported, which takes it two seconds for each.
            yield {"plane": plane} | {
                example: flyte.with_runcontext(
                    name=example.removesuffix(".py").replace("_", "-"), copy_style="all"
                ).run(task, **ROWS[example].inputs)
                for example, task in tasks.items()
            }
        finally:
            plane.close()


@pytest.mark.parametrize("example", sorted(ROWS))
def test_on_the_plane_it_succeeds_with_each_tool_in_a_worker_of_its_own(
    on_the_plane: dict[str, Any], example: str
) -> None:
    run, plane = on_the_plane[example], on_the_plane["plane"]
    run.wait(quiet=True)
    assert run.phase == "succeeded", plane.worker_log(run.name)
    assert ROWS[example].says in str(run.outputs()[0])
    actions = [folder for folder in (plane.data / "runs" / run.name).iterdir() if (folder / "1" / "log.txt").exists()]
    assert len(actions) == 1 + ROWS[example].tools
