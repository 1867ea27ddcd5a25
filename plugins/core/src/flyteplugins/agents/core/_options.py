"""The keywords that `run_agent` has in every adapter, for type checkers."""

from __future__ import annotations

from typing import Literal, TypedDict

from ._budget import Budget
from ._events import EventSink
from ._memory import Retention
from ._run import OnToolError

__all__ = ["CommonOptions"]


class CommonOptions(TypedDict, total=False):
    """What does not depend on the SDK. `run_agent` says what each means."""

    durable: bool
    observability: bool | Literal["structure"]
    memory_key: str | None
    memory_required: bool
    memory_retention: Retention | None
    budget: Budget | None
    on_event: EventSink | None
    on_tool_error: OnToolError
    max_concurrent_tools: int | None
