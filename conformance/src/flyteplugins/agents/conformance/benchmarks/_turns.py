"""What a durable turn costs beside the bare SDK's, and a replayed one beside a live one.

The model server is a process of its own, and answers each turn with two kilobytes and a call of a tool that does nothing.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator

from flyteplugins.agents.conformance.kit import Adapter
from flyteplugins.agents.conformance.kit._stage import Stage, environment, open_stage

from ._table import table

__all__ = ["turns"]

_SERVER = """
import json, sys
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
with ModelServer(strict=False) as server:
    def answer(conversation):
        more = conversation.turn < int(conversation.user.split()[1])
        text = (f"{conversation.turn} " * 1000)[:2000]
        return Reply(text, calls=(call("step", number=conversation.turn),) if more else ())
    server.script(None, answer, repeat_last=True)
    print(json.dumps(server.env()), flush=True)
    sys.stdin.read()
"""


def step(number: int) -> str:
    """Do nothing."""
    return f"done {number}"


@contextlib.contextmanager
def _server() -> Iterator[dict[str, str]]:
    argv = [sys.executable, "-c", _SERVER]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield dict(json.loads(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


_WAYS = ("bare", "durable", "unreported", "replayed")


async def turns(adapter: Adapter, lengths: tuple[int, ...], rounds: int) -> str:
    """Compare runs of several lengths, in turns: what disturbs the machine disturbs all of them.

    Args:
        adapter: The adapter.
        lengths: How many turns a run has.
        rounds: How often each is measured; the fastest counts.
    """
    rows: list[tuple[object, ...]] = []
    with open_stage(adapter) as stage, _server() as variables, environment(variables):
        await _measure(stage, 2, "warm", {way: [] for way in _WAYS})  # the first run imports the SDK, and more
        for length in lengths:
            took: dict[str, list[tuple[float, float]]] = {way: [] for way in _WAYS}
            for number in range(rounds):
                await _measure(stage, length, f"{length}-{number}", took)
            fastest = [[1000 * min(times) / length for times in zip(*pairs, strict=True)] for pairs in took.values()]
            (bare, durable, unreported, replayed), cpu = zip(*fastest, strict=True)
            stored = sum(file.stat().st_size for file in stage.folder(f"{length}-0").rglob("turn.*"))
            rows.append(
                (
                    length,
                    bare,
                    durable,
                    durable - bare,
                    unreported - bare,
                    cpu[1] - cpu[0],
                    cpu[2] - cpu[0],
                    replayed,
                    replayed / durable,
                    f"{stored / 1024:.0f} KB",
                )
            )
    head = (
        "turns of 2 KB",
        "bare, ms a turn",
        "durable",
        "durable more",
        "more without a report",
        "CPU more",
        "CPU more without a report",
        "replayed",
        "replayed/live",
        "records",
    )
    return table(head, rows)


async def _measure(stage: Stage, length: int, run: str, took: dict[str, list[tuple[float, float]]]) -> None:
    adapter, question = stage.adapter, f"Take {length} turns."

    def options() -> dict[str, object]:
        return {**adapter.agent("", [step]), **adapter.unlimited}

    began = _now()
    await adapter.bare(options(), question)
    took["bare"].append(_since(began))
    ways = (("durable", run, True), ("unreported", f"{run}-unreported", False), ("replayed", run, True))
    for name, where, observability in ways:

        async def body(name: str = name, observability: bool = observability) -> None:
            began = _now()
            await adapter.run_agent(question, **options(), observability=observability)
            took[name].append(_since(began))

        await stage.attempt(body, where)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    """Seconds by the clock, and of this process's own work: on a machine that does something else, only that tells."""
    clock, work = _now()
    return clock - began[0], work - began[1]
