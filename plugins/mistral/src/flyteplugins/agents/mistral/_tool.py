"""`tool`, and the function that it becomes when the SDK needs one: a `RunContext` registers plain functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from flyteplugins.agents.core import AgentTool, CallableTool, NativeTool, OnUnknown, RequiresApproval, tool_decorator

__all__ = ["native_tool", "tool"]

_SDK = "mistralai"
_FACTORY = f"{__name__}:native_tool"


@tool_decorator
def tool(
    target: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    durable: bool = True,
    on_unknown: OnUnknown = "retry",
    requires_approval: RequiresApproval = None,
    requires_confirmation: bool = False,
) -> CallableTool:
    """Make a tool of a Flyte task or of a plain callable.

    On a task each call is a child action of the agent's, with the task's own resources, retries and cache. Stack it on the task:
    `@tool` above `@env.task(...)`. On a plain callable each call runs in the agent's process and is recorded.

    Args:
        target: An `@env.task` function, a callable, or a tool, to rename it without changing it. Left out where `tool(...)` is
            used as a decorator with options.
        name: What the model calls it; the function's name by default.
        description: What the model is told of it; the docstring by default.
        durable: Whether the calls of a plain callable are recorded.
        on_unknown: What a resume does with a plain callable's call that was started and left no outcome: `"retry"` makes it
            again, `"ask"` has a person decide, `"fail"` fails the run.
        requires_approval: Whether a person approves each call before it is made: `True`, a function of the validated arguments
            that says so, or an `Approval` with a prompt and a deadline. The run waits, on a cluster for a Flyte condition.
        requires_confirmation: The SDK's own option: the same as `requires_approval=True`.

    Returns:
        The tool. It can be called like the task or the function, and `RunContext.register_func` takes it.

    Raises:
        TypeError: `target` is neither a task nor a callable.
    """
    if requires_confirmation and requires_approval is None:
        requires_approval = True
    made = NativeTool.of(
        target,
        sdk=_SDK,
        factory=_FACTORY,
        name=name,
        description=description,
        durable=durable,
        on_unknown=on_unknown,
        requires_approval=requires_approval,
    )
    return cast("CallableTool", made)


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:  # noqa: ARG001
    """Build a coroutine function that the SDK can describe and call.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: None are taken.
    """
    signature = inspect.signature(agent_tool.function)

    @functools.wraps(agent_tool.function, updated=())
    async def call(*args: Any, **kwargs: Any) -> str:
        arguments = signature.bind(*args, **kwargs).arguments
        return (await agent_tool.call(arguments)).text

    call.__name__ = call.__qualname__ = agent_tool.name
    call.__doc__ = agent_tool.function.__doc__ if agent_tool._description is None else agent_tool._description
    call.__agent_tool__ = agent_tool  # type: ignore[attr-defined]  # by which a run knows it again in a RunContext
    return call
