"""The capability table of the docs, generated from what adapters declare."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ._adapter import Adapter
from ._capabilities import Capability

__all__ = ["BEGIN", "END", "capability_table", "load_adapters", "with_table"]

BEGIN = "<!-- capabilities -->"
END = "<!-- /capabilities -->"


def load_adapters(files: Iterable[Path]) -> list[Adapter]:
    """Load the adapters that files declare, in the order of the files."""
    found: list[Adapter] = []
    for file in files:
        name = f"declaration_{file.parent.parent.name}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise ValueError(f"{file} is not a Python file.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        mine = [value for value in vars(module).values() if isinstance(value, Adapter)]
        if not mine:
            raise ValueError(f"{file} declares no adapter: it has no value of the type Adapter.")
        found += mine
    return found


def capability_table(adapters: Sequence[Adapter]) -> str:
    """Write the table: a row for each capability that an adapter says something about, a column for each adapter."""
    lines = [f"| | {' | '.join(adapter.title for adapter in adapters)} |", f"|---{'|---' * len(adapters)}|"]
    for one in Capability:
        if not any(one in adapter.capabilities or one in adapter.absent for adapter in adapters):
            continue
        cells = [
            adapter.capabilities.get(one) or (f"no: {adapter.absent[one]}" if one in adapter.absent else "")
            for adapter in adapters
        ]
        lines.append(f"| {one.sentence} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(text: str, table: str, begin: str = BEGIN, end: str = END) -> str:
    """Put a table between its marks.

    Args:
        text: The page.
        table: The table.
        begin: The mark before it; that of the capabilities by default.
        end: The mark behind it.

    Raises:
        ValueError: The text has no marks.
    """
    before, found_begin, rest = text.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"There is no place for the table: put {begin} and {end} on lines of their own.")
    return f"{before}{begin}\n{table}\n{end}{after}"
