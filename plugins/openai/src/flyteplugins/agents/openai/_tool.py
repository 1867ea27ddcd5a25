"""`tool`, and the SDK's `FunctionTool` that it becomes when an agent needs it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from flyteplugins.agents.core import NativeTool, refuse_unknown_options, tool_decorator

if TYPE_CHECKING:
    from agents import FunctionTool
    from agents.tool_context import ToolContext

    from flyteplugins.agents.core import AgentTool, DocstringUse, OnUnknown, RequiresApproval

    class FlyteTool(FunctionTool):
        """What `tool` returns, to a type checker: the SDK's tool object, which can be called like its task or function."""

        __wrapped_task__: Any

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


__all__ = ["native_tool", "tool"]

_SDK = "agents"
_FACTORY = f"{__name__}:native_tool"
_CONTEXT_TYPES = frozenset({"agents.tool_context.ToolContext", "agents.run_context.RunContextWrapper"})


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
        options: The SDK's own, all that `function_tool` takes: `name_override`, `description_override`, `docstring_style`,
            `use_docstring_info`, `failure_error_function`, `strict_mode`, `is_enabled`, `timeout` (seconds), `timeout_behavior`,
            `timeout_error_function`, `tool_input_guardrails`, `tool_output_guardrails`, `defer_loading`, `allowed_callers`,
            `output_type`, `output_json_schema`, `custom_data_extractor`, `needs_approval`.

    Returns:
        The tool. It can be called like the task or the function, and an `Agent(tools=[...])` takes it.

    Raises:
        TypeError: `target` is neither a task nor a callable, an option is unknown, or a task takes the SDK's context.
    """
    name = name if name is not None else options.pop("name_override", None)
    description = description if description is not None else options.pop("description_override", None)
    documented = _documented(options)
    made = NativeTool.of(
        target,
        sdk=_SDK,
        factory=_FACTORY,
        context_types=_CONTEXT_TYPES,
        native=_check_options(options),
        name=name,
        description=description,
        durable=durable,
        on_unknown=on_unknown,
        requires_approval=requires_approval,
        documented=documented,
    )
    return cast("FlyteTool", made)


_FIELDS = {
    "strict_mode": "strict_json_schema",
    "is_enabled": "is_enabled",
    "timeout": "timeout_seconds",
    "timeout_seconds": "timeout_seconds",
    "timeout_behavior": "timeout_behavior",
    "timeout_error_function": "timeout_error_function",
    "tool_input_guardrails": "tool_input_guardrails",
    "tool_output_guardrails": "tool_output_guardrails",
    "defer_loading": "defer_loading",
    "allowed_callers": "allowed_callers",
    "output_json_schema": "output_json_schema",
    "custom_data_extractor": "custom_data_extractor",
    "needs_approval": "needs_approval",
}
"""Options of `function_tool`, and the fields of `FunctionTool` that they are."""

_OTHERS = ("failure_error_function", "output_type")
"""Options of `function_tool` that become something else when the native tool is built."""


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    refuse_unknown_options(options, [*_FIELDS, *_OTHERS])
    return {_FIELDS.get(option, option): value for option, value in options.items()}


def _documented(options: dict[str, Any]) -> DocstringUse | None:
    """Take the options about the docstring; `None` where there are none."""
    style = options.pop("docstring_style", None)
    if not options.pop("use_docstring_info", True):
        return False
    if style is not None and style not in ("google", "numpy", "sphinx"):
        raise ValueError(f"docstring_style is {style!r}; give 'google', 'numpy' or 'sphinx'.")
    return cast("DocstringUse | None", style)


class Invoker:
    """What a `FunctionTool` of ours calls. An object, so that it can be copied and pickled.

    Args:
        agent_tool: The tool, in no SDK's terms.
        failure: The caller's `failure_error_function`: `(on,)`, where one was given.
    """

    def __init__(self, agent_tool: AgentTool, failure: tuple[Any, ...] = ()) -> None:
        self.agent_tool = agent_tool
        self.failure = failure

    async def __call__(self, context: ToolContext[Any], arguments: str, *, limits: FunctionTool | None = None) -> str:
        """Run the tool, and return what the model is given.

        Args:
            context: The SDK's context of the call.
            arguments: What the model said.
            limits: The tool whose deadline applies; else the SDK minds it.
        """

        async def on_error(error: Exception) -> str:
            return await self._tell(error, context, limits)

        outcome = await self.agent_tool.call(
            arguments,
            call_id=context.tool_call_id,
            agent=context.agent.name if context.agent is not None else "",
            injected=dict.fromkeys(self.agent_tool.hidden, context),
            on_error=on_error if self.failure or limits is not None else None,
            timeout=limits.timeout_seconds if limits is not None else None,
        )
        return outcome.text

    async def _tell(self, error: Exception, context: ToolContext[Any], limits: FunctionTool | None) -> str:
        """Say what the model is told of an exception, as the SDK would."""
        from agents import ToolTimeoutError as SdkTimeoutError
        from agents.tool import default_tool_timeout_error_message

        from flyteplugins.agents.core import AgentError, ToolArgumentError, ToolTimeoutError, describe_error

        if limits is not None and isinstance(error, ToolTimeoutError):
            late = SdkTimeoutError(tool_name=limits.name, timeout_seconds=error.seconds)
            if limits.timeout_behavior == "raise_exception":
                raise late from error
            if limits.timeout_error_function is None:
                return default_tool_timeout_error_message(tool_name=limits.name, timeout_seconds=error.seconds)
            return await _text(limits.timeout_error_function(context, late))
        if not self.failure:
            problem = str(error) if isinstance(error, ToolArgumentError) else describe_error(error)
            if isinstance(error, ToolArgumentError):
                return f"Error: {problem}"
            return f"Error: the tool {self.agent_tool.name} failed. {problem}"
        (tell,) = self.failure
        if tell is None:
            raise AgentError(f"The tool {self.agent_tool.name} failed: {describe_error(error)}") from error
        return await _text(tell(context, error))


async def _text(told: Any) -> str:
    return str(await told if inspect.isawaitable(told) else told)


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> FunctionTool:
    """Build the SDK's tool object.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: Fields of `FunctionTool`.
    """
    from agents import FunctionTool
    from agents.tool import _resolve_function_tool_output, set_function_tool_failure_error_function

    given = dict(options or {})
    failure = (given.pop("failure_error_function"),) if "failure_error_function" in given else ()
    fields: dict[str, Any] = {"strict_json_schema": agent_tool.schema.strict} | given
    fields["output_json_schema"], _ = _resolve_function_tool_output(
        return_annotation=typing.get_type_hints(agent_tool.function).get("return", inspect.Signature.empty)
        if "programmatic" in (given.get("allowed_callers") or ())
        else inspect.Signature.empty,
        allowed_callers=given.get("allowed_callers"),
        output_type=fields.pop("output_type", None),
        output_json_schema=given.get("output_json_schema"),
    )
    made = FunctionTool(
        name=agent_tool.name,
        description=agent_tool.description,
        params_json_schema=agent_tool.schema.parameters,
        on_invoke_tool=Invoker(agent_tool, failure),
        **fields,
    )
    return set_function_tool_failure_error_function(made, *failure) if failure else made
