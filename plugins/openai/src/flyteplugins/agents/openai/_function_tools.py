"""The SDK's own function tools, in an agent run: recorded as inline leaves.

An agent used as a tool is not one leaf: its turns and tools are leaves of their own, so it is only shown.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from agents import FunctionTool
from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText, _FunctionToolInvocationResult
from agents.tool_context import ToolContext

from flyteplugins.agents.core import (
    JSON,
    AgentRun,
    ToolCallFinished,
    ToolCallStarted,
    UnserializableError,
    canonical_json,
)

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

    async def call() -> _FunctionToolInvocationResult:
        return await invoke(function_tool=function_tool, context=context, arguments=arguments)

    if isinstance(function_tool.on_invoke_tool, Invoker):
        return await call()  # one of ours: it records and shows itself
    event: dict[str, Any] = {
        "run": run.id,
        "agent": context.agent.name if context.agent is not None else run.name,
        "call": context.tool_call_id,
        "name": function_tool.qualified_name,
    }
    shown = _parsed(arguments)
    is_agent = function_tool._is_agent_tool
    async with run.recorder.strand():
        await run.emit(ToolCallStarted(**event, arguments=shown))
        began = time.perf_counter()
        try:
            async with contextlib.nullcontext() if is_agent else run.tool_slot():
                recorded = await run.recorder.record(
                    "tool",
                    {"tool": function_tool.qualified_name, "arguments": shown},
                    call,
                    codec=_ResultCodec(function_tool.qualified_name),
                    info=lambda _: {"tool": function_tool.qualified_name},
                    keep="never" if is_agent else "durable",
                    on_unknown=_again,
                )
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
            seconds = time.perf_counter() - began
            await run.emit(ToolCallFinished(**event, arguments=shown, error=problem, seconds=seconds))
            raise
        await run.emit(
            ToolCallFinished(
                **event,
                arguments=shown,
                result=_shown(recorded.value.output),
                seconds=recorded.seconds,
                replayed=recorded.replayed,
            )
        )
        return recorded.value


async def _again(_: object) -> None:
    """A call that an earlier attempt started and that left no outcome is made again."""


class _ResultCodec:
    """The SDK's output models and JSON values come back as they were; of anything else, the text that the model is given."""

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def encode(self, value: _FunctionToolInvocationResult) -> JSON:
        return {"output": self._encode(value.output), "sdk_error": value.is_sdk_generated_error}

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
