"""The SDK's own telemetry: spans of what was replayed say so."""

from __future__ import annotations

from opentelemetry import trace

__all__ = ["REPLAYED", "mark_replayed"]

REPLAYED = "flyteplugins.agents.replayed"
"""The attribute of the SDK's spans in which nothing was asked or done: an earlier attempt exported what was."""


def mark_replayed(span: trace.Span | None = None) -> None:
    """Mark a span of the SDK's.

    Args:
        span: The span; the one that is open by default.
    """
    (span if span is not None else trace.get_current_span()).set_attribute(REPLAYED, True)
