"""`tool`, and the SDK's `FunctionTool` that it becomes when an agent needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

from flyteplugins.agents.core import AgentTool, NativeTool, OnUnknown, as_agent_tool, context_parameters

if TYPE_CHECKING:
    from agents import FunctionTool
    from agents.tool_context import ToolContext

    class FlyteTool(FunctionTool):
        """What `tool` returns, to a type checker: the SDK's tool object, which can be called like its task or function."""

        __wrapped_task__: Any

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


__all__ = ["native_tool", "tool"]

_SDK = "agents"
_FACTORY = f"{__name__}:native_tool"
_CONTEXT_TYPES = frozenset({"agents.tool_context.ToolContext", "agents.run_context.RunContextWrapper"})


@overload
def tool(target: Callable[..., Any], /) -> FlyteTool: ...


@overload
def tool(
    target: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    durable: bool = True,
    on_unknown: OnUnknown = "retry",
    **options: Any,
) -> FlyteTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    durable: bool = True,
    on_unknown: OnUnknown = "retry",
    **options: Any,
) -> Callable[[Callable[..., Any]], FlyteTool]: ...


def tool(
    target: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    durable: bool = True,
    on_unknown: OnUnknown = "retry",
    **options: Any,
) -> FlyteTool | Callable[[Callable[..., Any]], FlyteTool]:
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
            again, `"fail"` fails the run.
        options: The SDK's own: `name_override`, `description_override`, `strict_mode`, `is_enabled`, `timeout` (seconds),
            `timeout_behavior`, `timeout_error_function`, `tool_input_guardrails`, `tool_output_guardrails`, `defer_loading`.

    Returns:
        The tool. It can be called like the task or the function, and an `Agent(tools=[...])` takes it.

    Raises:
        TypeError: `target` is neither a task nor a callable, an option is unknown, or a task takes the SDK's context.
        NotImplementedError: `needs_approval` is given. Approvals are not supported yet.
    """
    if target is None:
        return lambda function: tool(
            function, name=name, description=description, durable=durable, on_unknown=on_unknown, **options
        )
    name = name if name is not None else options.pop("name_override", None)
    description = description if description is not None else options.pop("description_override", None)
    native_options = {**getattr(target, "_self_options", {}), **_check_options(options)}
    given: dict[str, Any] = {}
    if name is not None:
        given["name"] = name
    if description is not None:
        given["description"] = description
    if not durable:
        given["durable"] = durable
    if on_unknown != "retry":
        given["on_unknown"] = on_unknown
    hidden = context_parameters(target, _CONTEXT_TYPES)
    if hidden:
        given["hidden"] = hidden
    made = NativeTool(as_agent_tool(target, **given), sdk=_SDK, factory=_FACTORY, options=native_options)
    return cast("FlyteTool", made)


_OPTIONS = {
    "strict_mode": "strict_json_schema",
    "is_enabled": "is_enabled",
    "timeout": "timeout_seconds",
    "timeout_seconds": "timeout_seconds",
    "timeout_behavior": "timeout_behavior",
    "timeout_error_function": "timeout_error_function",
    "tool_input_guardrails": "tool_input_guardrails",
    "tool_output_guardrails": "tool_output_guardrails",
    "defer_loading": "defer_loading",
}


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("needs_approval"):
        raise NotImplementedError(
            "needs_approval is not supported yet: an agent run could not suspend on it, and the approval would be lost."
        )
    unknown = sorted(set(options) - set(_OPTIONS) - {"needs_approval"})
    if unknown:
        raise TypeError(
            f"tool() has no option {', '.join(unknown)}; the SDK's own that it takes are {', '.join(_OPTIONS)}."
        )
    return {_OPTIONS[option]: value for option, value in options.items() if option in _OPTIONS}


class Invoker:
    """What a `FunctionTool` of ours calls. An object, so that it can be copied and pickled."""

    def __init__(self, agent_tool: AgentTool) -> None:
        self.agent_tool = agent_tool

    async def __call__(self, context: ToolContext[Any], arguments: str) -> str:
        """Run the tool, and return what the model is given."""
        outcome = await self.agent_tool.call(
            arguments,
            call_id=context.tool_call_id,
            agent=context.agent.name if context.agent is not None else "",
            injected=dict.fromkeys(self.agent_tool.hidden, context),
        )
        return outcome.text


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> FunctionTool:
    """Build the SDK's tool object.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: Fields of `FunctionTool`.
    """
    from agents import FunctionTool

    fields: dict[str, Any] = {"strict_json_schema": agent_tool.schema.strict} | dict(options or {})
    return FunctionTool(
        name=agent_tool.name,
        description=agent_tool.description,
        params_json_schema=agent_tool.schema.parameters,
        on_invoke_tool=Invoker(agent_tool),
        **fields,
    )
