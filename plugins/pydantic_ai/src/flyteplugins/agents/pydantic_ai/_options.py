"""The keywords of `run_agent`, for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from flyteplugins.agents.core import Approval, CommonOptions

if TYPE_CHECKING:
    from pydantic_ai import DeferredToolResults, UsageLimits
    from pydantic_ai.agent import EventStreamHandler
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model
    from pydantic_ai.toolsets import AbstractToolset
    from pydantic_ai.usage import RunUsage

__all__ = ["AgentOptions", "RunOptions", "SDKOptions"]


class SDKOptions(TypedDict, total=False):
    """What `Agent.run` takes and `run_agent` hands on. The SDK says what each means."""

    message_history: Sequence[ModelMessage] | None
    deferred_tool_results: DeferredToolResults | None
    conversation_id: str | None
    run_id: str | None
    deps: Any
    model_settings: Any
    usage_limits: UsageLimits | None
    usage: RunUsage | None
    metadata: Any
    retries: Any
    timeout: float | None
    cancellation_token: Any
    toolsets: Sequence[AbstractToolset[Any]] | None
    event_stream_handler: EventStreamHandler[Any] | None
    capabilities: Sequence[Any] | None
    workspace: Any


class RunOptions(SDKOptions, CommonOptions, total=False):
    """What applies to a pre-built agent as well. `run_agent` says what each means."""

    approval: Approval | None
    tools: Sequence[Any]


class AgentOptions(RunOptions, total=False):
    """What an agent is built from, besides its output type."""

    model: str | Model | None
    instructions: Any
    name: str | None
