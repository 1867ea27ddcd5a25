"""Print what things cost beside what they are compared with.

python -m flyteplugins.agents.conformance.benchmarks --rounds 9
python -m flyteplugins.agents.conformance.benchmarks --only turns plugins/*/tests/test_conformance.py
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from flyteplugins.agents.conformance.kit import Adapter
from flyteplugins.agents.conformance.kit._table import load_adapters
from flyteplugins.agents.conformance.reference.declaration import PARROT

from ._imports import PACKAGE, imports
from ._imports import adapters as installed
from ._plane import traces, workers
from ._storage import memories, reports
from ._turns import turns


def main() -> int:
    """Read the command line, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m flyteplugins.agents.conformance.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=9, help="how often each thing is measured (9)")
    parser.add_argument("--turns", type=int, nargs="+", default=[10, 100, 400], help="lengths of runs (10 100 400)")
    parser.add_argument("--only", choices=["imports", "turns", "memories", "reports", "workers", "traces"])
    parser.add_argument(
        "files", type=Path, nargs="*", help="declarations of adapters; of the reference adapter by default"
    )
    options = parser.parse_args()
    rounds = max(1, options.rounds)
    logging.getLogger("flyte").setLevel(logging.ERROR)
    # an SDK that does next to nothing by itself shows best what the rest costs; one that is real may cost seconds by itself
    adapters = load_adapters(options.files) or [PARROT]
    print(f"flyte {importlib.metadata.version('flyte')}, Python {sys.version.split()[0]}; {rounds} rounds.")
    for name, title, measure in _measurements(adapters, tuple(options.turns), rounds):
        if options.only in (None, name):
            print(f"\n{title}\n\n{measure()}", flush=True)
    return 0


def _measurements(
    adapters: list[Adapter], lengths: tuple[int, ...], rounds: int
) -> list[tuple[str, str, Callable[[], str]]]:
    few = max(1, rounds // 3)
    each: list[tuple[str, str, Callable[[], str]]] = [
        ("turns", f"Turns with {one.title}", lambda one=one: asyncio.run(turns(one, lengths, few)))  # type: ignore[misc]
        for one in adapters
    ]
    return [
        ("imports", "Imports", lambda: imports(rounds)),
        *each,
        ("memories", "Memories", lambda: asyncio.run(memories((10_000, 10_000_000), rounds))),
        ("reports", "Reports", lambda: asyncio.run(reports((10, 1000)))),
        ("workers", "Workers", lambda: workers([f"{PACKAGE}.{one}" for one in installed()], rounds)),
        ("traces", "Trace records on the plane", lambda: traces(50 * rounds)),
    ]


if __name__ == "__main__":
    sys.exit(main())
