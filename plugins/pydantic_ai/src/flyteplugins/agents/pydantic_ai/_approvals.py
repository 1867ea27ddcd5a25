"""Calls that require approval: a person is asked, unless the caller takes them as an answer."""

from __future__ import annotations

import asyncio
import contextlib
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

from flyteplugins.agents.core import JSON, ApprovalDecision, ToolArgumentError, decide_call
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied

from ._invoker import Invoker

__all__ = ["decide_calls"]


async def decide_calls(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults | None:
    """Ask about each call that requires approval.

    Args:
        ctx: The SDK's context.
        requests: What waits. Calls that are answered elsewhere are left.

    Returns:
        The decisions; `None` where the agent's output type has `DeferredToolRequests`, so that the caller decides.

    Raises:
        ApprovalPendingError: There is nobody to ask.
    """
    agent = ctx.agent
    if not requests.approvals or (agent is not None and _takes_requests(agent.output_type)):
        return None
    name = (agent.name or "") if agent is not None else ""
    decisions = await asyncio.gather(*(_decide(ctx, call, name) for call in requests.approvals))
    return DeferredToolResults(
        approvals={
            call.tool_call_id: _answer(decision) for call, decision in zip(requests.approvals, decisions, strict=True)
        }
    )


def _answer(decision: ApprovalDecision) -> ToolApproved | ToolDenied:
    if not decision.approved:
        return ToolDenied(decision.told)
    edited = cast("dict[str, Any]", decision.arguments)
    return ToolApproved(override_args=edited) if decision.proposed else ToolApproved()


def _takes_requests(output: Any) -> bool:
    if output is DeferredToolRequests:
        return True
    if isinstance(output, (list, tuple)):
        return any(_takes_requests(one) for one in output)
    return get_origin(output) in (Union, UnionType) and any(_takes_requests(one) for one in get_args(output))


async def _decide(ctx: RunContext[Any], call: ToolCallPart, agent: str) -> ApprovalDecision:
    arguments: Any = call.args_as_dict()
    tool: Any = ctx.tool_manager.tools.get(call.tool_name) if ctx.tool_manager and ctx.tool_manager.tools else None
    while (inner := getattr(tool, "source_tool", None)) is not None:  # toolsets around toolsets
        tool = inner
    schema_of_sdk = getattr(getattr(tool, "call_func", None), "__self__", None)
    invoker = getattr(getattr(schema_of_sdk, "function", None), "__self__", None)
    if isinstance(invoker, Invoker):  # what it runs with: defaults included
        schema = invoker.agent_tool.schema
        with contextlib.suppress(ToolArgumentError):  # the model is told when it runs
            arguments = schema.dump(schema.validate(arguments))

    def check(edited: JSON) -> JSON:
        if isinstance(invoker, Invoker):
            return cast(
                JSON, invoker.agent_tool.schema.dump(invoker.agent_tool.schema.validate(cast("dict[str, Any]", edited)))
            )
        if (validator := getattr(schema_of_sdk, "validator", None)) is not None:
            validator.validate_python(edited)  # a ValidationError is a ValueError
        return edited

    return await decide_call(call.tool_name, arguments, agent=agent, check=check)
