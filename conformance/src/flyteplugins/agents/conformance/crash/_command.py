"""Kill an adapter's agent at every boundary, or at random ones.

python -m flyteplugins.agents.conformance.crash matrix openai --model gpt-4.1 --table README.md
python -m flyteplugins.agents.conformance.crash soak openai --model gpt-4.1 --minutes 5 --seed 1
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import multiprocessing
import random
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from flyteplugins.agents.conformance.faults import Fault
from flyteplugins.agents.conformance.local import ForkServer, LocalRuns
from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.conformance.plane import LocalPlane, Modes

from ._boundaries import BOUNDARIES
from ._dialogue import Dialogue
from ._places import LocalPlace, Place, PlanePlace
from ._suite import crash_at

COLUMNS = ("`flyte run --local`", "plane, traces not served", "plane, traces served")


@dataclass(frozen=True)
class Variant:
    """A way to run the dialogue.

    Attributes:
        name: Its name in the table.
        streamed: Whether somebody listens.
        memory: Whether it has a memory.
    """

    name: str
    streamed: bool
    memory: bool


VARIANTS = (Variant("plain", False, False), Variant("streamed", True, False), Variant("with a memory", False, True))


@contextmanager
def places(
    dialogue: Dialogue, preload: tuple[str, ...], columns: Sequence[str] = COLUMNS
) -> Iterator[dict[str, dict[bool, Place]]]:
    """Start everything that the dialogue can run on, by the column of the table, and by whether it is streamed.

    Args:
        dialogue: The dialogue.
        preload: Modules that processes have imported before they begin.
        columns: Which of the places.
    """
    dialogues = {streamed: replace(dialogue, streamed=streamed) for streamed in (False, True)}
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crash-")))

        def new(name: str) -> Path:
            path = folder / name
            path.mkdir()
            return path

        found: dict[str, dict[bool, Place]] = {}
        if COLUMNS[0] in columns:
            forks = [stack.enter_context(ForkServer(preload, hash_seed=seed)) for seed in (1, 2) if preload]
            runs = LocalRuns(new("home"), server.env(), forks)
            stack.callback(runs.remove)
            found[COLUMNS[0]] = {
                streamed: LocalPlace(one, runs, server, new(f"local-{streamed}")) for streamed, one in dialogues.items()
            }
        for column, served in zip(COLUMNS[1:], (False, True), strict=True):
            if column not in columns:
                continue
            modes = Modes(serve_traces=served)
            plane = LocalPlane(new(f"plane-{served}"), modes=modes, env=server.env(), preload=preload)
            stack.callback(plane.close)
            plane.start()
            found[column] = {
                streamed: PlanePlace(one, plane, server, new(f"program-{served}-{streamed}"))
                for streamed, one in dialogues.items()
            }
        yield found


def fill(dialogue: Dialogue, preload: tuple[str, ...], column: str) -> tuple[dict[str, str], int]:
    """Kill at every boundary in one place, in every variant.

    Returns:
        What came out, by boundary, and how many runs did not come out like an unbroken one.
    """
    cells: dict[str, str] = {}
    failures = 0
    with places(dialogue, preload, (column,)) as found:
        for variant in VARIANTS:
            place = found[column][variant.streamed]
            unbroken = place.run(memory=variant.memory)
            counts = place.boundaries()
            for boundary in BOUNDARIES:
                passed, total = 0, counts.get(boundary.name, 0)
                if not total and (variant.memory or "commit" not in boundary.name):
                    raise RuntimeError(
                        f"{column}, {variant.name}: no run reached {boundary.name}, so nothing is shown."
                    )
                for occurrence in range(1, total + 1):
                    try:
                        crash_at(place, unbroken, Fault(boundary.name, occurrence), memory=variant.memory)
                        passed += 1
                    except AssertionError as error:
                        print(f"{column}, {variant.name}: {error}", flush=True)
                failures += total - passed
                cell = f"{passed} of {total}" if total else "none"
                name = boundary.name
                cells[name] = f"{cells[name]} · {cell}" if name in cells else cell
                print(f"{name:14} {column:26} {variant.name:14} {cell}", flush=True)
    return cells, failures


def matrix(dialogue: Dialogue, preload: tuple[str, ...], table: Path | None, jobs: int) -> int:
    """Kill at every boundary, everywhere, in every variant; write the table, and return the failures."""
    # Processes, since a process talks to one plane; the planes first, which take longest.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        filled = {column: pool.submit(fill, dialogue, preload, column) for column in reversed(COLUMNS)}
        cells = {
            (boundary, column): cell for column, done in filled.items() for boundary, cell in done.result()[0].items()
        }
        failures = sum(done.result()[1] for done in filled.values())
    variants = " · ".join(variant.name for variant in VARIANTS)
    lines = [
        f"{dialogue.adapter}, {datetime.date.today():%Y-%m-%d}, flyte {importlib.metadata.version('flyte')}: runs that came out "
        f"like an unbroken one, of all places where that boundary is reached ({variants}).",
        "",
        f"| killed when | {' | '.join(COLUMNS)} |",
        "|---|---|---|---|",
        *(
            f"| {boundary.meaning} | {' | '.join(cells[boundary.name, column] for column in COLUMNS)} |"
            for boundary in BOUNDARIES
        ),
    ]
    text = "\n".join(lines)
    print(f"\n{text}\n{failures} failures")
    if table is not None:
        page = table.read_text()
        start, end = f"<!-- crash {dialogue.adapter} -->", f"<!-- /crash {dialogue.adapter} -->"
        if start not in page or end not in page:
            raise SystemExit(f"{table} has no {start} and {end} to put the table between.")
        pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        table.write_text(pattern.sub(lambda _: f"{start}\n{text}\n{end}", page))
    return failures


def soak(dialogue: Dialogue, preload: tuple[str, ...], minutes: float, seed: int) -> int:
    """Kill twice at random until the time is over, and return the failures."""
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    end = time.monotonic() + 60 * minutes
    failures = runs = 0
    with places(dialogue, preload) as found:
        run_on = {(column, streamed): place for column, by in found.items() for streamed, place in by.items()}
        unbroken = {where: place.run(memory=True) for where, place in run_on.items()}
        counts = {where: place.boundaries() for where, place in run_on.items()}
        while time.monotonic() < end:
            where = chance.choice(list(run_on))
            faults: set[Fault] = set()
            while len(faults) < 2:
                name = chance.choice(sorted(counts[where]))
                faults.add(Fault(name, chance.randint(1, counts[where][name])))
            runs += 1
            try:
                crash_at(run_on[where], unbroken[where], *sorted(faults, key=str), memory=True)
            except AssertionError as error:
                failures += 1
                column, streamed = where
                print(f"run {runs} on {column}{', streamed' if streamed else ''}: {error}", flush=True)
    print(f"{runs} runs, each killed twice; {failures} failures; seed {seed}")
    return failures


def main() -> int:
    """Read the command line, and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m flyteplugins.agents.conformance.crash", description=__doc__)
    parser.add_argument("what", choices=["matrix", "soak"])
    parser.add_argument("adapter", help="the adapter's module below flyteplugins.agents")
    parser.add_argument("--model", required=True, help="a model's name that the adapter sends to the offline server")
    parser.add_argument(
        "--volatile", default="", help="what the SDK writes into messages anew in each process: names, by comma"
    )
    parser.add_argument(
        "--preload",
        default="",
        help="modules that processes have imported before they begin, by comma: the SDK, to save time",
    )
    parser.add_argument("--table", type=Path, help="the page that gets the table, between its two marks")
    parser.add_argument("--jobs", type=int, default=2, help="places that the matrix kills in at once (2)")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None, help="makes the same choices again; random by default")
    options = parser.parse_args()
    preload = tuple(filter(None, options.preload.split(",")))
    volatile = frozenset(filter(None, options.volatile.split(",")))
    dialogue = Dialogue(options.adapter, model=options.model, volatile=volatile)
    if options.what == "matrix":
        return min(matrix(dialogue, preload, options.table, options.jobs), 1)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    return min(soak(dialogue, preload, options.minutes, seed), 1)
