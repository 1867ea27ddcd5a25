"""`tool`, and the SDK's own tool object that it becomes when an agent looks at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import AgentTool, NativeTool, OnUnknown, RequiresApproval, tool_decorator

if TYPE_CHECKING:
    from .sdk import Tool

__all__ = ["native_tool", "tool"]

SDK = f"{__package__}.sdk"
"""The SDK's module: nothing here imports it before an agent runs."""


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
) -> Any:
    """Make a tool of a Flyte task or of a plain callable.

    Args:
        target: An `@env.task` function, a callable, or a tool, to rename it without changing it.
        name: What the model calls it; the function's name by default.
        description: What the model is told of it; the docstring by default.
        durable: Whether the calls of a plain callable are recorded.
        on_unknown: What a resume does with a call that was started and left no outcome.
        requires_approval: Whether a person approves each call before it is made.

    Raises:
        TypeError: `target` is neither a task nor a callable.
    """
    return NativeTool.of(
        target,
        sdk=SDK,
        factory=f"{__name__}:native_tool",
        name=name,
        description=description,
        durable=durable,
        on_unknown=on_unknown,
        requires_approval=requires_approval,
    )


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> Tool:  # noqa: ARG001
    """Build the SDK's tool object.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: None are taken.
    """
    from .sdk import Tool

    async def call(arguments: str, call_id: str) -> str:
        return (await agent_tool.call(arguments, call_id=call_id)).text

    call.__agent_tool__ = agent_tool  # type: ignore[attr-defined]  # by which a run knows that its calls are recorded
    return Tool(agent_tool.name, agent_tool.description, agent_tool.schema.parameters, call)
