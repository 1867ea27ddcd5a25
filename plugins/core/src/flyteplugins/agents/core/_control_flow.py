"""How an SDK's control flow, raised in the worker of a tool's task, gets back to the agent: at once, with its type and payload.

Flyte would retry the task, and then hand on a name and a message. So what an adapter registers travels as a non-recoverable error
whose message is the exception itself. It is known by its class's name: a worker of a tool does not load the SDK unless the
tool's module does, and only such a module can raise one.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from typing import Any, TypeVar

import flyte.errors

from ._errors import AgentError
from ._flyte import AsyncFunctionTaskTemplate
from ._recorder import DefaultErrorCodec

__all__ = ["control_flow_of", "guarded", "register_control_flow"]

CODE = "AgentControlFlow"
"""The error code under which control flow travels."""

_NAMES: set[str] = set()

TaskT = TypeVar("TaskT")


def register_control_flow(*names: str) -> None:
    """Have exceptions of some classes, raised in a tool's task, reach the agent as they are, without a retry of the task.

    Called where an adapter's `tool` is defined, so that it is known in the worker of every tool.

    Args:
        names: Classes, as `module.Name`. Their subclasses count as well.
    """
    _NAMES.update(names)


def guarded(task: TaskT) -> TaskT:
    """Make a copy of a task whose control flow travels.

    Args:
        task: A task; one without a Python function is returned as it is, as is any while nothing is registered.
    """
    if not _NAMES or not isinstance(task, AsyncFunctionTaskTemplate):
        return task
    func = task.func
    if inspect.iscoroutinefunction(func):

        @functools.wraps(func)
        async def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return await func(*args, **kwargs)
            except Exception as error:
                if (packed := _packed(error)) is None:
                    raise
                raise packed from error

    else:

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return func(*args, **kwargs)
            except Exception as error:
                if (packed := _packed(error)) is None:
                    raise
                raise packed from error

    return dataclasses.replace(task, func=call)


def _packed(error: Exception) -> flyte.errors.NonRecoverableError | None:
    """The error to raise instead of control flow; `None` for anything else."""
    if not any(f"{kind.__module__}.{kind.__qualname__}" in _NAMES for kind in type(error).__mro__):
        return None
    return flyte.errors.NonRecoverableError(json.dumps(DefaultErrorCodec().encode(error)), CODE)


def control_flow_of(error: Exception) -> Exception | None:
    """Unpack control flow that a task raised.

    Args:
        error: What came back from the task.

    Returns:
        The exception that the task raised; `None` if it raised something else.

    Raises:
        AgentError: It cannot be built here, since this process has another version of the SDK, say.
    """
    if not isinstance(error, flyte.errors.BaseRuntimeError) or error.code != CODE:
        return None
    try:
        return DefaultErrorCodec().decode(json.loads(str(error)))
    except (ValueError, TypeError, KeyError, AttributeError, ImportError) as problem:
        raise AgentError(
            f"A tool's task raised control flow of its SDK that cannot be raised here ({type(problem).__name__}: {problem}): "
            f"{error}. Do the agent's and the task's image have the same version of the SDK?"
        ) from error
