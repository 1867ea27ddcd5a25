"""The keywords of `run_agent`, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import CommonOptions

if TYPE_CHECKING:
    from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions

__all__ = ["AgentOptions", "RunOptions"]


class RunOptions(CommonOptions, total=False):
    """What applies to a pre-built agent as well. `run_agent` says what each means."""

    tools: Sequence[Any]
    options: ClaudeAgentOptions | None
    subagents: Mapping[str, AgentDefinition] | None
    max_turns: int | None
    server_name: str


class AgentOptions(RunOptions, total=False):
    """What an agent is built from, besides its output type."""

    model: str | None
    instructions: str | None
    name: str | None
