"""`tool`, and what it becomes when an agent needs it: the SDK's own tool object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from flyteplugins.agents.core import (
    NativeTool,
    OnUnknown,
    RequiresApproval,
    as_agent_tool,
    refuse_unknown_options,
    tool_decorator,
)

if TYPE_CHECKING:
    from google.adk.tools.base_tool import BaseTool

    class FlyteTool(BaseTool):
        """What `tool` returns, to a type checker: the SDK's tool object, which can be called like its task or function."""

        __wrapped_task__: Any

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


__all__ = ["tool"]

_SDK = "google.adk"
_FACTORY = "flyteplugins.agents.adk._native_tool:native_tool"
# the SDK's own names for one class, of which an annotation that is text may be any
_CONTEXT_TYPES = frozenset(
    {
        "google.adk.agents.context.Context",
        "google.adk.agents.context.ToolContext",
        "google.adk.agents.context.CallbackContext",
        "google.adk.agents.readonly_context.ReadonlyContext",
    }
)
_OPTIONS = ("custom_metadata", "require_confirmation")


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
    **options: Any,
) -> FlyteTool:
    """Make a tool of a Flyte task or of a plain callable.

    On a task each call is a child action of the agent's, with the task's own resources, retries and cache. Stack it on the task:
    `@tool` above `@env.task(...)`. On a plain callable each call runs in the agent's process and is recorded; a parameter that
    takes the SDK's `ToolContext` is filled, and what the call changes through it (state, artifacts, a transfer) is recorded too.

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
        options: The SDK's own: `custom_metadata`, and `require_confirmation`: `True`, which is the same as
            `requires_approval=True`, or a function of the call's arguments and of the SDK's `tool_context` that says whether a
            person is asked.

    Returns:
        The tool. It can be called like the task or the function, and an `LlmAgent(tools=[...])` takes it.

    Raises:
        TypeError: `target` is neither a task nor a callable, an option is unknown, a task takes the SDK's context, or a function
            that takes it has another `on_unknown` than `"retry"`, or `requires_approval`. Also, both of `requires_approval` and
            `require_confirmation` are given.
    """
    native = _check_options(options)
    asks = native.get("require_confirmation")
    if asks is not None and requires_approval is not None:
        raise TypeError(
            "tool() was given require_confirmation and requires_approval, which ask the same person. Give one."
        )
    if isinstance(asks, bool):
        del native["require_confirmation"]
        requires_approval = asks or None
    made = NativeTool.of(
        target,
        sdk=_SDK,
        factory=_FACTORY,
        context_types=_CONTEXT_TYPES,
        native=native,
        name=name,
        description=description,
        durable=durable,
        on_unknown=on_unknown,
        requires_approval=requires_approval,
    )
    checked = as_agent_tool(made)
    if checked.hidden and (checked.on_unknown != "retry" or checked.approval is not None):
        given = "requires_approval" if checked.approval is not None else f"on_unknown={checked.on_unknown!r}"
        raise TypeError(
            f"The tool {checked.name} takes the SDK's context in {', '.join(sorted(checked.hidden))} and has {given}, which such "
            "tools do not have. Pass what it needs as arguments, or leave that out."
        )
    return cast("FlyteTool", made)


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    refuse_unknown_options(options, _OPTIONS)
    asks = options.get("require_confirmation", False)
    if not callable(asks) and not isinstance(asks, bool):
        raise TypeError(f"require_confirmation is {asks!r}; give True, False, or a function of the call's arguments.")
    return dict(options)
