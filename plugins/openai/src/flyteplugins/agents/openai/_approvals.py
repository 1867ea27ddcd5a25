"""The SDK's own approvals: an interrupted run asks a person about each call, and goes on from its `RunState`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from agents import Agent, RunResult, RunResultStreaming
from agents.items import ToolApprovalItem

from flyteplugins.agents.core import JSON, AgentRun, ApprovalDecision, ToolArgumentError, decide_call

from ._tool import Invoker

__all__ = ["run_with_approvals"]

ResultT = TypeVar("ResultT", bound=RunResult | RunResultStreaming)

_OF_THE_FIRST_PART = ("context", "previous_response_id", "auto_previous_response_id", "conversation_id")
"""What an interrupted run's state holds by itself."""


async def run_with_approvals(
    run: AgentRun,
    agent: Agent[Any],
    input: Any,
    loop: Callable[..., Awaitable[ResultT]],
    **options: Any,
) -> ResultT:
    """Run the SDK's loop until nothing waits for an approval.

    Args:
        run: The agent run.
        agent: The agent that starts.
        input: What the user says.
        loop: Runs the SDK's loop.
        options: Its keywords.

    Returns:
        The result of its last part.

    Raises:
        ApprovalPendingError: There is nobody to ask.
    """
    result = await loop(agent, input, **options)
    while result.interruptions:
        items = list(result.interruptions)
        state = result.to_state()
        decisions = await asyncio.gather(*(_decide(run, item) for item in items))
        for item, decision in zip(items, decisions, strict=True):
            if decision.approved:
                state.approve(item)
            else:
                state.reject(item, rejection_message=decision.told)
        rest = {name: value for name, value in options.items() if name not in _OF_THE_FIRST_PART}
        result = await loop(agent, state, **rest)
    return result


async def _decide(run: AgentRun, item: ToolApprovalItem) -> ApprovalDecision:
    name = item.qualified_name or item.tool_name or "a tool"
    return await decide_call(name, _arguments(item), agent=item.agent.name or run.name)


def _arguments(item: ToolApprovalItem) -> JSON:
    """What a call would run with: of one of our tools, what it makes of them, defaults included."""
    said = item.arguments
    for tool in item.agent.tools:
        invoker = getattr(tool, "on_invoke_tool", None)
        if isinstance(invoker, Invoker) and invoker.agent_tool.name == item.tool_name:
            schema = invoker.agent_tool.schema
            try:
                return cast(JSON, schema.dump(schema.validate(said)))
            except ToolArgumentError:
                break  # the model is told when it runs
    if said is None:  # a tool of the SDK's own, whose call is no JSON text
        raw = item.raw_item
        return cast(JSON, raw.model_dump(mode="json", exclude={"id", "status"}) if hasattr(raw, "model_dump") else raw)
    try:
        return cast(JSON, json.loads(said))
    except ValueError:
        return said
