# Mistral's own way to ask: a function that is registered with `requires_confirmation` waits for a person.
#
# Type:  flyte run --local examples/mistral_approval.py support --order A-17
# See:   the terminal shows the exact call and the SHA-256 of its arguments, and the run waits. `yes` pays; `no`, `no: reason` and
#        a deadline that passes (a day; give `--patience 5` and wait) are told to the model.
#
# On a cluster, or on the control plane of the conformance kit, the run waits for a Flyte condition, for days if need be, also
# while its worker is down:  flyte run examples/mistral_approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION true
# With a key of your own:  export MISTRAL_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import flyte

from flyteplugins.agents.core import Approval
from flyteplugins.agents.mistral import run_agent, tool

env = flyte.TaskEnvironment("mistral_approval")


@tool
@env.task(cache="disable")
async def refund(order: str, cents: int = 1900) -> str:
    """Pay the money for an order back."""
    print(f"    refunded {cents / 100:.2f} EUR for {order}", flush=True)
    return f"Refunded {cents / 100:.2f} EUR for order {order}."


@env.task(report=True)
async def support(order: str, patience: float = 86400.0) -> str:
    from mistralai.extra.run.context import RunContext

    context = RunContext(model="mistral-large-latest")
    context.register_func(refund, requires_confirmation=True)
    ask = Approval(prompt="May this be paid back?", timeout=patience)
    return str(await run_agent(f"Please refund order {order}.", agent=context, approval=ask))
