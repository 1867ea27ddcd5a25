"""The keywords of `run_agent`, for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import Approval, CommonOptions

if TYPE_CHECKING:
    from agents import Model, RunConfig, RunErrorHandlers, RunHooks, Session

__all__ = ["AgentOptions", "RunOptions"]


class RunOptions(CommonOptions, total=False):
    """What applies to a pre-built agent as well. `run_agent` says what each means."""

    approval: Approval | None
    tools: Sequence[Any]
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
