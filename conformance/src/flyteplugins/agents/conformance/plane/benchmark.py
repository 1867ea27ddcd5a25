"""What the plane costs: `python -m flyteplugins.agents.conformance.plane.benchmark`.

Prints its memory, and how long one trace record takes: as the plane does it, from the request to the news of it, and as
a task sees it, with the SDK's own work. Measured, never tested: it depends on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final, cast

from flyteidl2.actions import actions_service_pb2
from flyteidl2.actions.actions_service_connect import ActionsServiceClient
from flyteidl2.common import identifier_pb2, phase_pb2

from .local import LocalPlane, load_flow

_FLOW: Final = '''
import time
import flyte

env = flyte.TaskEnvironment("benchmark_flow", cache="disable")

@flyte.trace
async def step(number: int) -> int:
    return number

@env.task
async def steps(count: int) -> list[float]:
    """Milliseconds that each traced call took."""
    took = []
    for number in range(count):
        started = time.perf_counter()
        await step(number)
        took.append((time.perf_counter() - started) * 1000)
    return took

@env.task
async def idle(until: str) -> None:
    """Something that can be a parent."""
    import asyncio, os
    while not os.path.exists(until):
        await asyncio.sleep(0.1)
'''


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Args:
        argv: arguments; those of the process by default.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description="Measure the plane's memory and one trace record.")
    parser.add_argument("--records", type=int, default=500, metavar="N", help="records of each kind (500)")
    records: int = parser.parse_args(argv).records
    with tempfile.TemporaryDirectory() as folder:
        plane = LocalPlane(Path(folder) / "data").start()
        try:
            report = measure(plane, Path(folder), records)
        finally:
            plane.close()
    print(json.dumps(report, indent=1))
    return 0


def measure(plane: LocalPlane, folder: Path, records: int) -> dict[str, Any]:
    """Measure the plane's memory, and one trace record.

    Args:
        plane: A plane that runs.
        folder: Where programs can be put.
        records: How many records of each kind.

    Returns:
        Numbers by what they are, units included.
    """
    import flyte

    started = _memory(plane)
    (folder / "code").mkdir()
    (folder / "code" / "benchmark_flow.py").write_text(_FLOW)
    flow = load_flow(folder / "code" / "benchmark_flow.py")
    plane.connect(folder / "code")
    run = flyte.run(flow.steps, count=records)
    run.wait(quiet=True)
    in_task: list[float] = run.outputs()[0]
    parent = flyte.run(flow.idle, until=str(folder / "done"))
    by_plane = asyncio.run(_record(plane, parent.name, records))
    (folder / "done").touch()
    parent.wait(quiet=True)
    return {
        "records": records,
        "memory at start, MB": started,
        "memory after, MB": _memory(plane),
        "one record by the plane, ms": _summary(by_plane),
        "one traced call in a task, ms": _summary(in_task),
    }


def _memory(plane: LocalPlane) -> float:
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(plane.pid)], capture_output=True, text=True, check=True)
    return round(int(shown.stdout) / 1024, 1)


def _summary(values: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {name: round(value, 2) for name, value in (("p50", cuts[49]), ("p99", cuts[98]), ("max", max(values)))}


async def _record(plane: LocalPlane, run: str, records: int) -> list[float]:
    """Record traces as a worker does; returns the milliseconds from each request to the news that it is stored."""
    client = ActionsServiceClient(plane.endpoint)
    run_id = identifier_pb2.RunIdentifier(org="local", project="default", domain="development", name=run)
    parent = identifier_pb2.ActionIdentifier(run=run_id, name="a0")
    base = str(plane.data / "runs" / run)
    request = actions_service_pb2.WatchForUpdatesRequest(parent_action_id=parent)
    # An async generator by the client's implementation, and closed as one; its type says less.
    news = cast("AsyncGenerator[actions_service_pb2.WatchForUpdatesResponse, None]", client.watch_for_updates(request))
    await anext(news)  # the mark at the end of what was there before
    took = []
    for number in range(records):
        record = actions_service_pb2.EnqueueRequest()
        action = record.action
        action.action_id.CopyFrom(identifier_pb2.ActionIdentifier(run=run_id, name=f"record{number}"))
        action.parent_action_name, action.input_uri, action.run_output_base = "a0", f"{base}/inputs.pb", base
        action.trace.name, action.trace.phase = "record", phase_pb2.ACTION_PHASE_SUCCEEDED
        started = time.perf_counter()
        await client.enqueue(record)
        while (await anext(news)).action_update.action_id.name != action.action_id.name:
            pass
        took.append((time.perf_counter() - started) * 1000)
    await news.aclose()
    return took


if __name__ == "__main__":
    sys.exit(main())
