"""What can go wrong between two users of one memory."""

from __future__ import annotations

from .._errors import RecordError

__all__ = ["MemoryConflictError", "MemoryDeletedError"]


class MemoryConflictError(RuntimeError):
    """Somebody else changed what a caller wanted to change, since the caller looked at it.

    Nothing was written. Read it again, and decide again. Unlike an `AgentError` it lets Flyte retry the attempt.
    """


class MemoryDeletedError(RecordError):
    """What a run started from was deleted meanwhile, by `MemoryStore.delete` or by a retention.

    It does not come back, so another attempt would end the same way. A new run starts from what is there now.
    """
