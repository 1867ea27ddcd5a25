"""The report tab: what an agent run did and why, and what it cost. A consumer of the event stream."""

from __future__ import annotations

from ._rows import ReportTimeline, flush_report
from ._run_report import RunReport

__all__ = ["ReportTimeline", "RunReport", "flush_report"]
