"""What takes a control plane: workers, and trace records."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import flyte

from flyteplugins.agents.conformance.plane import LocalPlane, load_flow
from flyteplugins.agents.conformance.plane.benchmark import measure

from ._table import table

__all__ = ["traces", "workers"]

_BARE = """
import flyte

env = flyte.TaskEnvironment("{name}", cache="disable")


@env.task
async def look(city: str) -> str:
    return city
"""

_TOOL = """
import flyte
from {module} import run_agent, tool

env = flyte.TaskEnvironment("{name}", cache="disable")


@tool
@env.task
async def look(city: str) -> str:
    return city
"""


def workers(modules: Sequence[str], rounds: int) -> str:
    """Compare the start of a worker that runs a tool's task with that of a bare Flyte task.

    Args:
        modules: The adapters' modules.
        rounds: How often each is measured, in turns.
    """
    took: dict[str, list[float]] = {"": [], **{module: [] for module in modules}}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        code = Path(folder) / "code"
        code.mkdir()
        plane = LocalPlane(Path(folder) / "plane").start()
        try:
            flows = {}
            for number, module in enumerate(took):
                file = code / f"workers_{number}.py"
                file.write_text((_TOOL if module else _BARE).format(name=f"workers-{number}", module=module))
                flows[module] = load_flow(file)
            plane.connect(code)
            for _ in range(rounds):
                for module, flow in flows.items():
                    task = getattr(flow.look, "__wrapped_task__", None) or flow.look
                    began = time.perf_counter()
                    run = flyte.run(task, city="Oslo")
                    run.wait(quiet=True)
                    took[module].append(time.perf_counter() - began)
        finally:
            plane.close()
    bare = statistics.median(took[""])
    rows = [
        (
            f"a tool of `{module}`" if module else "a bare Flyte task",
            statistics.median(times),
            statistics.median(times) / bare,
        )
        for module, times in took.items()
    ]
    return table(("a worker that runs", "seconds, from the request to the answer", "times the bare one's"), rows)


def traces(records: int) -> str:
    """Measure one trace record on the plane.

    Args:
        records: How many are made.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        plane = LocalPlane(Path(folder) / "plane").start()
        try:
            found = measure(plane, Path(folder), records)
        finally:
            plane.close()
    rows = [
        (name.removesuffix(", ms"), found[name]["p50"], found[name]["p99"])
        for name in ("one record by the plane, ms", "one traced call in a task, ms")
    ]
    return table(("", "p50, ms", "p99, ms"), rows)
