"""The conformance kit, on this adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter, Capability, ConformanceSuite, Options
from flyteplugins.agents.core import ErrorClass, render_result, tool_schema

MODEL = "claude-sonnet-5-5"
SERVER = "flyte_tools"


def model_object(name: str) -> Options:
    """The SDK has no model objects: a model is a name, here in the SDK's own options."""
    from claude_agent_sdk import ClaudeAgentOptions

    return {"model": None, "options": ClaudeAgentOptions(model=name)}


def native(function: Callable[..., Any]) -> Any:
    """A tool of the SDK's own."""
    from claude_agent_sdk import ToolAnnotations, tool

    schema = tool_schema(function)

    async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": render_result(function(**schema.validate(arguments)))}]}

    annotations = ToolAnnotations(readOnlyHint=True)  # else its calls run one after another
    return tool(schema.name, schema.description, dict(schema.parameters), annotations=annotations)(handler)


def agent(instructions: str, tools: Sequence[Any]) -> Options:
    """A definition holds names of tools only, so that the tools are beside it."""
    from claude_agent_sdk import AgentDefinition

    definition = AgentDefinition(description="built", prompt=instructions, model=MODEL)
    return {"agent": definition, "tools": [native(tool) if inspect.isfunction(tool) else tool for tool in tools]}


async def bare(options: Options, question: str) -> Any:
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query

    definition, tools = options["agent"], options["tools"]
    alone = ClaudeAgentOptions(
        model=definition.model,
        system_prompt=definition.prompt,
        mcp_servers={SERVER: create_sdk_mcp_server(SERVER, tools=tools)},
        allowed_tools=[f"mcp__{SERVER}__{tool.name}" for tool in tools],
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
    )
    results = [one async for one in query(prompt=question, options=alone) if isinstance(one, ResultMessage)]
    return results[-1]


def messages(result: Any) -> list[Any]:
    """The SDK's result has the last message only, and what Claude Code counted on the way there."""
    names = ("subtype", "result", "structured_output", "num_turns", "stop_reason", "usage")
    return [{name: getattr(result, name) for name in names}]


def temperature(value: float) -> Options:
    """The SDK has no temperature. How much effort the model is to make is a setting of each request."""
    from claude_agent_sdk import ClaudeAgentOptions

    return {"options": ClaudeAgentOptions(effort="low" if value < 0.5 else "high")}


def raises() -> set[type[BaseException]]:
    import claude_agent_sdk
    from claude_agent_sdk import _errors

    found = [*vars(claude_agent_sdk).values(), *vars(_errors).values()]
    kinds = {one for one in found if isinstance(one, type) and issubclass(one, BaseException)}
    return {one for one in kinds if not issubclass(one, Warning)}


def error_classes() -> Mapping[type[BaseException], ErrorClass]:
    from flyteplugins.agents.claude._errors import ERROR_CLASSES

    return ERROR_CLASSES


CLAUDE = Adapter(
    title="Claude Agent SDK",
    module="flyteplugins.agents.claude",
    sdk=("claude_agent_sdk",),
    distribution="claude-agent-sdk",
    model=MODEL,
    model_object=model_object,
    agent=agent,
    bare=bare,
    messages=messages,
    temperature=temperature,
    raises=raises,
    error_classes=error_classes,
    tool_prefix=f"mcp__{SERVER}__",
    startup=8.0,
    fields={"instructions": "system", "output type": "tools"},  # the answer of a type is a call of a tool
    golden=Path(__file__).parent / "golden",
    capabilities={
        Capability.MODELS: "names, sub-agents, a fallback model",
        Capability.AGENTS: "`AgentDefinition`, `ClaudeAgentOptions`",
        Capability.STREAMS: "with `on_event`",
        Capability.OUTPUT: "types",
        Capability.TASK_TOOLS: "yes",
        Capability.INLINE_TOOLS: "functions, `SdkMcpTool`, MCP servers",
        Capability.MEMORY: "`memory_key`",
        Capability.LIMITS: "yes",
        Capability.APPROVALS: "`requires_approval`, `can_use_tool`, hooks",
    },
    absent={
        Capability.BUILT_IN_TOOLS: "Claude Code runs them by itself; they are off, and turned on a retry makes their calls again",
        Capability.ANY_ENDPOINT: "with Bedrock, Vertex or Foundry the address of the API cannot be moved",
    },
)


class TestConformance(ConformanceSuite):
    adapter = CLAUDE
