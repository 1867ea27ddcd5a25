"""Agents whose tools wait for a person, without an SDK and without a model: what the first turn proposes is an input."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import flyte

from flyteplugins.agents.core import (
    AgentTool,
    Approval,
    ApprovalRequest,
    ErrorClass,
    JsonCodec,
    TurnFacts,
    agent_run,
    request_approval,
    request_approvals,
)

env = flyte.TaskEnvironment("approvals", cache="disable")


def note(effects: str, line: str) -> None:
    """Append one line in one write, so that processes do not mix theirs."""
    with open(effects, "a") as file:
        file.write(f"{line}\n")


@env.task
async def refund(effects: str, order: str, cents: int, currency: str = "EUR") -> str:
    note(effects, f"refund {order} {cents} {currency}")
    return f"refunded {order}"


@env.task
async def look_up(effects: str, order: str) -> str:
    note(effects, f"look up {order}")
    return f"found {order}"


@env.task(retries=3)
async def plain_refund(effects: str, order: str) -> str:
    """The plain pattern: a condition in the tool's own task."""
    note(effects, f"begin {order}")
    condition = await flyte.new_condition.aio(f"plain {order}", prompt=f"Refund {order}?", data_type=bool)
    answer = await condition.wait.aio()
    if answer is None:
        note(effects, f"unknown {order}")
        raise RuntimeError("What was decided is not known. The next attempt finds it.")
    if not answer:
        return f"not approved {order}"
    note(effects, f"refund {order}")
    return f"refunded {order}"


@env.task
async def asking_refund(effects: str, order: str) -> str:
    """Asks inside of the tool's own task."""
    note(effects, f"begin {order}")
    decision = await request_approval("refund", {"order": order}, prompt="Refund it?")
    if not decision:
        return decision.told
    note(effects, f"refund {order} by {decision.by}")
    return f"refunded {order}"


def remind(request: ApprovalRequest) -> None:
    arguments: Any = request.items[0].arguments
    note(arguments["effects"], f"remind {request.run} {request.condition_action}")


TOOLS = {
    tool.name: tool
    for tool in (
        AgentTool(refund, requires_approval=True),
        AgentTool(refund, name="refund_much", requires_approval=lambda arguments: arguments["cents"] >= 1000),
        AgentTool(
            refund, name="refund_soon", requires_approval=Approval(timeout=4.0, remind=remind, remind_before=2.5)
        ),
        AgentTool(
            refund,
            name="refund_reminded",
            requires_approval=Approval(timeout=900.0, remind=remind, remind_before=899.5),
        ),
        AgentTool(refund, name="refund_edited", requires_approval=Approval(edit=True, prompt="Is this the right sum?")),
        AgentTool(look_up),
        AgentTool(plain_refund),
        AgentTool(asking_refund),
    )
}


async def _agent(effects: str, proposals: list[dict[str, Any]]) -> str:
    note(effects, "begin agent")

    async def propose() -> Any:
        note(effects, "ask model")
        return proposals

    async with agent_run(
        framework="test",
        name="clerk",
        input="Refund what is due.",
        memory_key=None,
        configuration={},
        classify=lambda error: ErrorClass.RETRY_ATTEMPT,
    ) as run:
        turn = await run.turn(
            {"messages": ["Refund what is due."]},
            propose,
            codec=JsonCodec(),
            facts=lambda value: TurnFacts(tool_calls=tuple(call["tool"] for call in cast("Any", value))),
            model="none",
        )
        calls: list[dict[str, Any]] = turn.value  # type: ignore[assignment]
        outcomes = await asyncio.gather(
            *(TOOLS[call["tool"]].call({"effects": effects, **call["arguments"]}) for call in calls)
        )
        text = json.dumps([outcome.text for outcome in outcomes])
        await run.finish(text)
    return text


@env.task(report=True)
async def agent(effects: str, proposals: str) -> str:
    return await _agent(effects, json.loads(proposals))


@env.task
async def batch(effects: str) -> str:
    note(effects, "begin batch")
    decision = await request_approvals(
        [("refund", {"order": "a"}), ("send_email", {"to": "maya@example.test"})], prompt="Both?"
    )
    note(effects, f"decided {decision.decision}")
    return json.dumps([decision.digest, *(item.digest for item in decision.items)])
