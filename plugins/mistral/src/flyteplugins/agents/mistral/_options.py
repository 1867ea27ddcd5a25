"""The keywords of `run_agent`, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import Approval, CommonOptions

if TYPE_CHECKING:
    from mistralai.client import Mistral
    from mistralai.client.models import CompletionArgs
    from mistralai.client.utils import RetryConfig

__all__ = ["AgentOptions", "RunOptions"]


class RunOptions(CommonOptions, total=False):
    """What applies to a pre-built agent as well. `run_agent` says what each means."""

    approval: Approval | None
    tools: Sequence[Any]
    max_turns: int | None
    streaming: bool | None
    server_state: bool
    conversation_id: str | None
    agent_version: str | int | None
    completion_args: CompletionArgs | Mapping[str, Any] | None
    guardrails: Sequence[Any] | None
    metadata: Mapping[str, Any] | None
    client: Mistral | None
    server_url: str | None
    api_key_env_var: str
    timeout_ms: int | None
    retries: RetryConfig | None
    http_headers: Mapping[str, str] | None


class AgentOptions(RunOptions, total=False):
    """What an agent is built from, besides its output type."""

    model: str | None
    instructions: str | None
    name: str | None
    agent_id: str | None
