"""The agent that a run starts with: built from arguments, the caller's own run context, or an agent on the server."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

from mistralai.client.models import Agent, CompletionArgs, Function, FunctionTool, GuardrailConfig
from mistralai.client.models.conversationrequest import ConversationRequestTool
from mistralai.extra.run.context import RunContext
from mistralai.extra.run.tools import RunMCPTool
from pydantic import TypeAdapter

from flyteplugins.agents.core import AgentTool, Approval, as_agent_tool, tool_list

from ._function_tools import LocalTool, McpTool
from ._mcp import McpConnection, is_mcp_client
from ._output import OutputFormat
from ._tool import tool as make_tool

__all__ = ["DEFAULT_MODEL", "DEFAULT_NAME", "BuiltAgent", "build_agent"]

DEFAULT_NAME = "flyte-agent"
DEFAULT_MODEL = "mistral-large-latest"

_TOOL_MODELS: tuple[type, ...] = get_args(get_args(ConversationRequestTool)[0])
_TOOL: TypeAdapter[Any] = TypeAdapter(ConversationRequestTool)
_GUARDRAILS: TypeAdapter[list[GuardrailConfig]] = TypeAdapter(list[GuardrailConfig])


@dataclass(frozen=True)
class BuiltAgent:
    """What a run is made with.

    Attributes:
        name: The agent run's name.
        model: The model's name; `None` with an agent of the server's.
        agent_id: The agent on the server.
        agent_version: Which version of it.
        instructions: The system text.
        completion_args: The SDK's completion arguments, without the format of the answer.
        guardrails: The SDK's guardrails.
        output: The format of the answer.
        tools: Tools that run here, by name.
        hosted: Tools that the server runs.
        servers: MCP servers whose tools are added.
        conversation_id: A conversation on the server that the run continues.
    """

    name: str = DEFAULT_NAME
    model: str | None = None
    agent_id: str | None = None
    agent_version: str | int | None = None
    instructions: str | None = None
    completion_args: CompletionArgs | None = None
    guardrails: Sequence[GuardrailConfig] | None = None
    output: OutputFormat | None = None
    tools: Mapping[str, LocalTool | McpTool] = field(default_factory=dict)
    hosted: Sequence[Any] = ()
    servers: Sequence[McpConnection] = ()
    conversation_id: str | None = None

    def configuration(self) -> dict[str, object]:
        """What tells an agent run from one of the same name and input, as far as it is known before the first turn."""
        values: dict[str, object] = {
            "model": self.model,
            "agent_id": self.agent_id,
            "agent_version": self.agent_version,
            "instructions": self.instructions,
            "tools": sorted(self.tools) + [tool.type for tool in self.hosted],
            "mcp": [server.name for server in self.servers],
            "output_type": self.output.model.__qualname__ if self.output is not None else None,
            "conversation_id": self.conversation_id,
        }
        return {name: value for name, value in values.items() if value is not None}

    def settings(self) -> CompletionArgs | None:
        """The completion arguments, with the format of the answer. The caller's own object stays as it is."""
        if self.output is None:
            return self.completion_args
        own = self.completion_args.model_copy(deep=True) if self.completion_args is not None else CompletionArgs()
        own.response_format = self.output.response_format()
        return own


def build_agent(
    *,
    agent: Agent | RunContext | None,
    tools: Sequence[Any],
    model: str | None,
    instructions: str | None,
    name: str | None,
    output_type: Any,
    agent_id: str | None,
    agent_version: str | int | None,
    conversation_id: str | None,
    completion_args: CompletionArgs | Mapping[str, Any] | None,
    guardrails: Sequence[Any] | None,
    approval: Approval | None = None,
) -> BuiltAgent:
    """Put together what a run is made with.

    Args:
        agent: An agent on the server, or a run context with tools. Excludes what it has itself.
        tools: Tasks, callables, tools, the SDK's own tools and MCP clients to add.
        model: The model's name.
        instructions: The system text.
        name: The agent run's name.
        output_type: The type of the answer.
        agent_id: An agent on the server.
        agent_version: Which version of it.
        conversation_id: A conversation on the server to continue.
        completion_args: The SDK's completion arguments.
        guardrails: The SDK's guardrails.
        approval: How a person is asked about functions of a run context that require a confirmation.

    Raises:
        ValueError: Arguments exclude each other, or two tools have one name.
        TypeError: An argument, or one of the tools, is of the wrong type.
    """
    built = BuiltAgent(
        name=name if name is not None else DEFAULT_NAME,
        model=model,
        agent_id=agent_id,
        agent_version=agent_version,
        instructions=instructions,
        completion_args=_completion_args(completion_args),
        guardrails=_GUARDRAILS.validate_python(guardrails) if guardrails else None,
        output=OutputFormat.of(output_type),
        conversation_id=conversation_id,
    )
    if isinstance(agent, Agent):
        given = {
            "model": model,
            "instructions": instructions,
            "name": name,
            "output_type": output_type,
            "agent_id": agent_id,
        }
        _refuse(
            "agent",
            given,
            "which the agent on the server has itself",
            "Change the agent, or give model= instead of it.",
        )
        built = replace(built, name=agent.name, agent_id=agent.id)
    elif isinstance(agent, RunContext):
        built = _from_context(
            built, agent, {"model": model, "output_type": output_type, "agent_id": agent_id}, approval
        )
    elif agent is not None:
        raise TypeError(f"agent is a {type(agent).__qualname__}; give a mistralai.client.models.Agent or a RunContext.")
    built = _with_tools(built, tools)
    if built.conversation_id is not None:
        given = {"model": model, "instructions": instructions, "agent": agent if isinstance(agent, Agent) else None}
        given |= {"agent_id": agent_id, "agent_version": agent_version, "guardrails": guardrails}
        _refuse(
            "conversation_id", given, "which a conversation keeps from its start", "Leave them out, or start a new one."
        )
        if built.hosted:
            kinds = ", ".join(tool.type for tool in built.hosted)
            raise ValueError(
                f"tools has {kinds} in it, and a conversation keeps its tools from its start. Start a new one."
            )
        # The SDK's runner needs a model, or an agent; neither is sent.
        return replace(built, model=DEFAULT_MODEL) if built.agent_id is None and built.model is None else built
    if built.agent_id is not None:
        _refuse("agent_id", {"model": built.model}, "which the agent has itself", "Give one of them.")
        return built
    if agent_version is not None:
        raise ValueError("run_agent was given agent_version= without an agent. Give agent_id= as well.")
    return replace(built, model=built.model or DEFAULT_MODEL)


def _refuse(argument: str, given: Mapping[str, object], why: str, instead: str) -> None:
    clash = [name for name, value in given.items() if value is not None]
    if clash:
        raise ValueError(f"run_agent was given {argument}= together with {', '.join(clash)}, {why}. {instead}")


def _completion_args(given: CompletionArgs | Mapping[str, Any] | None) -> CompletionArgs | None:
    if given is None or isinstance(given, CompletionArgs):
        return given
    return CompletionArgs.model_validate(dict(given))


def _from_context(
    built: BuiltAgent, context: RunContext, given: Mapping[str, object], approval: Approval | None
) -> BuiltAgent:
    _refuse("agent", given, "which the run context has itself", "Set them on the RunContext.")
    if built.conversation_id is not None and context.conversation_id is not None:
        raise ValueError("run_agent was given conversation_id=, which the run context has itself. Give one of them.")
    tools: dict[str, LocalTool | McpTool] = {}
    connections: dict[int, McpConnection] = {}
    for name, entry in context._callable_tools.items():
        if isinstance(entry, RunMCPTool):
            client = entry.mcp_client
            connection = connections.setdefault(id(client), McpConnection(client, connected=True))
            tools[name] = McpTool(entry.tool, connection, confirm=context.requires_confirmation(name))
            continue
        function = getattr(entry, "awaitable", None) or getattr(entry, "callable", None)
        agent_tool = _agent_tool(function) or _agent_tool(make_tool(cast("Callable[..., Any]", function)))
        if agent_tool.name != name:
            agent_tool = _agent_tool(make_tool(cast("Callable[..., Any]", function), name=name))
        confirmed_tool: AgentTool | None = None
        if context.requires_confirmation(name) and agent_tool.approval is None:
            confirmed_tool = agent_tool
            agent_tool = as_agent_tool(
                make_tool(cast("Callable[..., Any]", function), name=name), requires_approval=approval or True
            )
        tools[name] = LocalTool(copy.deepcopy(entry.tool), agent_tool, confirmed_tool)
    return replace(
        built,
        model=context.model,
        agent_id=context.agent_id,
        output=OutputFormat.of(context.output_format),
        tools=tools,
        conversation_id=built.conversation_id or context.conversation_id,
    )


def _with_tools(built: BuiltAgent, tools: Iterable[Any]) -> BuiltAgent:
    local = dict(built.tools)
    hosted: list[Any] = list(built.hosted)
    servers: list[McpConnection] = list(built.servers)
    for item in tool_list(tools):
        if isinstance(item, Mapping):
            item = _TOOL.validate_python(item)
        if isinstance(item, FunctionTool):
            raise TypeError(
                f"tools has the declaration of a function {item.function.name!r} in it, and nothing that runs it. Give the "
                "function itself."
            )
        if isinstance(item, (Agent, RunContext)):
            raise TypeError(
                f"tools has a {type(item).__name__} in it. Give it as agent=; agents on the server hand over by themselves."
            )
        agent_tool: Any = _agent_tool(item)
        if agent_tool is None and isinstance(item, _TOOL_MODELS):
            hosted.append(item)
            continue
        if agent_tool is None and is_mcp_client(item):
            servers.append(McpConnection(item))
            continue
        if agent_tool is None:  # a task or a callable; anything else is a TypeError that says so
            agent_tool = _agent_tool(make_tool(item))
        if agent_tool.name in local:
            raise ValueError(f"tools has two tools named {agent_tool.name!r}. Rename one: tool(..., name='...').")
        local[agent_tool.name] = LocalTool(_declaration(agent_tool), agent_tool)
    return replace(built, tools=local, hosted=hosted, servers=servers)


def _agent_tool(value: object) -> Any:
    """The `AgentTool` behind one of our tools; `None` behind anything else."""
    return getattr(value, "__agent_tool__", None)


def _declaration(agent_tool: AgentTool) -> FunctionTool:
    schema = agent_tool.schema
    return FunctionTool(
        function=Function(
            name=agent_tool.name, description=schema.description, parameters=schema.parameters, strict=schema.strict
        )
    )
