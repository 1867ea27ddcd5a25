"""`tool`, and the SDK's own tool object that it becomes when an agent needs one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from flyteplugins.agents.core import AgentTool, CallableTool, NativeTool, OnUnknown, RequiresApproval, tool_decorator

if TYPE_CHECKING:
    from claude_agent_sdk import SdkMcpTool

__all__ = ["native_tool", "tool"]

_SDK = "claude_agent_sdk"
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
) -> CallableTool:
    """Make a tool of a Flyte task or of a plain callable.

    On a task each call is a child action of the agent's, with the task's own resources, retries and cache. Stack it on the task:
    `@tool` above `@env.task(...)`. On a plain callable each call runs in the agent's process and is recorded.

    Args:
        target: An `@env.task` function, a callable, or a tool, to rename it without changing it. Left out where `tool(...)` is
            used as a decorator with options.
        name: What the model calls it, behind the server's prefix; the function's name by default.
        description: What the model is told of it; the docstring by default.
        durable: Whether the calls of a plain callable are recorded.
        on_unknown: What a resume does with a plain callable's call that was started and left no outcome: `"retry"` makes it
            again, `"ask"` has a person decide, `"fail"` fails the run.
        requires_approval: Whether a person approves each call before it is made: `True`, a function of the validated arguments
            that says so, or an `Approval` with a prompt and a deadline. The run waits, on a cluster for a Flyte condition.

    Returns:
        The tool. It can be called like the task or the function, and to the SDK it is an `SdkMcpTool`.

    Raises:
        TypeError: `target` is neither a task nor a callable.
    """
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


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> SdkMcpTool[Any]:  # noqa: ARG001
    """Build the SDK's own tool object, for a server that the caller makes with `create_sdk_mcp_server`.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: None are taken.
    """
    from claude_agent_sdk import SdkMcpTool, ToolAnnotations

    async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
        outcome = await agent_tool.call(arguments)
        return {"content": [{"type": "text", "text": outcome.text}], "is_error": outcome.error is not None}

    made = SdkMcpTool(
        name=agent_tool.name,
        description=agent_tool.description,
        input_schema=dict(agent_tool.schema.parameters),
        handler=handler,
        annotations=ToolAnnotations(readOnlyHint=True),  # else Claude Code runs the calls of a turn one after another
    )
    made.__agent_tool__ = agent_tool  # type: ignore[attr-defined]  # by which a run knows it again
    return made
