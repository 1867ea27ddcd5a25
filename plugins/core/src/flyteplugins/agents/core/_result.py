"""What `run_agent(..., full_result=True)` returns."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from ._canonical import JSON
from ._usage import RunUsage

__all__ = ["AgentResult", "ToolCallRecord", "TurnRecord", "with_pending"]

OutputT = TypeVar("OutputT")
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class TurnRecord:
    """One turn of a finished run.

    Attributes:
        agent: The agent that asked.
        model: The model's name.
        text: The answer's text.
        tool_calls: Names of the tools that it called.
        input_tokens: Tokens of the request.
        output_tokens: Tokens of the answer.
        seconds: How long the model call took when it was made.
        replayed: Whether it was answered from a record.
        error: Why it failed, where it did.
        cost: US dollars that it cost when it was made; `None` where its price is unknown.
    """

    agent: str
    model: str
    text: str
    tool_calls: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    seconds: float
    replayed: bool
    error: str | None = None
    cost: float | None = None


@dataclass(frozen=True)
class ToolCallRecord:
    """One tool call of a finished run.

    Attributes:
        name: The tool's name.
        arguments: Its arguments, as JSON values.
        result: What the model was given.
        seconds: How long it took when it ran.
        replayed: Whether it was answered from a record.
        error: Why it failed, where it did.
    """

    name: str
    arguments: JSON
    result: str
    seconds: float
    replayed: bool
    error: str | None = None


@dataclass(frozen=True)
class AgentResult(Generic[OutputT]):
    """The outcome of an agent run.

    Attributes:
        output: The final answer: text, or an instance of `output_type`.
        text: The final answer as text.
        usage: Tokens and US dollars, with fresh and replayed turns apart.
        turns: Every turn, sub-agents' included, in the order in which they finished.
        tool_calls: Every tool call, in the order in which they finished.
        pending: Approvals that nobody has answered yet; the output is no answer while there are any.
        native: The SDK's own result. Not part of `as_dict`.
    """

    output: OutputT
    text: str
    usage: RunUsage = field(default_factory=RunUsage)
    turns: tuple[TurnRecord, ...] = ()
    tool_calls: tuple[ToolCallRecord, ...] = ()
    pending: tuple[str, ...] = ()
    native: Any = field(default=None, repr=False, compare=False)

    def as_dict(self) -> dict[str, JSON]:
        """The result as JSON values, without the SDK's own."""
        from ._canonical import jsonable

        values = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.name not in ("native", "usage")
        }
        values["usage"] = self.usage.as_dict()
        result = jsonable(values)
        assert isinstance(result, dict)
        return result


def with_pending(run_agent: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have an adapter's `run_agent` return the result of a run that waits for an approval, where the full result is asked for.

    Without `full_result=True` the `ApprovalPendingError` passes: what waits is never returned as if it were the answer.

    Args:
        run_agent: The adapter's coroutine function.
    """

    @functools.wraps(run_agent)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        from ._errors import ApprovalPendingError

        try:
            return await run_agent(*args, **kwargs)
        except ApprovalPendingError as error:
            if not kwargs.get("full_result") or error.result is None:
                raise
            return error.result  # type: ignore[return-value]  # an AgentResult is what full_result asks for

    return run
