"""The two places in the SDK through which every turn and every function tool of a run passes.

The SDK resolves the model of each turn with one function, and invokes each function tool with another, whichever way a run was
started: by `run_agent`, as an agent used as a tool, by a guardrail, after a hand-off. Both are wrapped once per process and do
nothing unless the calling context is in an agent run, so that runs beside it are as they were, and the caller's agents, models
and run configuration stay the very objects that hooks and results show. Copying the agent graph instead would reach the same
models, but hands clones to hooks and results, and misses agents that are only known while the run is on.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import wrapt
from agents import Agent, Model, RunConfig
from agents.run_internal import run_loop, tool_execution

from flyteplugins.agents.core import AgentError, current_run

from ._clients import on_this_loop
from ._function_tools import invoke_recorded
from ._model import durable_model

__all__ = ["install"]

_LOCK = threading.Lock()
_GET_MODEL = "get_model"
_INVOKE = "_invoke_function_tool_with_metadata"


def install() -> None:
    """Wrap both functions, once per process.

    Raises:
        AgentError: This version of the SDK has no such function. Nothing would be recorded, so nothing runs.
    """
    with _LOCK:
        for module, name, wrapper in ((run_loop, _GET_MODEL, _get_model), (tool_execution, _INVOKE, _invoke)):
            found = getattr(module, name, None)
            if not callable(found):
                version = importlib.metadata.version("openai-agents")
                raise AgentError(
                    f"openai-agents {version} has no {module.__name__}.{name}, through which turns and tools are recorded. "
                    "Install a version that flyteplugins-agents-openai names in its requirements."
                )
            if not isinstance(found, wrapt.FunctionWrapper):
                setattr(module, name, wrapt.FunctionWrapper(found, wrapper))


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
