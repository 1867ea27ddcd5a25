"""What is written: additions to memories, and reports."""

from __future__ import annotations

import time
from pathlib import Path

from flyteplugins.agents.conformance.kit._stage import Stage, open_stage
from flyteplugins.agents.conformance.reference.declaration import PARROT
from flyteplugins.agents.core import JSON, ErrorClass, JsonCodec, MemoryStore, TurnFacts, agent_run

from ._table import table

__all__ = ["memories", "reports"]


async def memories(sizes: tuple[int, ...], rounds: int) -> str:
    """Add a message to conversations of several sizes.

    Args:
        sizes: Bytes that the conversation has before.
        rounds: How often each is measured; the fastest counts.
    """
    rows: list[tuple[object, ...]] = []
    with open_stage(PARROT) as stage:
        for size in sizes:
            took, written = await _append(stage, size, rounds)
            rows.append((f"{size / 1000:,.0f} KB", 1000 * took, written))
    return table(("memory before", "append, ms", "bytes written"), rows)


async def _append(stage: Stage, size: int, rounds: int) -> tuple[float, int]:
    took: list[float] = []
    written: list[int] = []

    async def body() -> None:
        store = MemoryStore.for_key(f"size-{size}")
        message: JSON = {"role": "user", "content": "x" * 1000}
        start = await store.snapshot_for("parrot", "seed")
        await store.commit("parrot", start, "seed", [message] * (size // 1000))
        for number in range(rounds):
            before = _bytes(stage.home)
            began = time.perf_counter()
            start = await store.snapshot_for("parrot", f"commit-{number}")
            await store.commit("parrot", start, f"commit-{number}", [message])
            took.append(time.perf_counter() - began)
            written.append(_bytes(stage.home) - before)

    await stage.attempt(body, f"memory-{size}")
    return min(took), max(written)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


async def reports(lengths: tuple[int, ...]) -> str:
    """Write the reports of runs of several lengths.

    Args:
        lengths: How many turns a run has.
    """
    rows: list[tuple[object, ...]] = []
    with open_stage(PARROT) as stage:
        for length in lengths:

            async def body(length: int = length) -> None:
                async with agent_run(
                    framework="benchmark",
                    name="long",
                    input="Go.",
                    memory_key=None,
                    configuration={},
                    classify=lambda _: ErrorClass.RETRY_ATTEMPT,
                    durable=False,
                ) as run:
                    for number in range(length):
                        await _turn(run, number)
                    await run.finish("done")

            name = f"report-{length}"
            await stage.attempt(body, name)
            [page] = stage.folder(name).parent.rglob("report.html")
            size = page.stat().st_size
            rows.append((length, f"{size / 1024:.0f} KB", size / length))
    return table(("turns of 2 KB", "report", "bytes a turn"), rows)


async def _turn(run: object, number: int) -> None:
    from flyteplugins.agents.core import AgentRun

    assert isinstance(run, AgentRun)

    async def answer() -> JSON:
        return (f"{number} " * 1000)[:2000]

    await run.turn(
        {"messages": number}, answer, codec=JsonCodec(), facts=lambda value: TurnFacts(text=str(value)), model="m"
    )
