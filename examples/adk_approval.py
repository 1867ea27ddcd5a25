# The Agent Development Kit's own way to ask: `require_confirmation`, and a tool that asks in the middle of its call.
#
# Type:  flyte run --local examples/adk_approval.py support --order A-17
# See:   the terminal shows the exact call and the SHA-256 of its arguments, and the run waits. `yes` pays; `no`, `no: reason` and
#        a deadline that passes (a day; give `--patience 5` and wait) are told to the model. If days off are asked for, answer
#        with `approve`, `deny`, or fewer days: {"days": 2}. Without a terminal the run ends as pending: run it again under its
#        name at one, and the model is not asked again.
#
# On a cluster, or on the control plane of the conformance kit, the run waits for a Flyte condition, for days if need be, also
# while its worker is down:  flyte run examples/adk_approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION true
#                            flyte signal condition RUN ACTION '{"days": 2}'
# With a key of your own:  export GOOGLE_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flyte

from flyteplugins.agents.adk import run_agent, tool
from flyteplugins.agents.core import Approval

if TYPE_CHECKING:
    from google.adk.tools.tool_context import ToolContext

env = flyte.TaskEnvironment("adk_approval")


@env.task(cache="disable")
async def refund(order: str, cents: int = 1900) -> str:
    """Pay the money for an order back."""
    print(f"    refunded {cents / 100:.2f} EUR for {order}", flush=True)
    return f"Refunded {cents / 100:.2f} EUR for order {order}."


async def goodwill(order: str, cents: int = 500) -> str:
    """Give a customer a voucher for an order that went wrong."""
    print(f"    a voucher of {cents / 100:.2f} EUR for {order}", flush=True)
    return f"A voucher of {cents / 100:.2f} EUR for order {order}."


async def time_off(days: int, tool_context: ToolContext) -> dict[str, Any]:
    """Ask for days off after a hard case. The tool itself asks, for another number perhaps."""
    answer = tool_context.tool_confirmation
    if answer is None:
        tool_context.request_confirmation(hint="How many days may they take?", payload={"days": days})
        return {"status": "asked"}
    if not answer.confirmed:
        return {"status": "refused"}
    granted = answer.payload or {}
    print(f"    {granted['days']} days off", flush=True)
    return {"status": "granted", **granted}


@env.task(report=True)
async def support(order: str, patience: float = 86400.0) -> str:
    from google.adk.tools.function_tool import FunctionTool

    ask = Approval(prompt="May this be paid back?", timeout=patience, on_timeout="deny")
    return str(
        await run_agent(
            f"Please refund order {order}.",
            instructions="You help customers. Say plainly what was done and what was not.",
            tools=[
                tool(refund, requires_approval=ask),
                FunctionTool(goodwill, require_confirmation=True),
                tool(time_off),
            ],
            model="gemini-3.5-flash",
        )
    )
