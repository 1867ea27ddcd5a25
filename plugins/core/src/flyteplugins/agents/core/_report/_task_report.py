"""The report file of one attempt of a task, which its agent runs share: when it is written, and how large it gets."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import flyte
import flyte.report

from .._scope import TaskScope
from .._storage import Folder
from ._attempts import Attempt, AttemptStore, Slot
from ._page import MARK
from ._schedule import Schedule, now

if TYPE_CHECKING:
    from flyte.report._report import Report, Tab

    from ._run_report import RunReport

__all__ = ["TaskReport"]

logger = logging.getLogger("flyteplugins.agents")

_STATE = "flyteplugins.agents.report"  # our entry in TaskContext.data, which each attempt gets anew

MAX_BYTES = 950_000
"""How large all tabs of agent runs may get together, so that the file is below 1 MB with what Flyte puts around them."""

LIVE_BYTES = 100_000
"""How large the tab of an agent run may get while it works, since it is written again and again."""

LEAST_BYTES = 16_000
"""What every tab may have, however many there are."""


class TaskReport:
    """The report of one attempt of a task.

    Args:
        scope: The task.

    Attributes:
        kept: How many reports of earlier attempts are kept.
    """

    def __init__(self, scope: TaskScope) -> None:
        context = flyte.ctx()
        self.kept = 0
        self._report: Report = context.report
        self._output = Folder.at(context.output_path)
        self._store = AttemptStore(scope.folder, scope.action)
        self._runs: list[RunReport] = []
        self._schedule = Schedule(began=now())
        self._lock = threading.Lock()
        self._looked = False
        self._context = contextvars.copy_context()  # the task's own, whatever leaf an event comes from

    @classmethod
    def of(cls, scope: TaskScope) -> TaskReport:
        """The report of the task that runs now, in this attempt of it.

        Args:
            scope: That task.
        """
        data: dict[str, Any] = flyte.ctx().data
        report: TaskReport | None = data.get(_STATE)
        if report is None:
            report = data.setdefault(_STATE, cls(scope))  # one operation, so that threads agree
        return report

    @property
    def reports(self) -> str:
        """Where reports of earlier attempts are kept: a path or a URL."""
        return self._store.reports

    def add(self, run: RunReport, title: str) -> tuple[Tab, int]:
        """Open a tab for an agent run.

        Args:
            run: The agent run's report.
            title: The tab's title, if no other tab has it.

        Returns:
            The tab, and the agent run's index, which no other one of this report has.
        """
        free, number = title, 1
        while free in self._report.tabs:
            number += 1
            free = f"{title} ({number})"
        self._runs.append(run)
        return self._report.get_tab(free), len(self._runs) - 1

    def find(self, run: str) -> RunReport | None:
        """The report of an agent run of this attempt, by its id."""
        return next((report for report in self._runs if run and report.id == run), None)

    async def begin(self, run: str, attempt: Attempt) -> Slot | None:
        """Store that an attempt of an agent run began, and learn what earlier ones did.

        Args:
            run: The agent run's id.
            attempt: This attempt's summary; it is given its number.

        Returns:
            The place of its summary, or `None` where nothing can be stored, which is logged.
        """
        try:
            async with self._alone():
                if not self._looked:
                    self.kept = await self._store.keep_report(self._output, MARK)
                    self._looked = True
                return await self._store.begin(run, attempt)
        except Exception:  # a report is no reason to lose an agent's work
            logger.exception("What the attempts of agent run %s do cannot be kept", run)
            attempt.number = 0
            return None

    @property
    def seconds_to_next(self) -> float:
        """How long it is until the report should be written again, if there is something new; negative if overdue."""
        return self._schedule.due - now()

    @property
    def busy(self) -> bool:
        """Whether it is being written."""
        return self._lock.locked()

    def write_task(self, run: RunReport) -> asyncio.Task[None]:
        """Begin to write the report, in the task's own context.

        Args:
            run: The agent run that has something to say; others that do are in it as well.
        """
        return asyncio.get_running_loop().create_task(self._write(run), context=self._context.copy())

    async def _write(self, run: RunReport) -> None:
        async with self._alone():
            # Agent runs in other threads change while we look: they render themselves when they write.
            for changed in [
                other for other in self._runs if other is run or (other.changed and other.loop is run.loop)
            ]:
                await self._store_summary(changed)
                self._render(changed)
            self._fit()
            try:
                await flyte.report.flush.aio()
            except Exception:  # a report that cannot be written is no reason to lose an agent's work
                logger.exception("The report of agent run %r could not be written", run.name)
            size = sum(len(part) for tab in self._report.tabs.values() for part in tab.content)
            self._schedule.wrote(size)

    async def _store_summary(self, run: RunReport) -> None:
        summary = run.summary()
        if summary is None:
            return
        try:
            await self._store.update(*summary)
        except Exception:  # as above
            logger.exception("What this attempt of agent run %r does could not be stored", run.name)

    def _render(self, run: RunReport, budget: int = MAX_BYTES) -> None:
        try:
            run.render(min(budget, LIVE_BYTES) if run.running else budget)
        except Exception:  # as above
            logger.exception("The report of agent run %r could not be rendered", run.name)

    def _fit(self) -> None:
        """Where all tabs together are too large, render large ones anew that will not change any more."""
        share = max(MAX_BYTES // len(self._runs), LEAST_BYTES)
        for run in self._runs:
            if sum(other.size for other in self._runs) <= MAX_BYTES:
                return
            if run.size > share and not run.running:
                self._render(run, share)

    @contextlib.asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Be the only one that writes. Agent runs of one task may be in several threads, each with a loop of its own."""
        while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 - asyncio's own locks belong to one loop
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            self._lock.release()
