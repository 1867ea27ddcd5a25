"""The places in the SDK through which every turn and every tool of a run passes.

A chat model is asked through one of six methods of its base class, and a tool is run through two, whoever does it: a node of the
caller's, middleware, a fallback, a summarizer, a graph inside a graph. They are wrapped once per process and do nothing
unless the calling context is in an agent run. There, a model is exchanged for a view of itself whose turns are recorded. So
graphs, models and tools of the caller's stay the very objects that they are, and a model that is only made in a node is
reached too.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Mapping
from typing import Any

import wrapt
from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.tools import BaseTool

from flyteplugins.agents.core import AgentError, current_run

from ._backends import install_deep
from ._bridge import wait_sync
from ._function_tools import invoke_recorded
from ._model import DurableChatModel, durable_model, inside_a_turn
from ._native_tool import FlyteTool

__all__ = ["install"]

_LOCK = threading.Lock()
_MODEL_ENTRIES = (
    "_generate_with_cache",
    "_agenerate_with_cache",
    "stream",
    "astream",
    "_chat_model_stream_v3",
    "_achat_model_stream_v3",
)
_COMPLETION_ENTRIES = ("generate", "agenerate", "stream", "astream")


def install() -> None:
    """Wrap the methods, once per process.

    Raises:
        AgentError: This version of the SDK has no such method. Nothing would be recorded, so nothing runs.
    """
    with _LOCK:
        for owner, names, wrapper in (
            (BaseChatModel, _MODEL_ENTRIES, _ask),
            (BaseLLM, _COMPLETION_ENTRIES, _refuse_completion),
            (BaseTool, ("run",), _run_tool),
            (BaseTool, ("arun",), _arun_tool),
        ):
            for name in names:
                _wrap(owner, name, wrapper)
        install_deep()


def _wrap(owner: type, name: str, wrapper: Callable[..., Any]) -> None:
    found = vars(owner).get(name)
    if not callable(found):
        version = importlib.metadata.version("langchain-core")
        raise AgentError(
            f"langchain-core {version} has no {owner.__name__}.{name}, through which turns and tools are recorded. Install a "
            "version that flyteplugins-agents-langchain names in its requirements."
        )
    if not isinstance(found, wrapt.FunctionWrapper):
        setattr(owner, name, wrapt.FunctionWrapper(found, wrapper))


def _ask(wrapped: Callable[..., Any], instance: BaseChatModel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if current_run() is None or inside_a_turn() or isinstance(instance, DurableChatModel):
        return wrapped(*args, **kwargs)
    method: Any = wrapped
    return method.__func__(durable_model(instance), *args, **kwargs)


def _refuse_completion(
    wrapped: Callable[..., Any], instance: BaseLLM, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    run = current_run()
    if run is not None and run.recorder.durable and not inside_a_turn():
        raise AgentError(
            f"{type(instance).__qualname__} is a text completion model. Its answers are not recorded, and a durable run must not "
            "lose one silently. Use a chat model, or run_agent(..., durable=False)."
        )
    return wrapped(*args, **kwargs)


def _is_ours(tool: BaseTool) -> bool:
    """One of our tools records and shows itself."""
    return current_run() is None or isinstance(tool, FlyteTool) or inside_a_turn()


async def _arun_tool(
    wrapped: Callable[..., Any], instance: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    run = current_run()
    if run is None or _is_ours(instance):
        return await wrapped(*args, **kwargs)
    return await invoke_recorded(
        run,
        instance,
        args[0] if args else kwargs.get("tool_input"),
        kwargs.get("tool_call_id"),
        kwargs.get("config"),
        lambda: wrapped(*args, **kwargs),
    )


def _run_tool(wrapped: Callable[..., Any], instance: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    run = current_run()
    if run is None or _is_ours(instance):
        return wrapped(*args, **kwargs)
    return wait_sync(
        lambda in_caller: invoke_recorded(
            run,
            instance,
            args[0] if args else kwargs.get("tool_input"),
            kwargs.get("tool_call_id"),
            kwargs.get("config"),
            lambda: in_caller(lambda: wrapped(*args, **kwargs)),
        )
    )
