"""The keywords of `run_agent`, for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from flyteplugins.agents.core import Budget, EventSink, OnToolError, Retention

if TYPE_CHECKING:
    from agents import Model, RunConfig, RunErrorHandlers, RunHooks, Session

__all__ = ["AgentOptions", "RunOptions"]


class RunOptions(TypedDict, total=False):
    """What applies to a pre-built agent as well. `run_agent` says what each means."""

    tools: Sequence[Any]
    durable: bool
    observability: bool | Literal["structure"]
    memory_key: str | None
    memory_required: bool
    memory_retention: Retention | None
    budget: Budget | None
    on_event: EventSink | None
    on_tool_error: OnToolError
    max_concurrent_tools: int | None
    max_turns: int | None
    context: Any
    run_config: RunConfig | None
    hooks: RunHooks[Any] | None
    error_handlers: RunErrorHandlers[Any] | None
    session: Session | None
    previous_response_id: str | None
    auto_previous_response_id: bool
    conversation_id: str | None


class AgentOptions(RunOptions, total=False):
    """What an agent is built from, besides its output type."""

    model: str | Model | None
    instructions: Any
    name: str | None
