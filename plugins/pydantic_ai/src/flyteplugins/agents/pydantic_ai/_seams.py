"""The one place in the SDK through which every run of an agent passes.

However a run is started, by `run`, `run_stream`, `run_stream_events` or `iter`, by `run_agent` or in the body of a tool, it goes
through `Agent.iter`, which takes capabilities for that run. It is wrapped once per process and adds the durability capability
where the calling context is in an agent run, so that runs beside it are as they were, and neither the caller's agents nor
those that tools make on the way need a change.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Mapping
from typing import Any

import wrapt

from flyteplugins.agents.core import AgentError, current_run
from pydantic_ai import Agent

from ._durability import FlyteDurability

__all__ = ["install"]

_LOCK = threading.Lock()
_ITER = "iter"
_DEFAULT_NAME = "agent"


def install() -> None:
    """Wrap `Agent.iter`, once per process.

    Raises:
        AgentError: This version of the SDK has no such method. Nothing would be recorded, so nothing runs.
    """
    with _LOCK:
        found = Agent.__dict__.get(_ITER)
        if not callable(found):
            version = importlib.metadata.version("pydantic-ai-slim")
            raise AgentError(
                f"pydantic-ai-slim {version} has no Agent.{_ITER}, through which runs are made durable. Install a version that "
                "flyteplugins-agents-pydantic-ai names in its requirements."
            )
        if not isinstance(found, wrapt.FunctionWrapper):
            setattr(Agent, _ITER, wrapt.FunctionWrapper(found, _iter))


def _iter(
    wrapped: Callable[..., Any], instance: Agent[Any, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    run = current_run()
    if run is None:
        return wrapped(*args, **kwargs)
    given = list(kwargs.get("capabilities") or ())
    if FlyteDurability.from_agent(instance) is None and not any(isinstance(one, FlyteDurability) for one in given):
        given.append(FlyteDurability(name=instance.name or run.name or _DEFAULT_NAME))
    return wrapped(*args, **{**kwargs, "capabilities": given})
