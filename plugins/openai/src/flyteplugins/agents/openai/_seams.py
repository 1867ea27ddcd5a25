"""The places in the SDK through which every turn, every tool and every list of an MCP server's tools of a run passes.

The SDK resolves the model of each turn with one function, retries its requests with two, invokes each function tool with another,
lists the tools of MCP servers with a fifth, and has a class for each kind of tool of its own that acts in this process, whichever
way a run was started: by `run_agent`, as an agent used as a tool, by a guardrail, after a hand-off. They are wrapped once per
process and do nothing unless the calling context is in an agent run, so that runs beside it are as they were, and the caller's
agents, models and run configuration stay the very objects that hooks and results show. Copying the agent graph instead would
reach the same models, but hands clones to hooks and results, and misses agents that are only known while the run is on.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import wrapt
from agents import Agent, Model, RunConfig
from agents.mcp.util import MCPUtil
from agents.run_internal import run_loop, tool_execution

from flyteplugins.agents.core import AgentError, current_run

from ._clients import on_this_loop
from ._function_tools import invoke_recorded
from ._local_tools import SEAMS
from ._mcp import list_recorded
from ._model import durable_model
from ._retries import ask_in_leaf, stream_in_leaf

__all__ = ["install"]

_LOCK = threading.Lock()


def install() -> None:
    """Wrap them, once per process.

    Raises:
        AgentError: This version of the SDK has no such function. Nothing would be recorded, so nothing runs.
    """
    places: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (run_loop, "get_model", _get_model),
        (run_loop, "get_response_with_retry", ask_in_leaf),
        (run_loop, "stream_response_with_retry", stream_in_leaf),
        (tool_execution, "_invoke_function_tool_with_metadata", _invoke),
        (MCPUtil, "_list_tools_with_span", _list_tools),
        *SEAMS,
    )
    with _LOCK:
        for holder, name, wrapper in places:
            found = vars(holder).get(name)
            if not callable(getattr(holder, name, None)):
                version = importlib.metadata.version("openai-agents")
                raise AgentError(
                    f"openai-agents {version} has no {holder.__name__}.{name}, through which turns and tools are recorded. "
                    "Install a version that flyteplugins-agents-openai names in its requirements."
                )
            if not isinstance(found, wrapt.FunctionWrapper):
                setattr(holder, name, wrapt.FunctionWrapper(found, wrapper))


def _get_model(
    wrapped: Callable[[Agent[Any], RunConfig], Model],
    _instance: object,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Model:
    model = wrapped(*args, **kwargs)
    if current_run() is None:
        return model
    agent: Agent[Any] = args[0] if args else kwargs["agent"]
    config: RunConfig = args[1] if len(args) > 1 else kwargs["run_config"]
    if model is not agent.model and model is not config.model:
        model = on_this_loop(model)
    return durable_model(model, agent.name)


async def _invoke(
    wrapped: Callable[..., Awaitable[Any]], _instance: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    run = current_run()
    if run is None:
        return await wrapped(*args, **kwargs)
    return await invoke_recorded(run, wrapped, *args, **kwargs)


async def _list_tools(
    wrapped: Callable[..., Awaitable[Any]], _instance: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    run = current_run()
    if run is None:
        return await wrapped(*args, **kwargs)
    return await list_recorded(run, wrapped, *args, **kwargs)
