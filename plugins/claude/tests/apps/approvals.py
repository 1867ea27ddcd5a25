"""An agent that has a person decide about its refunds, in each way that the SDK has."""

from __future__ import annotations

import os
from typing import Any

import flyte

from flyteplugins.agents.claude import approve_with_flyte, run_agent, tool
from flyteplugins.agents.core import Approval

env = flyte.TaskEnvironment("claude-approvals", cache="disable")


def note(line: str) -> None:
    """Append one line in one write, so that processes do not mix theirs."""
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"{line}\n")


@tool
@env.task
async def refund(order: str, cents: int = 100) -> str:
    """Pay the money for an order back."""
    note(f"refund {order} {cents}")
    return f"refunded {order}"


@tool
@env.task
async def look_up(order: str) -> str:
    """Look an order up."""
    note(f"look up {order}")
    return f"found {order}"


async def _hook(given: Any, call_id: str | None, context: Any) -> Any:
    if not given["tool_name"].endswith("refund"):
        return {}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask"}}


@env.task(report=True)
async def agent(form: str) -> str:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

    note("begin agent")
    if form == "a hook":
        options = ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(hooks=[_hook])]})
    else:
        options = ClaudeAgentOptions(
            can_use_tool=approve_with_flyte(Approval(edit=form == "edited")),
            allowed_tools=["mcp__flyte_tools__look_up"],
        )
    return await run_agent("go", tools=[refund, look_up], options=options)
