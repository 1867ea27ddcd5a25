# Pydantic AI's own way to ask: a tool that requires approval is a deferred call, which a person approves, changes or refuses.
#
# Type:  flyte run --local examples/pydantic_ai_approval.py support --order A-17
# See:   the terminal shows the exact call and the SHA-256 of its arguments, and the run waits. `approve` pays; other arguments,
#        such as {"order": "A-17", "cents": 500}, are paid instead; `deny`, `deny: reason` and a deadline that passes (a day; give
#        `--patience 5` and wait) are told to the model.
#
# On a cluster, or on the control plane of the conformance kit, the run waits for a Flyte condition, for days if need be, also
# while its worker is down:  flyte run examples/pydantic_ai_approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION approve
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import flyte

from flyteplugins.agents.core import Approval
from flyteplugins.agents.pydantic_ai import run_agent

env = flyte.TaskEnvironment("pydantic_ai_approval")


@env.task(cache="disable")
async def refund(order: str, cents: int = 1900) -> str:
    print(f"    refunded {cents / 100:.2f} EUR for {order}", flush=True)
    return f"Refunded {cents / 100:.2f} EUR for order {order}."


@env.task(report=True)
async def support(order: str, patience: float = 86400.0) -> str:
    from pydantic_ai import Agent

    agent = Agent("openai:gpt-4.1", name="support")

    @agent.tool_plain(name="refund", requires_approval=True)
    async def pay_back(order: str, cents: int = 1900) -> str:
        """Pay the money for an order back."""
        return await refund(order, cents)

    ask = Approval(prompt="May this be paid back?", timeout=patience, edit=True)
    return str(await run_agent(f"Please refund order {order}.", agent=agent, approval=ask))
