"""The agent that a run starts with: built from arguments, or the caller's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flyteplugins.agents.core import NativeTool, tool_list
from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from ._tool import tool as make_tool

__all__ = ["DEFAULT_MODEL", "DEFAULT_NAME", "build_agent", "configuration", "sort_tools"]

DEFAULT_NAME = "flyte-agent"
DEFAULT_MODEL = "openai:gpt-4.1"


def build_agent(
    *, agent: AbstractAgent[Any, Any] | None, model: Any, instructions: Any, name: str | None, output_type: Any
) -> AbstractAgent[Any, Any]:
    """Build the agent, or return the caller's.

    Args:
        agent: A pre-built agent; excludes the other arguments.
        model: A model's name, or a model.
        instructions: The instructions, or a function that makes them.
        name: The agent's name.
        output_type: The type of the answer, in any form that the SDK takes.

    Raises:
        ValueError: `agent` is given together with an argument that it has itself.
        TypeError: An argument is of the wrong type.
    """
    if agent is None:
        return Agent(
            model if model is not None else DEFAULT_MODEL,
            name=name if name is not None else DEFAULT_NAME,
            instructions=instructions,
            output_type=output_type if output_type is not None else str,
            defer_model_check=True,
        )
    if not isinstance(agent, AbstractAgent):
        raise TypeError(f"agent is a {type(agent).__qualname__}; give a pydantic_ai.Agent.")
    given = {"model": model, "instructions": instructions, "name": name, "output_type": output_type}
    clash = [argument for argument, value in given.items() if value is not None]
    if clash:
        raise ValueError(
            f"run_agent was given agent= together with {', '.join(clash)}, which the agent has itself. Build the agent with "
            "them, or put `with agent.override(...):` around the call."
        )
    return agent


def sort_tools(tools: Sequence[Any]) -> list[AbstractToolset[Any]]:
    """Make toolsets of tools: one of all functions and tasks, and the SDK's toolsets (MCP servers among them) as they are.

    Args:
        tools: Tasks, callables, tools, the SDK's tools and toolsets.

    Raises:
        TypeError: One of them is none of these.
    """
    functions: list[Any] = []
    toolsets: list[AbstractToolset[Any]] = []
    for item in tool_list(tools):
        if isinstance(item, AbstractToolset):
            toolsets.append(item)
        elif isinstance(item, (NativeTool, Tool)):
            functions.append(item)
        elif isinstance(item, AbstractAgent):
            raise TypeError(
                f"tools has the agent {item.name!r} in it. Make a tool of a function that runs it: "
                "`async def ask(question: str) -> str: return (await agent.run(question)).output`."
            )
        else:
            functions.append(make_tool(item))  # a task or a callable; anything else is a TypeError that says so
    if functions:
        toolsets.insert(0, FunctionToolset(functions))
    return toolsets


def configuration(
    agent: AbstractAgent[Any, Any], toolsets: Sequence[AbstractToolset[Any]], output_type: Any
) -> dict[str, object]:
    """What tells an agent run from one of the same name and input, as far as it is known before the first turn."""
    model = agent.model
    values: dict[str, object] = {
        "model": model if isinstance(model, str) or model is None else _model(model),
        "tools": [name for toolset in (*agent.toolsets, *toolsets) for name in _tool_names(toolset)],
        "output_type": repr(output_type if output_type is not None else getattr(agent, "output_type", None)),
    }
    return {name: value for name, value in values.items() if value is not None}


def _model(model: Any) -> str:
    name = model.model_name if isinstance(model, Model) else ""
    return f"{type(model).__qualname__} {name}".strip()


def _tool_names(toolset: AbstractToolset[Any]) -> list[str]:
    if isinstance(toolset, FunctionToolset):
        return list(toolset.tools)
    return [toolset.id or type(toolset).__qualname__]
