"""Each example in which a person is asked does what its first comment says, at a terminal and on the control plane."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flyte.remote
import pytest
from flyteidl2.common import phase_pb2

from flyteplugins.agents.conformance.local import METADATA, SharedForkServer
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.plane.testing import LocalPlane, kill_worker, plane_factory
from flyteplugins.agents.conformance.reviewer import answer_at_terminal

__all__ = ["plane_factory"]

ROOT = Path(__file__).parents[1]

LATE = "nobody answered in time"
FAILED = "Nobody decided about interrupt of flyte-agent"
REFUSED = "They said: it is too late"

Case = tuple[tuple[str, ...], int | None, tuple[str, ...]]

EDITED: Case = (('{"order": "A-17", "cents": 500}',), 500, (LATE,))
"""The adapters' own tests edit arguments as well."""

AT_THE_TERMINAL: dict[str, list[Case]] = {
    "adk_approval.py": [(("yes", "no: it is too late"), 1900, (REFUSED, LATE))],
    "approval.py": [(("yes", "no: it is too late"), 1900, (REFUSED, LATE))],
    "claude_approval.py": [
        (("approve", "deny: it is too late"), 1900, (REFUSED, LATE)),
        EDITED,
    ],
    "langchain_approval.py": [
        (("approve", "deny: it is too late"), 1900, (REFUSED, LATE)),
        EDITED,
    ],
    "langgraph_approval.py": [
        (("pay",), 1900, ()),
        (("it is too late",), None, (REFUSED,)),
        ((), None, (FAILED,)),
    ],
    "mistral_approval.py": [(("yes", "no: it is too late"), 1900, (REFUSED, LATE))],
    "plain_approval.py": [(("y",), 1900, ()), (("n",), None, ("a person said no",))],
    "pydantic_ai_approval.py": [
        (("approve", "deny: it is too late"), 1900, (REFUSED, LATE)),
        EDITED,
    ],
}
"""Of each example: what is typed, one answer per call; how many cents are paid; what else the answer says."""


def proposes(model: ModelServer, example: str, calls: int) -> None:
    """Have the model propose some refunds, and then say what came of them."""
    if example == "langgraph_approval.py":
        model.script("refund order A-17", "I would refund it.")
        return
    model.script(
        "refund order A-17",
        Reply(calls=tuple(call("refund", order=f"A-{17 + number}") for number in range(calls))),
        lambda conversation: Reply(" / ".join(result.text for result in conversation.results)),
    )


@pytest.mark.parametrize(
    ("example", "answers", "cents", "told"),
    [
        pytest.param(
            example,
            *case,
            id=f"{example.removesuffix('.py')}-{number}",
            marks=[pytest.mark.thorough] if case == EDITED else [],
        )
        for example, cases in AT_THE_TERMINAL.items()
        for number, case in enumerate(cases)
    ],
)
def test_at_a_terminal_only_what_a_person_approves_is_paid(
    model_server: ModelServer,
    any_sdk: tuple[SharedForkServer, ...],
    home: Path,
    run_name: str,
    example: str,
    answers: tuple[str, ...],
    cents: int | None,
    told: tuple[str, ...],
) -> None:
    late = LATE in told or FAILED in told
    proposes(model_server, example, len(answers) + late)
    words = typed(example)
    words.insert(words.index("--local") + 1, f"--name={run_name}")
    environment = {**os.environ, **model_server.env(), "HOME": str(home), "DO_NOT_TRACK": "1", "COLUMNS": "1000"}
    command = [str(Path(sys.executable).parent / "flyte"), *words[1:], *(["--patience", "3"] if late else [])]
    fails: Any = pytest.raises(AssertionError) if FAILED in told else contextlib.nullcontext()
    printed = ""
    try:
        with fails as failure:
            printed = answer_at_terminal(command, *answers, env=environment, server=any_sdk[0])
    finally:
        shutil.rmtree(METADATA / run_name, ignore_errors=True)
    printed = printed or str(failure.value)
    refunds = re.findall(r"refunded ([0-9.]+) EUR for A-1[789]", printed)
    assert refunds == ([] if cents is None else [f"{cents / 100:.2f}"]), printed
    assert all(text in printed for text in told), printed


def typed(example: str) -> list[str]:
    """The command that the example's first comment says to type."""
    line = re.search(r"^# Type:\s+(flyte run --local .*)$", (ROOT / "examples" / example).read_text(), re.MULTILINE)
    assert line is not None, f"{example} does not say what to type"
    return [str(ROOT / word) if word.startswith("examples/") else word for word in shlex.split(line[1])]


@pytest.fixture(scope="module")
def cluster(
    plane_factory: Callable[..., LocalPlane], any_sdk: tuple[SharedForkServer, ...]
) -> Iterator[tuple[LocalPlane, ModelServer]]:
    """A plane whose workers have the offline model server."""
    with ModelServer() as server:
        yield plane_factory(env=server.env(), forks=any_sdk, commands=any_sdk[0]), server


@pytest.mark.parametrize("example", AT_THE_TERMINAL)
def test_on_the_plane_the_run_waits_until_somebody_signals_also_while_its_workers_are_down(
    cluster: tuple[LocalPlane, ModelServer], run_name: str, example: str
) -> None:
    plane, server = cluster
    server.clear()
    proposes(server, example, 1)
    text = (ROOT / "examples" / example).read_text()
    command = re.search(r"flyte (run examples/.*)$", text, re.MULTILINE)
    signal = re.search(r"flyte (signal condition RUN ACTION .*)$", text, re.MULTILINE)
    assert command is not None
    assert signal is not None
    run, *words = shlex.split(command[1])
    plane.flyte(run, "--name", run_name, *words, cwd=ROOT)
    plane.connect(ROOT)
    action = waiting(run_name)
    assert action in plane.flyte("get", "condition", run_name)
    for pid in plane.workers():
        kill_worker(pid)
    named = {"RUN": run_name, "ACTION": action}
    # what it says counts: once it has said so, its native threads may abort the process that ends
    said = plane.flyte(*(named.get(word, word) for word in shlex.split(signal[1])), check=False)
    assert "has been signaled" in said
    done = flyte.remote.Run.get(run_name)
    done.wait(quiet=True)
    assert len(list(flyte.remote.Condition.listall(run_name=run_name))) == 1
    assert server.journal.count() == (1 if example == "langgraph_approval.py" else 2)
    logs = "".join(log.read_text() for log in (plane.data / "runs" / run_name).rglob("log.txt"))
    assert logs.count("    refunded 19.00") == 1
    assert re.search("Refunded 19.00 EUR for (order )?A-17", str(done.outputs()[0]))


def waiting(run_name: str) -> str:
    """The action of the run's condition, once it waits."""
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up:
        for condition in flyte.remote.Condition.listall(run_name=run_name):
            if condition.pb2.status.phase == phase_pb2.ACTION_PHASE_PAUSED:
                return str(condition.action_name)
        time.sleep(0.2)
    raise AssertionError(f"The run {run_name} has asked nobody.")
