"""Who did what to a memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._entry import Writer

__all__ = ["AuditAction", "AuditEntry"]

AuditAction = Literal["append", "import", "compact", "remove", "write", "delete"]
"""`append`: a run added its messages; `import`: they come from Flyte's own store; `compact`: a summary stands in place of earlier
ones; `remove`: those before were removed for good; `write` and `delete`: a version of a path."""


@dataclass(frozen=True)
class AuditEntry:
    """One change of a memory. It is part of what was written, so that the two cannot disagree.

    Attributes:
        when: Seconds since the epoch, by the writer's clock.
        action: What was done.
        what: The transcript's name, or the path.
        number: Which segment of the transcript, from 0; or which version of the path, from 1. Of a compaction and a removal,
            before which segment.
        size: How many bytes the content has.
        sha256: The content's SHA-256 in hexadecimal; empty if the content was removed for good.
        writer: Which run, action and agent run did it.
        reason: Why, in the writer's words.
        removed: When the content was removed for good, in seconds since the epoch; `None` if it can be read.
    """

    when: float
    action: AuditAction
    what: str
    number: int
    size: int
    sha256: str
    writer: Writer
    reason: str = ""
    removed: float | None = None
