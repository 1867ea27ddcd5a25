# LangChain's own way to ask: `HumanInTheLoopMiddleware`, where a person may approve, change or refuse a call.
#
# Type:  flyte run --local examples/langchain_approval.py support --order A-17
# See:   the terminal shows the exact call and the SHA-256 of its arguments, and the run waits. `approve` pays; other arguments,
#        such as {"order": "A-17", "cents": 500}, are paid instead; `deny`, `deny: reason` and a deadline that passes (a day; give
#        `--patience 5` and wait) are told to the model.
#
# On a cluster, or on the control plane of the conformance kit, the run waits for a Flyte condition, for days if need be, also
# while its worker is down:  flyte run examples/langchain_approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION 'approve'
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
from typing import Any

import flyte

from flyteplugins.agents.core import Approval
from flyteplugins.agents.langchain import run_agent, tool

env = flyte.TaskEnvironment("langchain_approval")


@tool
@env.task(cache="disable")
async def refund(order: str, cents: int = 1900) -> str:
    """Pay the money for an order back."""
    print(f"    refunded {cents / 100:.2f} EUR for {order}", flush=True)
    return f"Refunded {cents / 100:.2f} EUR for order {order}."


@env.task(report=True)
async def support(order: str, patience: float = 86400.0) -> str:
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    middleware: Any = HumanInTheLoopMiddleware(
        interrupt_on={"refund": True}, description_prefix="May this be paid back?"
    )
    return str(
        await run_agent(
            f"Please refund order {order}.",
            tools=[refund],
            middleware=[middleware],
            model="openai:gpt-4.1",
            approval=Approval(timeout=patience),
        )
    )
