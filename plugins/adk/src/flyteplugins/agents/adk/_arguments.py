"""Arguments of functions that an agent has as tools: read as the types that the function names, as those of `tool`s are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from flyteplugins.agents.core import AgentTool, as_agent_tool

__all__ = ["read_arguments"]


def read_arguments(tool: BaseTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Read a call's arguments.

    Args:
        tool: The tool. A class of the caller's reads arguments in its own way.
        arguments: What the model said.

    Returns:
        The values that the function is called with; what the model said where the function's types say nothing.

    Raises:
        ToolArgumentError: They do not fit. The model is told, and may try again.
    """
    given = dict(arguments)
    if type(tool) not in (FunctionTool, LongRunningFunctionTool):
        return given
    assert isinstance(tool, FunctionTool)
    described = _described(tool.func, tool._context_param_name)
    if described is None:
        return given
    known = {name: value for name, value in given.items() if name in inspect.signature(tool.func).parameters}
    # the SDK leaves out what the function does not take, and a rule for confirmations may take no more than was said
    return {name: value for name, value in described.schema.validate(known).items() if name in known}


def _described(function: Callable[..., Any], context: str) -> AgentTool | None:
    """The function as a tool of ours; `None` if it has types that a tool of ours cannot have: then the SDK reads them."""
    try:
        made = as_agent_tool(function, hidden=frozenset({context}) & inspect.signature(function).parameters.keys())
        made.schema.parameters  # noqa: B018  # some types are only met here
    except (TypeError, ValueError, NameError):
        return None
    return made
