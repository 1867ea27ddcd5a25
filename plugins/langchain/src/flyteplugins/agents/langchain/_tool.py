"""`tool`, and what it becomes when a graph needs it: the SDK's own tool object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from flyteplugins.agents.core import NativeTool, OnUnknown, RequiresApproval, refuse_unknown_options, tool_decorator

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    class FlyteTool(BaseTool):
        """What `tool` returns, to a type checker: the SDK's tool object, which can be called like its task or function."""

        __wrapped_task__: Any

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


__all__ = ["tool"]

_SDK = "langchain_core"
_FACTORY = "flyteplugins.agents.langchain._native_tool:native_tool"
_CONTEXT_TYPES = frozenset(
    {
        "langgraph.prebuilt.tool_node.ToolRuntime",
        "langgraph.prebuilt.tool_node.InjectedState",
        "langgraph.prebuilt.tool_node.InjectedStore",
        "langchain_core.tools.base.InjectedToolCallId",
        "langchain_core.tools.base.InjectedToolArg",
        "langchain_core.runnables.config.RunnableConfig",
    }
)
_OPTIONS = ("return_direct", "extras", "tags", "metadata")


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
            that says so, or an `Approval` with a prompt and a deadline. The run waits, on a cluster for a Flyte condition.
        options: The SDK's own: `return_direct`, `extras`, `tags`, `metadata`.

    Returns:
        The tool. It can be called like the task or the function, and `create_agent`, `ToolNode` and `bind_tools` take it.

    Raises:
        TypeError: `target` is neither a task nor a callable, an option is unknown, a task takes the SDK's context, or the
            function returns a `Command` or a message.
    """
    refuse_unknown_options(options, _OPTIONS)
    _check_result(target)
    made = NativeTool.of(
        target,
        sdk=_SDK,
        factory=_FACTORY,
        context_types=_CONTEXT_TYPES,
        native=options,
        name=name,
        description=description,
        durable=durable,
        on_unknown=on_unknown,
        requires_approval=requires_approval,
    )
    return cast("FlyteTool", made)


def _check_result(target: Any) -> None:
    """Refuse what would reach the model as text, and not do what it says."""
    annotations: Mapping[str, Any] = getattr(getattr(target, "func", target), "__annotations__", {})
    result = annotations.get("return")
    written = result if isinstance(result, str) else f"{getattr(result, '__qualname__', '')} {result}"
    found = re.search(r"\b(Command|ToolMessage)\b", written)
    if found:
        raise TypeError(
            f"{getattr(target, '__name__', target)} returns a {found[0]}, which steers a graph. Make it a tool with "
            "LangChain's own `@tool` (from langchain.tools): its calls are recorded as well."
        )
