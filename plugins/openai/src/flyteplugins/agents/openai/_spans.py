"""What the SDK's tracing tells of an agent run, as an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flyteplugins.agents.core import Event

__all__ = ["SpanFinished"]


@dataclass(frozen=True, kw_only=True)
class SpanFinished(Event):
    """Something ended that the SDK's tracing tells of and no other event does: a guardrail, or a span of the program's own.

    Attributes:
        kind: The SDK's name for such spans: `guardrail`, `custom`, ...
        name: The span's name.
        seconds: How long it took.
        error: Why it failed, where it did. A guardrail that stopped the run did.
    """

    type: ClassVar[str] = "span finished"
    kind: str
    name: str
    seconds: float = 0.0
    error: str | None = None
