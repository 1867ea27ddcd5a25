"""Approvals: a tool's own, and the SDK's `needs_approval`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

import flyte
import pytest
from agents import Agent, HostedMCPTool, function_tool

from flyteplugins.agents.conformance.approvals import ApprovalSuite, did_refund, done, look_up, refund, reviewer
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer
from flyteplugins.agents.core import Approval
from flyteplugins.agents.openai import run_agent, tool

__all__ = ["done", "reviewer"]

env = flyte.TaskEnvironment("openai-approvals", cache="disable")

RunTask = Callable[..., Any]


class TestApprovals(ApprovalSuite):
    adapter = "openai"


class TestNeedsApproval(ApprovalSuite):
    """The SDK's own option on a tool of ours."""

    adapter = "openai"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}
    gate: ClassVar[Mapping[str, Any]] = {"needs_approval": True}


class TestToolOfTheSdk(ApprovalSuite):
    """A tool of the SDK's own, in an agent that the caller built."""

    adapter = "openai"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}
    shown: ClassVar[Mapping[str, Any]] = {"order": "a"}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        own: Any = function_tool(did_refund, name_override="refund", needs_approval=True)
        return {"agent": Agent(name="clerk", model="gpt-4.1", tools=[own, agents.tool(look_up)])}


@pytest.mark.parametrize("form", ["requires_approval", "needs_approval"])
async def test_a_sub_agents_call_asks_too(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], form: str
) -> None:
    model_env.script("^go$", Reply(calls=(call("ask_expert", input="refund it"),)), "all done")
    model_env.script("^refund it$", Reply(calls=(call("refund", order="a"),)), "expert done")
    reviewer.says('"a"', "yes")

    @env.task
    async def asking() -> str:
        keyword: dict[str, Any] = {form: True}  # one of two
        gated: Any = tool(refund, **keyword)
        expert = Agent(name="expert", model="gpt-4.1", tools=[gated])
        start = Agent(name="start", model="gpt-4.1", tools=[expert.as_tool("ask_expert", "Ask.")])
        return str(await run_agent("go", agent=start))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert done == ["refund a 100"]
    assert len(reviewer.asked) == 1
    assert model_env.journal.count() == 4


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_call_of_a_hosted_mcp_server_asks_too(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, streaming: bool
) -> None:
    """The provider makes the call, and is told what the person said."""
    asks = [
        {
            "type": "mcp_approval_request",
            "id": f"mcpr_{word}",
            "name": "search",
            "server_label": "docs",
            "arguments": text,
        }
        for word, text in (("a", '{"q": "a"}'), ("b", '{"q": "b"}'))
    ]
    model_env.script("^go$", Reply(items=tuple(asks)), "all done")
    reviewer.says('"a"', "yes")
    reviewer.says('"b"', "no: it is too late")

    @env.task
    async def asking() -> str:
        hosted = HostedMCPTool(
            tool_config={
                "type": "mcp",
                "server_label": "docs",
                "server_url": "https://example.test",
                "require_approval": "always",
            }
        )
        return str(
            await run_agent("go", tools=[hosted], model="gpt-4.1", on_event=(lambda event: None) if streaming else None)
        )

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 2
    sent = model_env.journal.requests()[-1].body["input"]
    told = {one["approval_request_id"]: one for one in sent if one.get("type") == "mcp_approval_response"}
    assert {name: one["approve"] for name, one in told.items()} == {"mcpr_a": True, "mcpr_b": False}
    assert "it is too late" in str(told["mcpr_b"].get("reason"))
