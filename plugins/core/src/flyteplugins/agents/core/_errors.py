"""The errors of the runtime itself, and what an error means for the attempt."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import flyte.errors

if TYPE_CHECKING:
    from ._result import AgentResult

__all__ = [
    "AgentError",
    "ApprovalExpiredError",
    "ApprovalPendingError",
    "ErrorClass",
    "MemoryUnavailableError",
    "RecordError",
    "error_chain",
]


class ErrorClass(enum.Enum):
    """What is to be done about an exception of an SDK."""

    RETRY_IN_PLACE = "retry in place"
    """The SDK's client retries it by itself; if it still gets out, the attempt is retried."""
    RETRY_ATTEMPT = "retry the attempt"
    """Another attempt may succeed: it passes as it is, and Flyte's retries apply."""
    FAIL_NOW = "fail now"
    """Another attempt would end the same way: it becomes `flyte.errors.NonRecoverableError`."""


class AgentError(flyte.errors.NonRecoverableError):
    """An agent run ended in a way that another attempt would not change.

    The SDK's own exception is its `__cause__`.
    """

    def __init__(self, message: str, code: str = "NonRecoverableError") -> None:
        super().__init__(message, code)


class RecordError(AgentError):
    """A stored record cannot be read back: another format's version, or damage.

    The message names the record. Nothing was asked again in its place: move the record away to have it asked again.
    """


class ApprovalPendingError(AgentError):
    """A person has to be asked, and nobody is there: the run has no answer yet.

    Attributes:
        pending: What waits, as `<action> sha256:<digest of the arguments>`.
        result: What `run_agent(..., full_result=True)` returns instead; `None` outside of an agent run.
    """

    CODE = "ApprovalPending"

    def __init__(self, message: str, pending: tuple[str, ...] = ()) -> None:
        super().__init__(message, self.CODE)
        self.pending = pending
        self.result: AgentResult[Any] | None = None


class ApprovalExpiredError(AgentError):
    """Nobody answered in time, and the approval's `on_timeout` is `"raise"`.

    Attributes:
        action: What was asked about.
        digest: SHA-256 of its canonical arguments, in hexadecimal.
    """

    def __init__(self, action: str, digest: str) -> None:
        super().__init__(f"Nobody decided about {action} (SHA-256 {digest}) in time, and its on_timeout is 'raise'.")
        self.action = action
        self.digest = digest


class MemoryUnavailableError(AgentError):
    """No storage could be found for a memory key, and the caller asked for an error in that case."""


def error_chain(error: BaseException, *, context: bool = False) -> Iterator[BaseException]:
    """Yield an exception, what it was raised from, and the members of groups, each once.

    Args:
        error: The exception.
        context: Whether to go on to what was being handled when it was raised, which need not be its cause.
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting.append(current.__cause__)
        if context:
            waiting.append(current.__context__)
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
