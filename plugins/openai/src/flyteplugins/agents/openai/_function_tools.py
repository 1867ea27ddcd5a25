"""The SDK's own function tools, in an agent run: recorded as inline leaves.

An agent used as a tool is not one leaf: its turns and tools are leaves of their own, so it is only shown.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

from agents import FunctionTool
from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText, _FunctionToolInvocationResult
from agents.tool_context import ToolContext

from flyteplugins.agents.core import JSON, AgentRun, UnserializableError, canonical_json, jsonable

from ._tool import Invoker

__all__ = ["invoke_recorded"]

logger = logging.getLogger("flyteplugins.agents")

_OUTPUT_MODELS = {model.__name__: model for model in (ToolOutputText, ToolOutputImage, ToolOutputFileContent)}


async def invoke_recorded(
    run: AgentRun,
    invoke: Callable[..., Awaitable[_FunctionToolInvocationResult]],
    *,
    function_tool: FunctionTool,
    context: ToolContext[Any],
    arguments: str,
) -> _FunctionToolInvocationResult:
    """Invoke a function tool as the SDK would, and record what it gave.

    Args:
        run: The agent run.
        invoke: The SDK's own function.
        function_tool: The tool.
        context: The SDK's context of the call.
        arguments: What the model said.
    """

    if isinstance(function_tool.on_invoke_tool, Invoker):  # one of ours: it records and shows itself
        tool = _with_recorded_deadline(function_tool, function_tool.on_invoke_tool)
        return await invoke(function_tool=tool, context=context, arguments=arguments)

    async def call() -> _FunctionToolInvocationResult:
        return await invoke(function_tool=function_tool, context=context, arguments=arguments)

    recorded = await run.inline_tool(
        function_tool.qualified_name,
        _parsed(arguments),
        call,
        codec=_ResultCodec(function_tool.qualified_name, context),
        shown=lambda result: _shown(result.output),
        call_id=context.tool_call_id,
        agent=context.agent.name if context.agent is not None else "",
        is_agent=function_tool._is_agent_tool,
    )
    return recorded.value


def _with_recorded_deadline(function_tool: FunctionTool, invoker: Invoker) -> FunctionTool:
    """Have the deadline minded where outcomes are recorded: around it, one that was missed would leave no outcome."""
    if function_tool.timeout_seconds is None:
        return function_tool
    tool = copy.copy(function_tool)
    tool.timeout_seconds = None
    tool.on_invoke_tool = functools.partial(invoker, limits=function_tool)
    return tool


class _ResultCodec:
    """The SDK's output models and JSON values come back as they were; of anything else, the text that the model is given."""

    def __init__(self, tool: str, context: ToolContext[Any]) -> None:
        self._tool = tool
        self._context = context

    def encode(self, value: _FunctionToolInvocationResult) -> JSON:
        return {
            "output": self._encode(value.output),
            "sdk_error": value.is_sdk_generated_error,
            "custom_data": jsonable(self._context._custom_data),
        }

    def _encode(self, output: Any) -> JSON:
        if type(output).__name__ in _OUTPUT_MODELS and type(output) in _OUTPUT_MODELS.values():
            return {"model": type(output).__name__, "value": output.model_dump(mode="json", exclude_unset=True)}
        if isinstance(output, list) and any(type(item) in _OUTPUT_MODELS.values() for item in output):
            return {"list": [self._encode(item) for item in output]}
        try:
            if json.loads(canonical_json(output)) == output and type(output) in (
                str,
                int,
                float,
                bool,
                type(None),
                list,
                dict,
            ):
                return {"value": output}
        except UnserializableError:
            pass
        logger.warning(
            "The tool %s returned a %s, which is recorded as the text that the model is given; a resume gets that text.",
            self._tool, type(output).__qualname__,
        )  # fmt: skip
        return {"value": str(output)}

    def decode(self, payload: JSON) -> _FunctionToolInvocationResult:
        kept = cast("dict[str, Any]", payload)
        self._context._custom_data = kept["custom_data"]
        return _FunctionToolInvocationResult(self._decode(kept["output"]), is_sdk_generated_error=kept["sdk_error"])

    def _decode(self, kept: dict[str, Any]) -> Any:
        if "model" in kept:
            return _OUTPUT_MODELS[kept["model"]].model_validate(kept["value"])
        if "list" in kept:
            return [self._decode(item) for item in kept["list"]]
        return kept["value"]


def _parsed(arguments: str) -> JSON:
    try:
        return cast(JSON, json.loads(arguments or "{}"))
    except ValueError:
        return arguments


def _shown(output: object) -> str:
    return output if isinstance(output, str) else str(output)
