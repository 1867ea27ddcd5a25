"""The report tab: what an agent run did and why, and what it cost. A consumer of the event stream."""

from __future__ import annotations

from ._run_report import RunReport

__all__ = ["RunReport"]
