"""The keywords of `run_agent`, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import Approval, CommonOptions

if TYPE_CHECKING:
    from google.adk.agents import BaseAgent
    from google.adk.agents.llm_agent import InstructionProvider
    from google.adk.agents.run_config import RunConfig
    from google.adk.artifacts import BaseArtifactService
    from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
    from google.adk.code_executors import BaseCodeExecutor
    from google.adk.memory import BaseMemoryService
    from google.adk.models import BaseLlm
    from google.adk.planners import BasePlanner
    from google.adk.plugins import BasePlugin
    from google.adk.sessions import BaseSessionService
    from google.genai import types

__all__ = ["AgentOptions", "RunOptions"]


class RunOptions(CommonOptions, total=False):
    """What applies to a pre-built agent as well. `run_agent` says what each means."""

    approval: Approval | None
    tools: Sequence[Any]
    run_config: RunConfig | None
    max_llm_calls: int | None
    streaming: bool | None
    state: Mapping[str, Any] | None
    plugins: Sequence[BasePlugin]
    session_service: BaseSessionService | None
    session_id: str | None
    artifact_service: BaseArtifactService | None
    memory_service: BaseMemoryService | None
    credential_service: BaseCredentialService | None
    app_name: str
    user_id: str


class AgentOptions(RunOptions, total=False):
    """What an agent is built from, besides its output type."""

    model: str | BaseLlm | None
    instructions: str | InstructionProvider | None
    name: str | None
    description: str
    sub_agents: list[BaseAgent]
    planner: BasePlanner | None
    code_executor: BaseCodeExecutor | None
    generate_content_config: types.GenerateContentConfig | None
    before_model_callback: Any
    after_model_callback: Any
    on_model_error_callback: Any
    before_tool_callback: Any
    after_tool_callback: Any
    on_tool_error_callback: Any
    before_agent_callback: Any
    after_agent_callback: Any
    output_key: str | None
    static_instruction: Any
    global_instruction: Any
