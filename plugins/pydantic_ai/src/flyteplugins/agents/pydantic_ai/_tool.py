"""`tool`, and the SDK's `Tool` that it becomes when an agent needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from flyteplugins.agents.core import (
    AgentTool,
    NativeTool,
    OnUnknown,
    RequiresApproval,
    refuse_unknown_options,
    register_control_flow,
    tool_decorator,
)

if TYPE_CHECKING:
    from pydantic_ai.tools import Tool

    class FlyteTool(Tool[Any]):
        """What `tool` returns, to a type checker: the SDK's tool object, which can be called like its task or function."""

        __wrapped_task__: Any

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


__all__ = ["native_tool", "tool"]

_SDK = "pydantic_ai"
_FACTORY = f"{__name__}:native_tool"
_EXCEPTIONS = f"{_SDK}.exceptions"

register_control_flow(
    *(f"{_EXCEPTIONS}.{name}" for name in ("ModelRetry", "ToolFailed", "ApprovalRequired", "CallDeferred"))
)

_CONTEXT_TYPES = frozenset({"pydantic_ai._run_context.RunContext", "pydantic_ai.tools.RunContext"})


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
            that says so, or an `Approval` with a prompt and a deadline. The run waits, on a cluster for a Flyte condition. With
            `True` and `DeferredToolRequests` in `output_type` the call comes back in one, as in the SDK.
        options: The SDK's own: `retries` (`max_retries`), `timeout` (seconds), `strict`, `sequential`, `prepare`,
            `args_validator`, `metadata`, `defer_loading`.

    Returns:
        The tool. It can be called like the task or the function, and an `Agent(tools=[...])` takes it.

    Raises:
        TypeError: `target` is neither a task nor a callable, an option is unknown, or a task takes the SDK's context.
    """
    native = _check_options(options)
    if (
        requires_approval is True
    ):  # the SDK's own: who takes `DeferredToolRequests` as an answer decides, else core asks
        requires_approval, native["requires_approval"] = None, True
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
    return cast("FlyteTool", made)


_OPTIONS = {
    "retries": "max_retries",
    "max_retries": "max_retries",
    "timeout": "timeout",
    "strict": "strict",
    "sequential": "sequential",
    "prepare": "prepare",
    "args_validator": "args_validator",
    "metadata": "metadata",
    "defer_loading": "defer_loading",
}


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    refuse_unknown_options(options, _OPTIONS)
    return {_OPTIONS[option]: value for option, value in options.items()}


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> Tool[Any]:
    """Build the SDK's tool object.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: Attributes of `Tool`.
    """
    from pydantic_ai.tools import Tool

    from ._invoker import RECORDS_ITSELF, Invoker

    given = dict(options or {})
    invoker = Invoker(agent_tool)
    made: Tool[Any] = Tool.from_schema(
        invoker.__call__,
        agent_tool.name,
        agent_tool.description or None,
        agent_tool.schema.parameters,
        takes_ctx=True,
        sequential=bool(given.pop("sequential", False)),
        args_validator=given.pop("args_validator", None),
    )
    metadata = dict(given.pop("metadata", None) or {})
    if invoker.records_itself:
        metadata |= RECORDS_ITSELF
    made.metadata = metadata or None
    for attribute, value in given.items():
        setattr(made, attribute, value)
    return made
