"""The SDK's own tools, in an agent run: recorded as inline leaves.

A tool of the SDK's may do more than return something: it writes to the state, saves artifacts, ends a loop. All of that goes
through the actions of the call's context, so these are part of the record.

Not leaves are agents and nodes that are used as tools, whose turns and tools are leaves themselves, and the tools by which the
SDK steers its loop, which do nothing but say so.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from google.adk.agents.llm.task._finish_task_tool import FinishTaskTool
from google.adk.tools._node_tool import NodeTool
from google.adk.tools.agent_tool import AgentTool as SDKAgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool

from flyteplugins.agents.core import (
    JSON,
    AgentError,
    AgentRun,
    DefaultErrorCodec,
    HandOff,
    JsonCodec,
    ToolArgumentError,
    UnserializableError,
    current_run,
    describe_error,
)

from ._approvals import confirm, take_request, would_run
from ._arguments import read_arguments
from ._codec import ValueCodec, apply_actions, dump_actions
from ._loop import on_run_loop
from ._telemetry import mark_replayed

__all__ = ["call_recorded", "is_agent", "run_recorded", "shown_error"]

_STEERING = (SetModelResponseTool, FinishTaskTool)


def is_agent(tool: BaseTool) -> bool:
    """Whether a tool is an agent, or a node of a workflow, with turns and tools of its own."""
    return isinstance(tool, (SDKAgentTool, NodeTool))


def shown_error(name: str, error: Exception) -> str:
    """What the model is told of a tool's exception."""
    return f"Error: the tool {name} failed. {describe_error(error)}"


async def run_recorded(
    tool: BaseTool, call: Callable[..., Awaitable[Any]], args: dict[str, Any], tool_context: ToolContext
) -> Any:
    """Run a tool as the SDK would, and record what it gave and did.

    Args:
        tool: The tool.
        call: The tool's own `run_async`.
        args: What the model said.
        tool_context: The context of the call.

    Returns:
        What the tool returned.

    Raises:
        Exception: What the tool raised.
        AgentError: The tool raised, and the run is to fail on that.
    """
    run = current_run()

    async def invoke() -> Any:
        return await call(args=args, tool_context=tool_context)

    if run is None or isinstance(tool, _STEERING):
        return await invoke()

    async def invoke_with_types() -> Any:
        try:
            given = read_arguments(tool, args)
        except ToolArgumentError as error:
            return {"error": f"Error: {error}"}
        return await call(args=given, tool_context=tool_context)

    if isinstance(tool, TransferToAgentTool):
        source = tool_context.agent_name
        await run.emit(HandOff(run=run.id, agent=source, source=source, target=str(args.get("agent_name", ""))))
        return await invoke()
    if is_agent(tool):
        recorded = await run.inline_tool(
            tool.name,
            _json_values(args),
            invoke,
            codec=cast(Any, JsonCodec()),  # never used: an agent is no leaf
            shown=_shown,
            call_id=tool_context.function_call_id or "",
            agent=tool_context.agent_name,
            is_agent=True,
        )
        return recorded.value
    asked = would_run(tool, args)
    return await on_run_loop(lambda: call_recorded(run, tool.name, args, tool_context, invoke_with_types, asked=asked))


async def call_recorded(
    run: AgentRun,
    name: str,
    args: dict[str, Any],
    tool_context: ToolContext,
    call: Callable[[], Awaitable[Any]],
    *,
    asked: Mapping[str, Any] | None = None,
    durable: bool = True,
) -> Any:
    """Make a call that may act through its context, or answer it from its record.

    A tool that asks in the middle of its call to have it confirmed is called again with the answer, as the SDK would: the two
    are leaves of their own. What it asks for then is not asked a second time.

    Args:
        run: The agent run.
        name: The tool's name.
        args: Its arguments.
        tool_context: The context of the call.
        call: Makes the call.
        asked: The arguments with defaults, as a person is shown them; `args` by default.
        durable: Whether it is recorded.

    Returns:
        What the call returned.

    Raises:
        Exception: What the call raised.
        AgentError: The call raised, and the run is to fail on that.
    """
    summary = tool_context.actions.skip_summarization
    try:
        value = await _call(run, name, args, tool_context, call, durable=durable)
    finally:
        request = take_request(tool_context)  # of a call that failed as well: then there is nothing to confirm
    if request is None or tool_context.tool_confirmation is not None:
        return value
    answer = await confirm(name, asked if asked is not None else args, request, tool_context)
    tool_context.tool_confirmation = answer
    tool_context.actions.skip_summarization = summary  # asking had set it
    shown = {**args, "tool_confirmation": answer.model_dump(mode="json", exclude={"hint"}, exclude_none=True)}
    try:
        return await _call(run, name, shown, tool_context, call, durable=durable)
    finally:
        take_request(tool_context)


async def _call(
    run: AgentRun,
    name: str,
    args: dict[str, Any],
    tool_context: ToolContext,
    call: Callable[[], Awaitable[Any]],
    *,
    durable: bool,
) -> Any:
    values = ValueCodec()

    async def make() -> _Outcome:
        try:
            value = await call()
        except AgentError:
            raise
        except Exception as error:
            if run.on_tool_error == "raise":
                raise AgentError(f"The tool {name} failed: {describe_error(error)}") from error
            return _Outcome(None, dump_actions(tool_context), error)
        return _Outcome(values.decode(values.encode(value)), dump_actions(tool_context))

    recorded = await run.inline_tool(
        name,
        _json_values(args),
        make,
        codec=_OutcomeCodec(),
        shown=lambda outcome: _shown(outcome.value) if outcome.error is None else shown_error(name, outcome.error),
        error=lambda outcome: None if outcome.error is None else describe_error(outcome.error),
        call_id=tool_context.function_call_id or "",
        agent=tool_context.agent_name,
        durable=durable,
    )
    outcome = recorded.value
    if recorded.replayed:
        mark_replayed()
        apply_actions(outcome.actions, tool_context)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


@dataclass(frozen=True)
class _Outcome:
    """How a call ended.

    Attributes:
        value: What it returned.
        actions: What it did through its context, as JSON values.
        error: What it raised.
    """

    value: Any
    actions: JSON
    error: Exception | None = None


class _OutcomeCodec:
    def encode(self, value: _Outcome) -> JSON:
        error = None if value.error is None else DefaultErrorCodec().encode(value.error)
        said = None if value.error is None else describe_error(value.error)
        return {"value": ValueCodec().encode(value.value), "actions": value.actions, "error": error, "said": said}

    def decode(self, payload: JSON) -> _Outcome:
        kept = cast("dict[str, JSON]", payload)
        error = None if kept["error"] is None else _decode_error(kept["error"], str(kept["said"]))
        return _Outcome(ValueCodec().decode(kept["value"]), kept["actions"], error)


class _ReplayedToolError(Exception):
    """Stands for a tool's exception whose class cannot be built again."""

    def __init__(self, said: str) -> None:
        super().__init__(said)


def _decode_error(payload: JSON, said: str) -> Exception:
    """The exception; where its class is one of a function's or a module that is gone, one that says the same."""
    try:
        error = DefaultErrorCodec().decode(payload)
    except (AttributeError, ImportError, TypeError, ValueError):
        return _ReplayedToolError(said)
    return error if describe_error(error) == said else _ReplayedToolError(said)


def _shown(value: object) -> str:
    if isinstance(value, dict) and value.keys() == {"result"} and isinstance(value["result"], str):
        return value["result"]
    if isinstance(value, str):
        return value
    return json.dumps(ValueCodec().encode(value), ensure_ascii=False)


def _json_values(arguments: Any) -> JSON:
    try:
        return cast(JSON, json.loads(json.dumps(arguments, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise UnserializableError("arguments", f"what the model said is not JSON: {error}") from error
