"""The report of one agent run: takes its events in, and renders them into one tab of the task's report."""

from __future__ import annotations

import asyncio
import time

from .._events import Event, RunStarted
from .._scope import current_scope
from ._attempts import Attempt, Slot
from ._page import Page, render
from ._schedule import now
from ._task_report import TaskReport
from ._texts import plain
from ._timeline import Step, Timeline

__all__ = ["RunReport"]

MAX_TITLE = 40
"""Characters of a tab's title."""


class RunReport:
    """Collects what happens in one agent run, and renders it into one tab of the task's report.

    Args:
        task: The report of the task that runs, which agent runs share.
        name: The agent run's name.
        contents: Whether what was said is shown; else its hash and size.

    Attributes:
        name: The agent run's name.
        timeline: What happened.
        changed: Whether something happened since it was rendered last.
        size: How large it was then, in bytes.
        loop: The event loop that it lives in, once it began.
        id: The agent run's id, once it began.
    """

    def __init__(self, task: TaskReport, name: str, *, contents: bool) -> None:
        self.name = plain(name.replace("\n", " "))
        self.timeline = Timeline(contents=contents)
        self.changed = False
        self.size = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.id = ""
        self._task = task
        self._began = now()
        self._attempt = Attempt(0, time.time(), contents=contents)
        self._slot: Slot | None = None
        self._outer: tuple[RunReport, Step] | None = None  # where this run is shown in the one that it is a part of
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._fit = 0  # which of the ways to fit into a number of bytes the last live page has
        self._tab, self._index = task.add(self, self.name[:MAX_TITLE])

    @classmethod
    def begin(cls, name: str, *, contents: bool) -> RunReport | None:
        """Open a tab for an agent run of the current task, or `None` outside of one.

        Args:
            name: The agent run's name.
            contents: Whether what was said is shown; else its hash and size.
        """
        scope = current_scope()
        return cls(TaskReport.of(scope), name, contents=contents) if scope is not None else None

    @property
    def running(self) -> bool:
        """Whether it has no outcome yet."""
        return self.timeline.outcome == "running"

    async def __call__(self, event: Event) -> None:
        """Take an event in, and write the report if that was not done lately."""
        at = now() - self._began
        self.changed |= self.timeline.take(event, at)
        if isinstance(event, RunStarted) and self.loop is None:
            await self._begin(event)
        if self._outer is not None and not self.running:
            outer, step = self._outer
            step.state = "done" if self.timeline.outcome == "finished" else "failed"
            step.seconds = at
            outer.changed = True
        if self.running and self.changed:
            if self._task.seconds_to_next <= 0 and not self._task.busy:
                await self._task.write_task(self)
            else:
                self._arm()

    async def _begin(self, event: RunStarted) -> None:
        self.id = event.run
        self.loop = asyncio.get_running_loop()
        outer = self._task.find(event.parent_run)
        if outer is not None:
            step = outer.timeline.nested(self.name, event.parent, now() - outer._began)
            self._outer = (outer, step)
        self._slot = await self._task.begin(event.run, self._attempt)

    def _arm(self) -> None:
        """Have the report written when that is due, should nothing happen for long."""
        if self._timer is None:
            delay = max(self._task.seconds_to_next, 0.05)
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if not (self.running and self.changed):
            return
        if self._task.seconds_to_next <= 0 and not self._task.busy:
            self._writing = self._task.write_task(self)
        else:
            self._arm()

    async def flush(self) -> None:
        """Write the report now. What cannot be written is logged, and is no reason to lose an agent's work."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._task.write_task(self)

    def summary(self) -> tuple[Slot, Attempt] | None:
        """What to store of this attempt for later ones, or `None` where there is no place for it."""
        timeline, attempt = self.timeline, self._attempt
        totals = timeline.totals
        attempt.outcome = timeline.outcome
        attempt.seconds = now() - self._began if timeline.seconds is None else timeline.seconds
        attempt.fresh, attempt.replayed = totals.usage.fresh, totals.usage.replayed
        attempt.turns, attempt.replayed_turns = len(totals.turns), totals.replayed_turns
        attempt.tool_calls, attempt.failed_tool_calls = totals.tool_calls, totals.failed_tool_calls
        attempt.cost, attempt.unpriced = totals.cost, totals.unpriced
        if timeline.outcome == "failed" and timeline.answer is not None:
            answer = timeline.answer
            attempt.error = answer.text.excerpt(500).text if attempt.contents else answer.note
        return None if self._slot is None else (self._slot, attempt)

    def render(self, budget: int) -> None:
        """Render the tab's content.

        Args:
            budget: How many bytes it may take.
        """
        self.summary()
        page = Page(
            name=self.name,
            index=self._index,
            timeline=self.timeline,
            attempt=self._attempt,
            earlier=self._slot.earlier if self._slot else [],
            unread=self._slot.unread if self._slot else 0,
            kept=self._task.kept,
            reports=self._task.reports,
        )
        html, self._fit = render(page, budget, first=self._fit if self.running else 0)
        self.size = len(html.encode())
        self.changed = False
        self._tab.replace(html)
