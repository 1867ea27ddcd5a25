"""The page of one agent run: what is shown of its timeline, so that it fits into a number of bytes, and its HTML."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ._assets import SCRIPT, STYLE, TEMPLATE
from ._attempts import Attempt
from ._chart import HEIGHT, chart
from ._texts import Excerpt, duration, money, size
from ._timeline import Block, State, Step, Steps, Timeline
from ._totals import Totals

if TYPE_CHECKING:
    import jinja2

__all__ = ["MARK", "Page", "render"]

MARK = '<section class="fla"'
"""What every page begins with."""

LINE = 120
"""Bytes of the one excerpt of a step that is shown as a line, without its texts."""

FEW = 40
"""Up to this many steps, all are shown open."""

GROUP = 50
"""Steps of a long timeline that are folded into one."""

BONUS = 1000
"""Bytes of a text in one of the last steps, or of one that failed, where others show less."""

STEP_BYTES = 230
"""What a step takes besides names and texts, roughly."""

BLOCK_BYTES = 60
"""What a text takes besides itself, roughly."""


@dataclass(frozen=True)
class Fit:
    """How much of a timeline is shown.

    Attributes:
        steps: How many steps of one list; `None` for all of them.
        text: How many bytes of one text.
        last: How many of the last steps of a list, and all that failed, show up to `BONUS` bytes of one text.
    """

    steps: int | None
    text: int
    last: int = 0


FITS = (
    *(Fit(None, text, last=50) for text in (8000, 3000, 1000, 300)),
    *(Fit(None, LINE, last) for last in (400, 200, 100, 50, 20)),
    *(Fit(steps, LINE, 20) for steps in (1500, 800, 400, 200, 100)),
    *(Fit(steps, LINE) for steps in (100, 50, 20, 8)),
)
"""What is tried in turn until the page is small enough: first less of each text, then fewer steps."""


@dataclass(frozen=True)
class Page:
    """What a page is made of.

    Attributes:
        name: The agent run's name.
        index: Its index among the agent runs of the task's attempt.
        timeline: What happened.
        attempt: This attempt.
        earlier: Earlier attempts of the same agent run.
        unread: How many more there were.
        kept: How many reports of earlier attempts of the task are kept.
        reports: Where they are.
    """

    name: str
    index: int
    timeline: Timeline
    attempt: Attempt
    earlier: Sequence[Attempt] = ()
    unread: int = 0
    kept: int = 0
    reports: str = ""

    def spent(self, told: int) -> int:
        """Tokens that all attempts spent, as far as known.

        Args:
            told: What they said. One that was killed may have said less than it paid, but what it paid is replayed now.
        """
        usage = self.timeline.totals.usage
        return max(told, usage.fresh.total_tokens + usage.replayed.total_tokens)

    def paid(self, told: float) -> float:
        """US dollars that all attempts paid, as far as known.

        Args:
            told: What they said.
        """
        return max(told, (self.timeline.totals.cost or 0.0) + (self.timeline.totals.replayed_cost or 0.0))


@dataclass
class Line:
    """A step as the template shows it, or a gap where steps are left out.

    Attributes:
        step: The step; `None` for a gap.
        left_out: How many steps a gap stands for.
        facts: Facts about it, in words.
        excerpt: The beginning of what was said, where that is folded or left out.
        blocks: What was said.
        open: Whether that is shown at once.
        lines: The steps inside of it.
    """

    step: Step | None = None
    left_out: int = 0
    facts: list[str] = field(default_factory=list)
    excerpt: str = ""
    blocks: list[tuple[Block, Excerpt]] = field(default_factory=list)
    open: bool = False
    lines: list[Line] = field(default_factory=list)


@dataclass
class Group:
    """Steps of a long timeline that are folded together.

    Attributes:
        title: Which ones.
        facts: Facts about them, in words.
        open: Whether they are shown at once.
        lines: The steps.
        left_out: Never any: a gap stands between groups.
    """

    title: str
    facts: list[str]
    open: bool
    lines: list[Line]
    left_out: int = 0


def render(page: Page, budget: int, *, first: int = 0) -> tuple[str, int]:
    """Write a page.

    Everything that was said is escaped. A page without any step takes about 15,000 bytes, most of them for style and script.

    Args:
        page: What it is made of.
        budget: How many bytes it may take.
        first: Which of `FITS` to try first; a timeline that grows need not try again what did not fit when it was smaller.

    Returns:
        The page, and which of `FITS` it has.
    """
    html = ""
    for index, fit in enumerate(FITS[first:], first):
        if fit is not FITS[-1] and _estimate(page.timeline.steps, fit) > budget:
            continue
        html = _html(page, fit)
        if len(html.encode()) <= budget:
            return html, index
    return html, len(FITS) - 1


def _html(page: Page, fit: Fit) -> str:
    timeline = page.timeline
    lines = list(_lines(timeline.steps, fit, page))
    values: dict[str, object] = {
        "page": page,
        "timeline": timeline,
        "totals": timeline.totals,
        "usage": timeline.totals.usage,
        "input": _top(timeline.input, fit),
        "answer": _top(timeline.answer, fit),
        "groups": _groups(lines, timeline.totals) if len(lines) > GROUP + GROUP // 2 else [],
        "lines": lines,
        "chart": chart(timeline.totals.turns),
        "height": HEIGHT,
        "attempts": [*page.earlier, page.attempt] if page.earlier or page.unread else [],
        "mixed": timeline.totals.replayed_turns or timeline.totals.replayed_tool_calls,
        "updated": time.time(),
    }
    return _template().render(values)


def _top(block: Block | None, fit: Fit) -> tuple[Block, Excerpt] | None:
    return None if block is None else (block, block.text.excerpt(max(min(fit.text, 4000), BONUS)))


def _visible(steps: Steps, fit: Fit) -> Iterable[Step | int]:
    """The steps that are shown, and numbers of steps that are left out between them."""
    kept = list(steps)
    shown = set(range(len(kept)))
    if fit.steps is not None and len(kept) > fit.steps:
        head = fit.steps // 4
        tail = len(kept) - (fit.steps - head)
        failed = [index for index in range(head, tail) if kept[index].state == "failed"]
        shown = {*range(head), *failed[-head:], *range(tail, len(kept))}
    left_out = 0
    for index, step in enumerate(kept):
        if index == len(steps.first):
            left_out += steps.let_go
        if index not in shown:
            left_out += step.count()
            continue
        if left_out:
            yield left_out
            left_out = 0
        yield step


def _limit(step: Step, fit: Fit, *, late: bool) -> int:
    more = fit.last and (late or step.state in ("failed", "open"))
    return max(fit.text, BONUS) if more else fit.text


def _estimate(steps: Steps, fit: Fit, *, recent: bool | None = None) -> int:
    total = 0
    shown = list(_visible(steps, fit))
    for index, step in enumerate(shown):
        if isinstance(step, int):
            continue
        late = index >= len(shown) - fit.last if recent is None else recent  # inside of a step, as that step is
        limit = _limit(step, fit, late=late)
        texts = [min(block.text.weight, limit) + BLOCK_BYTES for block in step.blocks]
        total += STEP_BYTES + len(step.title) + (min(sum(texts), LINE) if limit <= LINE else sum(texts) + LINE)
        total += _estimate(step.steps, fit, recent=late)
    return total


def _lines(steps: Steps, fit: Fit, page: Page, *, recent: bool | None = None) -> Iterable[Line]:
    shown = list(_visible(steps, fit))
    few = page.timeline.totals.tool_calls + len(page.timeline.totals.turns) <= FEW and fit.text > LINE
    for index, step in enumerate(shown):
        if isinstance(step, int):
            yield Line(left_out=step)
            continue
        late = index >= len(shown) - fit.last if recent is None else recent  # inside of a step, as that step is
        limit = _limit(step, fit, late=late)
        line = Line(step, facts=_facts(step, page))
        if limit > LINE:
            line.blocks = [(block, block.text.excerpt(limit)) for block in step.blocks]
        line.open = bool(line.blocks) and (
            few or step.state in ("failed", "open") or (index == len(shown) - 1 and recent is None)
        )
        if not line.open:
            line.excerpt = _excerpt(step)
        line.lines = list(_lines(step.steps, fit, page, recent=late))
        yield line


def _excerpt(step: Step) -> str:
    """One line of what was said: a call's arguments and what came of it, or the text that says most."""
    said = {block.label: block.text for block in step.blocks if block.text.kept}
    outcome = said.get("error") or said.get("result") or next(iter(said.values()), None)
    parts = [said["arguments"]] if "arguments" in said and said["arguments"] is not outcome else []
    parts += [outcome] if outcome else []
    limit = LINE // len(parts) if parts else 0
    excerpts = [text.excerpt(limit) for text in parts]
    return " → ".join(" ".join(excerpt.text.split()) + ("…" if excerpt.more else "") for excerpt in excerpts)


def _facts(step: Step, page: Page) -> list[str]:
    facts = [f"+{duration(step.at)}"]
    if step.agent and step.agent != page.name:
        facts.insert(0, step.agent)
    if step.seconds:
        facts.append(f"took {duration(step.seconds)}")
    return [*facts, *(fact for fact in step.facts if fact)]


def _groups(lines: list[Line], totals: Totals) -> list[Group | Line]:
    """Fold a long timeline by its turns' numbers; what is left out stays outside of the folds."""
    parts: list[list[Line] | Line] = []
    current = -1
    for line in lines:
        if line.step is None:
            parts.append(line)
            current = -1
            continue
        part = parts[-1] if parts else None
        number = (line.step.number - 1) // GROUP if line.step.number else current
        if isinstance(part, list) and number == current and len(part) < 4 * GROUP:
            part.append(line)
        else:
            parts.append([line])
            current = number
    last = parts[-1] if parts else None
    return [_group(part, totals, open_=part is last) if isinstance(part, list) else part for part in parts]


def _group(lines: list[Line], totals: Totals, *, open_: bool) -> Group:
    steps = [line.step for line in lines if line.step is not None]
    turns = [step for step in steps if step.number]
    inner = [inside for step in steps for inside in (step, *step.steps)]
    tools = sum(step.kind == "Tool" for step in inner)
    failed = sum(step.state == "failed" for step in inner)
    tokens = sum(totals.turns[turn.number - 1].input + totals.turns[turn.number - 1].output for turn in turns)
    facts = [f"{tools} tool call{'' if tools == 1 else 's'}"] if tools else []
    facts += [f"{tokens:,} tokens"] if tokens else []
    facts += [f"{failed} failed"] if failed else []
    facts += ["replayed"] if turns and all(step.replayed for step in turns) else []
    title = f"{len(steps)} steps"
    if turns:
        first, last = turns[0].number, turns[-1].number
        title = f"Turn {first}" if first == last else f"Turns {first} to {last}"
    return Group(title, facts, open_, lines)


_STATES: dict[State, str] = {"running": "running", "failed": "failed", "open": "no outcome", "done": ""}


def _told(number: int, ended_from_outside: bool) -> str:
    """A number of an attempt. One that was ended from outside had no time to tell the last of it."""
    if not ended_from_outside:
        return f"{number:,}"
    return f"at least {number:,}" if number else "unknown"


@functools.cache
def _template() -> jinja2.Template:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, optimized=True
    )
    environment.filters |= {
        "duration": duration,
        "size": size,
        "moment": lambda seconds: time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)),
        "money": money,
        "count": lambda number, thing: f"{number:,} {thing}{'' if number == 1 else 's'}",
        "number": lambda number: f"{number:,}",
        "told": _told,
        "state": _STATES.__getitem__,
    }
    environment.globals |= {
        "style": Markup(STYLE),
        "script": Markup(SCRIPT),
    }
    return environment.from_string(TEMPLATE)
