"""The report tab: what an agent run did, and what it cost. A consumer of the event stream."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
import json
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import flyte
import flyte.report

from ._events import (
    Event,
    HandOff,
    MemoryNotice,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from ._usage import RunUsage

if TYPE_CHECKING:
    import jinja2
    from flyte.report._report import Tab

__all__ = ["RunReport"]

logger = logging.getLogger("flyteplugins.agents")

MAX_TEXT = 2000
"""Characters of one text that are shown; the rest is counted."""

MAX_ROWS = (100, 300)
"""How many rows are shown from the start and from the end of a long run."""

FLUSH_SECONDS = 5.0
"""While the agent works, the report is written at most this often."""


@dataclass
class _Row:
    kind: str
    agent: str
    title: str
    replayed: bool = False
    seconds: float = 0.0
    tokens: str = ""
    error: bool = False
    blocks: list[tuple[str, str]] = field(default_factory=list)


class RunReport:
    """Collects the rows of one agent run and renders them into one tab of the task's report.

    Args:
        tab: The tab, this run's own.
        contents: Whether what was said is shown; else its hash and size.
    """

    def __init__(self, tab: Tab, name: str, *, contents: bool) -> None:
        self._tab = tab
        self._name = name
        self._contents = contents
        self._rows: list[_Row] = []
        self._usage = RunUsage()
        self._outcome = "running"
        self._calls: dict[str, ToolCallStarted] = {}
        self._flushed = time.monotonic()

    @classmethod
    def begin(cls, name: str, *, contents: bool) -> RunReport | None:
        """Open a tab for an agent run of the current task, or `None` where the task has no report."""
        report = flyte.report.current_report()
        title, number = name, 1
        while title in report.tabs:
            number += 1
            title = f"{name} ({number})"
        return cls(report.get_tab(title), name, contents=contents)

    async def __call__(self, event: Event) -> None:
        """Take an event in, and write the report if that was not done lately."""
        if isinstance(event, TextDelta):
            return
        self._take(event)
        if time.monotonic() - self._flushed > FLUSH_SECONDS:
            await self.flush()

    def _take(self, event: Event) -> None:
        row = _Row(event.type, event.agent, event.type.capitalize(), event.replayed)
        match event:
            case RunStarted():
                row.title = "Resumed" if event.resumed else "Started"
                row.blocks = [self._block("input", event.input)]
            case TurnFinished():
                self._usage = self._usage.adding(event.usage, replayed=event.replayed)
                row.title = f"Turn · {event.model}"
                row.seconds = event.seconds
                row.tokens = f"{event.usage.input_tokens} in, {event.usage.output_tokens} out"
                row.error = event.error is not None
                row.blocks = [self._block("answer", event.text)] if event.text else []
                if event.tool_calls:
                    row.blocks.append(("calls", ", ".join(event.tool_calls)))
                if event.error:
                    row.blocks.append(self._block("error", event.error))
            case ToolCallStarted():
                self._calls[event.call] = event
                return
            case ToolCallFinished():
                started = self._calls.pop(event.call, None)
                row.title = f"Tool · {event.name}"
                row.seconds = event.seconds
                row.error = event.error is not None
                arguments = json.dumps(started.arguments, ensure_ascii=False) if started else ""
                row.blocks = [self._block("arguments", arguments), self._block("result", event.result)]
            case HandOff():
                row.title = f"Hand-off · {event.source} → {event.target}"
            case MemoryNotice():
                row.title = "Memory"
                row.blocks = [("note", event.message)]
            case RunFinished():
                self._outcome = "failed" if event.error else "finished"
                row.title = self._outcome.capitalize()
                row.seconds = event.seconds
                row.error = event.error is not None
                row.blocks = [self._block("error", event.error)] if event.error else [self._block("answer", event.text)]
        self._rows.append(row)

    def _block(self, label: str, text: str) -> tuple[str, str]:
        if not self._contents:
            data = text.encode("utf-8", "backslashreplace")
            return label, f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}"
        if len(text) > MAX_TEXT:
            return label, f"{text[:MAX_TEXT]} … ({len(text) - MAX_TEXT} more characters)"
        return label, text

    def render(self) -> str:
        """The tab's content as HTML. Everything that was said is escaped."""
        head, tail = MAX_ROWS
        rows, left_out = self._rows, 0
        if len(rows) > head + tail:
            rows, left_out = [*rows[:head], *rows[-tail:]], len(rows) - head - tail
        values: dict[str, Any] = {
            "name": self._name,
            "outcome": self._outcome,
            "rows": rows,
            "head": head,
            "left_out": left_out,
            "usage": self._usage,
        }
        html = _template().render(values)
        return html.encode("utf-8", "backslashreplace").decode()  # a lone surrogate would stop the report's upload

    async def flush(self) -> None:
        """Write the report.

        A report that cannot be written is logged, and is no reason to lose an agent's work.
        """
        self._flushed = time.monotonic()
        try:
            self._tab.replace(self.render())
            await flyte.report.flush.aio()
        except Exception:  # see above
            logger.exception("The report of agent run %r could not be written", self._name)


@functools.cache
def _template() -> jinja2.Template:
    import jinja2

    source = importlib.resources.files(__package__).joinpath("report.html.jinja").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
