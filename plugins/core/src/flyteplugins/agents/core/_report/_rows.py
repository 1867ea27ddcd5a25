"""Rows of a report that a program writes by itself, under the names that programs already use."""

from __future__ import annotations

import logging

import flyte
import flyte.report

__all__ = ["ReportTimeline", "flush_report"]

logger = logging.getLogger("flyteplugins.agents")


class ReportTimeline(flyte.report.Timeline):
    """Flyte's timeline widget in a tab `Agent`, for rows of one's own.

    It has `heading(text)` and `row(icon=, label=, meta=, detail=, error=)`. An agent run's own tab
    needs none of it. Outside of a task with `report=True` it writes nothing.

    Args:
        tab_name: The tab's name.
    """

    def __init__(self, tab_name: str = "Agent") -> None:
        super().__init__(tab_name)


async def flush_report() -> None:
    """Write the current task's report now. Outside of a task there is none, and what cannot be written is logged."""
    if flyte.ctx().report is None:
        return
    try:
        await flyte.report.flush.aio()
    except Exception:  # a report is no reason to lose an agent's work
        logger.exception("The report could not be written")
