"""What passes between one question to the model and the next, with so many turns behind it: with the SDK alone, and durably.

The model is in this process and answers at once, since an SDK's client may take many times as long to write a long conversation
down as all that is looked for here. A run's own beginning and end are not between two questions.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter
from flyteplugins.agents.conformance.kit._stage import Stage, open_stage
from flyteplugins.agents.core import AgentRun

from ._table import table
from ._turns import step

__all__ = ["between"]

_TURNS = 12
"""How many turns a run takes."""

_WARM = 2
"""How many of them are not counted: the first one hashes what is behind it, and caches are cold."""

_WAYS: dict[str, dict[str, object]] = {
    "durable": {},
    "unreported": {"observability": False},
}

Clock = tuple[float, float]


class _Asked:
    """Says when the model was asked, and when that is enough."""

    def __init__(self) -> None:
        self._at: list[Clock] = []

    def __call__(self) -> bool:
        self._at.append((time.perf_counter(), time.process_time()))
        return len(self._at) < _TURNS

    def passed(self) -> list[Clock]:
        """Milliseconds from one question to the next, by the clock and of this process's own work."""
        counted = self._at[_WARM:]
        return [
            (1000 * (later[0] - sooner[0]), 1000 * (later[1] - sooner[1]))
            for sooner, later in itertools.pairwise(counted)
        ]


@contextlib.contextmanager
def _turns_timed() -> Iterator[list[Clock]]:
    """Note for each durable turn what core spends on it beside the model's call: key, record, trace, events, report.

    Where the SDK by itself takes a hundred times as long, the difference of two runs does not tell.
    """
    plain = AgentRun.turn
    spent: list[Clock] = []

    async def turn(self: AgentRun, fields: Any, call: Callable[[], Awaitable[Any]], **options: Any) -> Any:
        calls: list[Clock] = []

        async def timed() -> Any:
            began = time.perf_counter(), time.process_time()
            try:
                return await call()
            finally:
                calls.append((time.perf_counter() - began[0], time.process_time() - began[1]))

        began = time.perf_counter(), time.process_time()
        recorded = await plain(self, fields, timed, **options)
        clock, work = time.perf_counter() - began[0], time.process_time() - began[1]
        spent.append((1000 * (clock - sum(one[0] for one in calls)), 1000 * (work - sum(one[1] for one in calls))))
        return recorded

    AgentRun.turn = turn  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        AgentRun.turn = plain  # type: ignore[method-assign]


async def between(adapter: Adapter, lengths: Sequence[int], rounds: int) -> str:
    """Compare what passes between two questions; the ways take turns, so that what disturbs the machine disturbs all of them.

    Args:
        adapter: The adapter; it has `at_once`.
        lengths: How many turns of 2 KB are behind a run.
        rounds: How often each is measured.
    """
    rows: list[tuple[object, ...]] = []
    with open_stage(adapter) as stage, contextlib.redirect_stderr(io.StringIO()):
        for tools, title in (((), "alone"), ((step,), "with an inline tool")):
            await _measure(stage, 0, tools, f"warm-{len(tools)}")
            for length in lengths:
                found: dict[str, list[Clock]] = {}
                stored = 0
                for number in range(rounds):
                    name = f"{len(tools)}-{length}-{number}"
                    for way, passed in (await _measure(stage, length, tools, name)).items():
                        found.setdefault(way, []).extend(passed)
                    stored = sum(file.stat().st_size for file in stage.records(f"{name}-durable"))
                clock, work = (
                    {way: statistics.median(one[index] for one in passed) for way, passed in found.items()}
                    for index in (0, 1)
                )
                fastest = min(one[0] for one in found["turn"])
                rows.append(
                    (
                        title,
                        length,
                        clock["bare"],
                        clock["durable"] - clock["bare"],
                        work["durable"] - work["bare"],
                        work["unreported"] - work["bare"],
                        clock["turn"],
                        fastest,
                        work["turn"],
                        work["replay"],
                        f"{stored / _TURNS / 1024:.1f} KB",
                    )
                )
    head = (
        "turns",
        "turns of 2 KB behind it",
        "bare, ms a turn",
        "durable more",
        "CPU more",
        "CPU more without a report",
        "the turn's leaf",
        "its fastest",
        "its CPU",
        "its CPU when replayed",
        "records a turn",
    )
    return table(head, rows)


async def _measure(stage: Stage, length: int, tools: Sequence[Any], name: str) -> dict[str, list[Clock]]:
    adapter = stage.adapter
    assert adapter.at_once is not None
    found: dict[str, list[Clock]] = {}
    asked = _Asked()
    options, question = adapter.at_once(asked, length, tools)
    await adapter.bare({**options, **adapter.unlimited}, question)
    found["bare"] = asked.passed()
    for way, keywords in _WAYS.items():
        asked = _Asked()
        options, question = adapter.at_once(asked, length, tools)
        with _turns_timed() as spent:
            await stage.attempt(_body(adapter, options, question, keywords), f"{name}-{way}")
        found[way] = asked.passed()
        if way == "durable":
            found["turn"] = spent[_WARM:]
    asked = _Asked()
    options, question = adapter.at_once(asked, length, tools)
    with _turns_timed() as spent:
        await stage.attempt(_body(adapter, options, question, {}), f"{name}-durable")
    assert not asked.passed(), "A replay asked the model."
    found["replay"] = spent[_WARM:]
    return found


def _body(adapter: Adapter, options: Any, question: Any, keywords: dict[str, object]) -> Callable[[], Awaitable[None]]:
    async def body() -> None:
        await adapter.run_agent(question, **options, **adapter.unlimited, **keywords)

    return body
