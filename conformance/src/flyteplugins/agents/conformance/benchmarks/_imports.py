"""What it costs to import the adapters."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import flyteplugins.agents as namespace

__all__ = ["imports"]

PACKAGE = "flyteplugins.agents"


def adapters() -> list[str]:
    """Name the adapters that are installed, by their modules below `flyteplugins.agents`."""
    folders = [path for root in namespace.__path__ for path in Path(root).iterdir()]
    found = {path.name for path in folders if (path / "_run.py").exists() and path.name != "core"}
    return sorted(found)


def import_seconds(modules: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Time imports, each in a process of its own, in turns: what disturbs the machine disturbs all of them.

    Args:
        modules: What to import. An empty name stands for the interpreter's own start, which is taken off the others.
        rounds: How many processes per module.

    Returns:
        Seconds by module, one for each round.
    """
    took: dict[str, list[float]] = {module: [] for module in modules}
    for _ in range(rounds):
        for module in modules:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", _statement(module)], check=True)
            took[module].append(time.perf_counter() - began)
    return took


def _statement(module: str) -> str:
    if not module:
        return "pass"
    if module.startswith(f"{PACKAGE}.") and module != f"{PACKAGE}.core":
        return f"from {module} import run_agent, tool"  # an adapter's module loads little until these are asked for
    return f"import {module}"


def imports(rounds: int) -> str:
    """Compare the import of core and of each adapter's `tool` and `run_agent` with that of Flyte alone."""
    names = ["", "flyte", f"{PACKAGE}.core", *(f"{PACKAGE}.{adapter}" for adapter in adapters())]
    took = import_seconds(names, rounds)
    start = statistics.median(took[""])
    medians = {name: statistics.median(took[name]) - start for name in names if name}
    lines = ["| import | seconds | times Flyte's |", "|---|---|---|"]
    lines += [f"| `{name}` | {seconds:.2f} | {seconds / medians['flyte']:.2f} |" for name, seconds in medians.items()]
    return "\n".join(lines)
