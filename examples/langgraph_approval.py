# LangChain's own way to ask: `HumanInTheLoopMiddleware`, where a person may approve, change or refuse a call.
#
# Type:  flyte run --local examples/langgraph_approval.py support --order A-17
# See:   the terminal asks. Answer `approve`, `deny: a reason`, or other arguments: {"order": "A-17", "cents": 500}
#
# On a cluster:  flyte get condition RUN
#                flyte signal condition RUN ACTION '{"order": "A-17", "cents": 500}'
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
from typing import Any

import flyte

from flyteplugins.agents.langchain import run_agent, tool

env = flyte.TaskEnvironment("langgraph_approval")


@tool
@env.task(cache="disable")
async def refund(order: str, cents: int = 1900) -> str:
    """Pay the money for an order back."""
    print(f"    refunded {cents / 100:.2f} EUR for {order}", flush=True)
    return f"Refunded {cents / 100:.2f} EUR for order {order}."


@env.task(report=True)
async def support(order: str) -> str:
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    middleware: Any = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    return str(
        await run_agent(
            f"Please refund order {order}.", tools=[refund], middleware=[middleware], model="openai:gpt-4.1"
        )
    )
