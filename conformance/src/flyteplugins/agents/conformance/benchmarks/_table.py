"""A table in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["table"]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table; numbers have two places."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
