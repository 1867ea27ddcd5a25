"""The keywords of `run_agent`, for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import Approval, CommonOptions

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import SystemMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.store.base import BaseStore
    from langgraph.types import Checkpointer

    from langchain.agents.middleware import AgentMiddleware

__all__ = ["AgentOptions", "RunOptions"]


class RunOptions(CommonOptions, total=False):
    """What applies to a pre-built graph as well. `run_agent` says what each means."""

    approval: Approval | None
    stream: bool
    config: RunnableConfig | None
    context: Any
    checkpointer: Checkpointer
    store: BaseStore | None


class AgentOptions(RunOptions, total=False):
    """What an agent is built from, besides its output type."""

    tools: Sequence[Any]
    model: str | BaseChatModel | None
    instructions: str | SystemMessage | None
    name: str | None
    middleware: Sequence[AgentMiddleware[Any, Any]]
    response_format: Any
    state_schema: Any
    context_schema: Any
    interrupt_before: list[str] | None
    interrupt_after: list[str] | None
    debug: bool
    cache: Any
    transformers: Any
    subagents: Sequence[Any]
    skills: list[str]
    memory: list[str]
    permissions: list[Any]
    backend: Any
    interrupt_on: dict[str, Any]
