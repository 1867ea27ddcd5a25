# An agent that asks a person before it pays money back.
#
# Type:  flyte run --local examples/approval.py support --order A-17
# See:   the terminal shows the exact action and the SHA-256 of its arguments, and the run waits. `yes` pays; `no`, `no: reason`
#        and a deadline that passes (a day; give `--patience 5` and wait) are told to the model. Without a terminal the run ends
#        as pending: run it again under its name at one, and the model is not asked again.
#
# On a cluster, or on the control plane of the conformance kit, the run waits for a Flyte condition, for days if need be, also
# while its worker is down:  flyte run examples/approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION true
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import flyte

from flyteplugins.agents.core import Approval
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("approval")


@env.task(cache="disable")
async def refund(order: str, cents: int = 1900) -> str:
    """Pay the money for an order back."""
    print(f"    refunded {cents / 100:.2f} EUR for {order}", flush=True)
    return f"Refunded {cents / 100:.2f} EUR for order {order}."


@env.task(report=True)
async def support(order: str, patience: float = 86400.0) -> str:
    ask = Approval(prompt="May this be paid back?", timeout=patience, on_timeout="deny")
    return str(
        await run_agent(
            f"Please refund order {order}.",
            instructions="You help customers. Say plainly what was done and what was not.",
            tools=[tool(refund, requires_approval=ask)],
            model="gpt-4.1",
        )
    )
