"""The places in the SDK through which every turn and every effect of a run passes.

A model, a tool, a toolset, a code executor and a service is asked through one method each, whoever does it: a flow of an agent, a
workflow's node, a summarizer, a tool. Subclasses override that method, so it is caught where it is looked up: on the base class,
once per process, and only where the calling context is in an agent run. So agents, models and tools of the caller's stay the very
objects that they are, with their classes and capabilities; one that is made in the middle of a run is reached too; and a
subclass that calls the method of its base by `super()` is asked once.
"""

from __future__ import annotations

import functools
import importlib.metadata
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import wrapt
from google.adk.artifacts import BaseArtifactService
from google.adk.code_executors import BaseCodeExecutor
from google.adk.flows.llm_flows.tools import _caller, _error_handler
from google.adk.memory import BaseMemoryService
from google.adk.models import BaseLlm
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import _tool_node

from flyteplugins.agents.core import AgentError, current_run

from ._approvals import gate
from ._code import execute_recorded
from ._function_tools import is_agent, run_recorded, shown_error
from ._mcp import list_recorded
from ._model import ask_recorded
from ._native_tool import FlyteTool
from ._services import SERVICE_METHODS, serve_recorded

__all__ = ["install"]

_LOCK = threading.Lock()
_ON_ERROR = "run_on_tool_error_callbacks"
_GATE = "apply_confirmation_gate"
_MARK = "_flyteplugins_agents_adk"

Catch = Callable[[Any, str, Any], Any]
"""Makes of an object, the name of its method and the method what is called in its place."""


def install() -> None:
    """Catch the methods, once per process.

    Raises:
        AgentError: This version of the SDK has no such method. Nothing would be recorded, so nothing runs.
    """
    with _LOCK:
        _catch(BaseLlm, {"generate_content_async"}, lambda owner, _, ask: functools.partial(ask_recorded, owner, ask))
        _catch(BaseTool, {"run_async"}, _run_tool)
        _catch(BaseToolset, {"get_tools"}, lambda owner, _, get: list_recorded(owner, get))
        _catch(BaseCodeExecutor, {"execute_code"}, lambda _, __, run: functools.partial(execute_recorded, run))
        for base in (BaseMemoryService, BaseArtifactService):
            names = {name for name in SERVICE_METHODS if hasattr(base, name)}
            _catch(base, names, lambda owner, name, call: functools.partial(serve_recorded, owner, name, call))
        _wrap(_error_handler, _ON_ERROR, _answer_error)
        for module in (_caller, _tool_node):  # where agents and workflows look it up
            _wrap(module, _GATE, gate)


def _wrap(module: ModuleType, name: str, wrapper: Callable[..., Any]) -> None:
    found = getattr(module, name, None)
    if not callable(found):
        raise _missing(f"{module.__name__}.{name}")
    if not isinstance(found, wrapt.FunctionWrapper):
        setattr(module, name, wrapt.FunctionWrapper(found, wrapper))


def _catch(base: type, names: set[str], catch: Catch) -> None:
    for name in names:
        if not callable(getattr(base, name, None)):
            raise _missing(f"{base.__qualname__}.{name}")
    before: Any = base.__getattribute__
    if not names or hasattr(before, _MARK):
        return

    def look_up(self: Any, name: str) -> Any:
        value = before(self, name)
        if name in names and current_run() is not None:
            return catch(self, name, value)
        return value

    setattr(look_up, _MARK, True)
    setattr(base, "__getattribute__", look_up)  # noqa: B010  # a type checker has no way to say it


def _missing(name: str) -> AgentError:
    version = importlib.metadata.version("google-adk")
    return AgentError(
        f"google-adk {version} has no {name}, through which turns and tools are recorded. Install a version that "
        "flyteplugins-agents-adk names in its requirements."
    )


def _run_tool(tool: BaseTool, _: str, run: Any) -> Any:
    if isinstance(tool, FlyteTool):  # it records and shows itself
        return run

    async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
        return await run_recorded(tool, run, args, tool_context)

    return run_async


async def _answer_error(
    wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """What the model is told of a tool's exception, where none of the caller's callbacks says it.

    The SDK would end the run. What it says of a tool that does not exist is left to it, as is the failure of an agent that is
    used as a tool: another attempt goes on where that one stopped.
    """
    answer = await wrapped(*args, **kwargs)
    run, tool, error = current_run(), kwargs["tool"], kwargs["error"]
    unknown = type(tool) is BaseTool
    if answer is not None or run is None or unknown or is_agent(tool) or isinstance(error, AgentError):
        return answer
    if run.on_tool_error == "raise":
        raise AgentError(f"The tool {tool.name} failed: {type(error).__name__}: {error}") from error
    return {"error": shown_error(tool.name, error)}
