# A graph of your own that stops in the middle: `interrupt()` asks a person, and the node goes on with what they say.
#
# Type:  flyte run --local examples/langgraph_approval.py support --order A-17
# See:   the terminal shows what the model has drafted, and the run waits. `pay` pays; whatever else you type is put down as the
#        reason why not. When the deadline passes (a day; give `--patience 5` and wait) the run fails: there is no answer to go on
#        with.
#
# On a cluster, or on the control plane of the conformance kit, the run waits for a Flyte condition, for days if need be, also
# while its worker is down:  flyte run examples/langgraph_approval.py support --order A-17
#                            flyte get condition RUN
#                            flyte signal condition RUN ACTION pay
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
from typing import Any

import flyte
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from flyteplugins.agents.core import Approval
from flyteplugins.agents.langchain import run_agent

env = flyte.TaskEnvironment("langgraph_approval")


@env.task(cache="disable")
async def refund(order: str) -> str:
    print(f"    refunded 19.00 EUR for {order}", flush=True)
    return f"Refunded 19.00 EUR for order {order}."


async def draft(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await ChatOpenAI(model="gpt-4.1").ainvoke(state["messages"])]}


async def settle(state: MessagesState) -> dict[str, Any]:
    order = str(state["messages"][0].text).rstrip(".").split()[-1]
    said = interrupt({"order": order, "draft": str(state["messages"][-1].text)})
    if said != "pay":
        return {"messages": [AIMessage(f"Order {order} was not refunded. They said: {said}")]}
    return {"messages": [AIMessage(await refund(order))]}


graph = StateGraph(MessagesState)
graph.add_node("draft", draft)
graph.add_node("settle", settle)
graph.add_edge(START, "draft")
graph.add_edge("draft", "settle")


@env.task(report=True)
async def support(order: str, patience: float = 86400.0) -> str:
    ask = Approval(prompt="May this be paid back? Type `pay`, or why not.", timeout=patience)
    return str(await run_agent(f"Please refund order {order}.", agent=graph, approval=ask))
