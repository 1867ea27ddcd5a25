# The plain pattern: a tool whose own task asks a person, with nothing but Flyte's `new_condition`. It works with each SDK.
#
# Type:  flyte run --local examples/plain_approval.py support --order A-17
# See:   Flyte asks at the terminal, `y` or `n`. `y` pays, and `n` is told to the model.
#
# On a cluster, or on the control plane of the conformance kit, the tool's task waits for days if need be, also while its worker
# and the agent's are down:  flyte run examples/plain_approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION true
# A deadline that passes is told to the model as well. At the terminal Flyte 2.12 tells it, and goes on reading: press Enter then.
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
#
# What the plain pattern does not do, and `examples/approval.py` does: show the digest of exactly what runs, keep the answer where
# the backend forgets it, and end as pending where there is no terminal.
import flyte
import flyte.errors

from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("plain_approval")

DEADLINE = 86400.0  # seconds


@tool
@env.task(cache="disable", retries=3)
async def refund(order: str) -> str:
    """Pay the money for an order back."""
    condition = await flyte.new_condition.aio(
        f"refund {order}", prompt=f"May order {order} be paid back?", data_type=bool, timeout=DEADLINE
    )
    try:
        answer = await condition.wait.aio()
    except flyte.errors.ConditionTimedoutError:
        return f"Order {order} was not refunded: nobody answered in time."
    if (
        answer is None
    ):  # Flyte 2.12 says nothing to a worker that was restarted before the answer came: that is no yes, and no no
        raise RuntimeError(f"Whether order {order} may be refunded is not known. The next attempt finds the answer.")
    if not answer:
        return f"Order {order} was not refunded: a person said no."
    print(f"    refunded 19.00 EUR for {order}", flush=True)
    return f"Refunded 19.00 EUR for order {order}."


@env.task(report=True, retries=3)
async def support(order: str) -> str:
    return await run_agent(
        f"Please refund order {order}.",
        instructions="You help customers. Say plainly what was done and what was not.",
        tools=[refund],
        model="gpt-4.1",
    )
