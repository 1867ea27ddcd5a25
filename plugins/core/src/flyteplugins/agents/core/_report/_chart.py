"""The chart of tokens by turn: bars, as numbers that the template draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ._totals import TurnTokens

__all__ = ["HEIGHT", "Bar", "Chart", "chart"]

MAX_BARS = 100
"""More turns than this share bars, so that a bar stays wide enough to see on a phone."""

HEIGHT = 60
"""The chart's height in its own units; a bar is 10 wide, and 2 apart from the next one."""


@dataclass(frozen=True)
class Bar:
    """One turn, or some turns in a row.

    Attributes:
        x: Its left edge.
        output_y: The upper edge of its part for output tokens.
        output_height: The height of that part.
        input_y: The upper edge of its part for input tokens.
        input_height: The height of that part.
        replayed: Whether all of it was replayed.
        failed: Whether a turn of it failed.
        label: What it says, in words.
    """

    x: int
    output_y: float
    output_height: float
    input_y: float
    input_height: float
    replayed: bool
    failed: bool
    label: str


@dataclass(frozen=True)
class Chart:
    """The whole chart.

    Attributes:
        width: Its width in its own units.
        bars: Its bars.
        peak: The tokens of the highest bar.
        label: What it shows, in words.
        per_bar: How many turns a bar stands for.
    """

    width: int
    bars: list[Bar]
    peak: int
    label: str
    per_bar: int


def chart(turns: Sequence[TurnTokens]) -> Chart | None:
    """Lay the chart out, or `None` where there is nothing to compare.

    Args:
        turns: Every turn's tokens, in order.
    """
    if len(turns) < 2 or not any(turn.input or turn.output for turn in turns):
        return None
    per_bar = -(-len(turns) // MAX_BARS)
    groups = [turns[start : start + per_bar] for start in range(0, len(turns), per_bar)]
    sums = [(sum(turn.input for turn in group), sum(turn.output for turn in group)) for group in groups]
    peak = max(input_ + output for input_, output in sums)
    highest = max(range(len(sums)), key=lambda index: sum(sums[index]))
    bars = []
    for index, (group, (input_, output)) in enumerate(zip(groups, sums, strict=True)):
        total = round(HEIGHT * (input_ + output) / peak, 1)
        above = round(HEIGHT * output / peak, 1)
        replayed = all(turn.replayed for turn in group)
        failed = any(turn.failed for turn in group)
        name = _name(index, per_bar, len(turns))
        marks = f"{', replayed' if replayed else ''}{', failed' if failed else ''}"
        bars.append(
            Bar(
                x=index * 12 + 1,
                output_y=round(HEIGHT - total, 1),
                output_height=above,
                input_y=round(HEIGHT - total + above, 1),
                input_height=round(total - above, 1),
                replayed=replayed,
                failed=failed,
                label=f"{name}: {input_:,} in, {output:,} out{marks}",
            )
        )
    label = (
        f"Tokens by turn, {len(turns)} turns. The most is {peak:,}, in {_name(highest, per_bar, len(turns)).lower()}."
    )
    return Chart(width=len(bars) * 12, bars=bars, peak=peak, label=label, per_bar=per_bar)


def _name(index: int, per_bar: int, turns: int) -> str:
    first, last = index * per_bar + 1, min((index + 1) * per_bar, turns)
    return f"Turn {first}" if first == last else f"Turns {first} to {last}"
