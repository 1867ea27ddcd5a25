"""The agent that a run starts with: built from arguments, or the caller's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from agents import Agent, AgentOutputSchemaBase, Tool
from agents.mcp import MCPServer

from flyteplugins.agents.core import NativeTool, tool_list

from ._tool import tool as make_tool

__all__ = ["DEFAULT_MODEL", "DEFAULT_NAME", "build_agent", "configuration"]

DEFAULT_NAME = "flyte-agent"
DEFAULT_MODEL = "gpt-4.1"

_TOOL_TYPES: tuple[type, ...] = tuple(getattr(kind, "__origin__", kind) for kind in get_args(Tool))


def build_agent(
    *,
    agent: Agent[Any] | None,
    tools: Sequence[Any],
    model: Any,
    instructions: Any,
    name: str | None,
    output_type: Any,
) -> Agent[Any]:
    """Build the agent, or a copy of the caller's with more tools.

    Args:
        agent: A pre-built agent; excludes the arguments below `tools`.
        tools: Tasks, callables, tools, SDK tools and MCP servers to add.
        model: A model's name, or a model.
        instructions: The system text, or a function that makes it.
        name: The agent's name.
        output_type: The type of the answer.

    Raises:
        ValueError: `agent` is given together with an argument that it has itself.
        TypeError: An argument, or one of the tools, is of the wrong type.
    """
    functions, servers = _sort_tools(tools)
    if agent is None:
        return Agent(
            name=name if name is not None else DEFAULT_NAME,
            model=model if model is not None else DEFAULT_MODEL,
            instructions=instructions,
            tools=functions,
            mcp_servers=servers,
            output_type=output_type,
        )
    if not isinstance(agent, Agent):
        raise TypeError(f"agent is a {type(agent).__qualname__}; give an agents.Agent.")
    given = {"model": model, "instructions": instructions, "name": name, "output_type": output_type}
    clash = [argument for argument, value in given.items() if value is not None]
    if clash:
        raise ValueError(
            f"run_agent was given agent= together with {', '.join(clash)}, which the agent has itself. "
            f"Set them on a copy: agent.clone({', '.join(f'{argument}=...' for argument in clash)})."
        )
    if not functions and not servers:
        return agent
    return agent.clone(tools=[*agent.tools, *functions], mcp_servers=[*agent.mcp_servers, *servers])


def _sort_tools(tools: Sequence[Any]) -> tuple[list[Any], list[MCPServer]]:
    functions: list[Any] = []
    servers: list[MCPServer] = []
    for item in tool_list(tools):
        if isinstance(item, MCPServer):
            servers.append(item)
        elif isinstance(item, (NativeTool, *_TOOL_TYPES)):
            functions.append(item)
        elif isinstance(item, Agent):
            raise TypeError(f"tools has the agent {item.name!r} in it. Use agent.as_tool(tool_name, tool_description).")
        else:
            functions.append(make_tool(item))  # a task or a callable; anything else is a TypeError that says so
    return functions, servers


def configuration(agent: Agent[Any]) -> dict[str, object]:
    """What tells an agent run from one of the same name and input, as far as it is known before the first turn."""
    model = agent.model
    values: dict[str, object] = {
        "model": model if isinstance(model, str) or model is None else type(model).__qualname__,
        "instructions": agent.instructions if isinstance(agent.instructions, str) else None,
        "tools": [getattr(tool, "name", type(tool).__qualname__) for tool in agent.tools],
        "handoffs": [getattr(item, "name", None) or getattr(item, "agent_name", "") for item in agent.handoffs],
        "output_type": _type_name(agent.output_type),
    }
    return {name: value for name, value in values.items() if value is not None}


def _type_name(output_type: Any) -> str | None:
    if output_type is None:
        return None
    if isinstance(output_type, type):
        return f"{output_type.__module__}.{output_type.__qualname__}"
    if isinstance(output_type, AgentOutputSchemaBase):
        return output_type.name()
    return str(output_type)
