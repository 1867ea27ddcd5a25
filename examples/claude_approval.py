# An agent of the Claude Agent SDK that asks a person before it pays money back, and asks nobody about what is harmless.
#
# Type:  flyte run --local examples/claude_approval.py support --order A-17
# See:   the terminal shows the exact call and the SHA-256 of its arguments, and the run waits. `approve` pays; so do other
#        arguments ({"order": "A-17", "cents": 500}), and what is paid is what you typed. `deny`, `deny: reason` and a deadline
#        that passes (a day; give `--patience 5` and wait) are told to the model. Without a terminal the run ends as pending: run
#        it again under its name at one, and the model is not asked again.
#
# On a cluster, or on the control plane of the conformance kit, the run waits for a Flyte condition, for days if need be, also
# while its worker is down:  flyte run examples/claude_approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION approve
# With a key of your own:  export ANTHROPIC_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import flyte

from flyteplugins.agents.claude import approve_with_flyte, run_agent, tool
from flyteplugins.agents.core import Approval

env = flyte.TaskEnvironment("claude_approval")


@tool
@env.task(cache="disable")
async def refund(order: str, cents: int = 1900) -> str:
    """Pay the money for an order back."""
    print(f"    refunded {cents / 100:.2f} EUR for {order}", flush=True)
    return f"Refunded {cents / 100:.2f} EUR for order {order}."


@tool
@env.task(cache="auto")
async def find_order(order: str) -> str:
    """Look an order up."""
    return f"Order {order}: a lamp, 19.00 EUR, delivered."


@env.task(report=True)
async def support(order: str, patience: float = 86400.0) -> str:
    from claude_agent_sdk import ClaudeAgentOptions  # here, so that the workers of the tools need not load it

    ask = approve_with_flyte(Approval(prompt="May this be paid back?", timeout=patience, edit=True))
    options = ClaudeAgentOptions(can_use_tool=ask, allowed_tools=["mcp__flyte_tools__find_order"])
    return await run_agent(
        f"Please refund order {order}.",
        instructions="You help customers. Say plainly what was done and what was not.",
        tools=[refund, find_order],
        model="claude-sonnet-5-5",
        options=options,
    )
