"""Print what things cost beside what they are compared with.

python -m flyteplugins.agents.conformance.benchmarks --rounds 9
python -m flyteplugins.agents.conformance.benchmarks --only turns plugins/*/tests/test_conformance.py
python -m flyteplugins.agents.conformance.benchmarks plugins/openai/tests/test_conformance.py --table conformance/README.md
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import functools
import importlib.metadata
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter
from flyteplugins.agents.conformance.kit._table import load_adapters, with_table
from flyteplugins.agents.conformance.reference.declaration import PARROT

from ._between import between
from ._imports import PACKAGE, imports
from ._imports import adapters as installed
from ._plane import traces, workers
from ._storage import memories, reports
from ._turns import turns

BEGIN, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"

_MOST_OVER_LOOPBACK = 40
"""The most turns that a real SDK's run takes over loopback: its client may write all of a conversation down anew in each turn, so
that the time a run takes grows with the square of its length."""


def main() -> int:
    """Read the command line, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m flyteplugins.agents.conformance.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=9, help="how often each thing is measured (9)")
    parser.add_argument("--turns", type=int, nargs="+", default=[10, 100, 400], help="lengths of runs (10 100 400)")
    parser.add_argument("--only", choices=["imports", "turns", "between", "memories", "reports", "workers", "traces"])
    parser.add_argument("--table", type=Path, help=f"write the tables between {BEGIN} and {END} of this page as well")
    parser.add_argument(
        "files", type=Path, nargs="*", help="declarations of adapters to measure beside the reference adapter"
    )
    options = parser.parse_args()
    rounds = max(1, options.rounds)
    logging.getLogger("flyte").setLevel(logging.ERROR)
    # an SDK that does next to nothing by itself shows best what the rest costs; one that is real may cost seconds by itself
    adapters = [PARROT, *load_adapters(options.files)]
    today = datetime.datetime.now(datetime.UTC).date()
    about = f"flyte {importlib.metadata.version('flyte')}, Python {sys.version.split()[0]}, {os.cpu_count()} cores; {today}."
    parts = [about]
    print(about)
    for name, title, measure in _measurements(adapters, tuple(options.turns), rounds):
        if options.only in (None, name):
            parts.append(f"**{title}**\n\n{measure()}")
            print(f"\n{parts[-1]}", flush=True)
    if options.table is not None:
        page = with_table(options.table.read_text(), "\n\n".join(["", *parts, ""]), BEGIN, END)
        options.table.write_text(page)
    return 0


def _measurements(
    adapters: list[Adapter], lengths: tuple[int, ...], rounds: int
) -> list[tuple[str, str, Callable[[], str]]]:
    few = max(1, rounds // 3)
    each: list[tuple[str, str, Callable[[], str]]] = []
    for one in adapters:
        real = one is not PARROT
        over = tuple(sorted({min(length, _MOST_OVER_LOOPBACK) for length in lengths})) if real else lengths
        whole = functools.partial(turns, one, over, few)
        each.append(("turns", f"Whole runs over loopback: {one.title}", functools.partial(_run, whole)))
        if one.at_once is not None:
            title = f"Turns with a model that answers at once: {one.title}"
            each.append(("between", title, functools.partial(_run, functools.partial(between, one, lengths, few))))
    return [
        ("imports", "Imports", lambda: imports(rounds)),
        *each,
        ("memories", "Memories", lambda: asyncio.run(memories((10_000, 10_000_000), rounds))),
        ("reports", "Reports", lambda: asyncio.run(reports((10, 1000)))),
        ("workers", "Workers", lambda: workers([f"{PACKAGE}.{one}" for one in installed()], rounds)),
        ("traces", "Trace records on the plane", lambda: traces(50 * rounds)),
    ]


def _run(measure: Callable[[], Coroutine[Any, Any, str]]) -> str:
    return asyncio.run(measure())


if __name__ == "__main__":
    sys.exit(main())
