# A graph of your own: its node makes the model, and nobody has to tell the runtime about it.
#
# Type, twice:  flyte run --local --name oslo examples/langgraph_chat.py chat --message "What is the weather in Oslo?"
# See:   the first process dies when the tool has answered; the second one goes on where it was, and asks the model only what it
#        was not asked yet. On a cluster Flyte's retries do it.
#
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import os

import flyte
import flyte.storage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from flyteplugins.agents.core import Event, ToolCallFinished, TurnFinished
from flyteplugins.agents.langchain import run_agent, tool

env = flyte.TaskEnvironment("langgraph_chat")


@tool
@env.task(cache="disable")
async def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"It is sunny in {city}, 21 °C."


async def ask(state: MessagesState) -> dict[str, list[object]]:
    model = ChatOpenAI(model="gpt-4.1").bind_tools([get_weather])
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(MessagesState)
graph.add_node("ask", ask)
graph.add_node("tools", ToolNode([get_weather]))
graph.add_edge(START, "ask")
graph.add_conditional_edges("ask", tools_condition)
graph.add_edge("tools", "ask")


async def show(event: Event) -> None:
    replayed = " (replayed)" if event.replayed else ""
    if isinstance(event, TurnFinished):
        print(f"    turn: {event.text or ', '.join(event.tool_calls)}{replayed}", flush=True)
    if isinstance(event, ToolCallFinished):
        print(f"    tool: {event.result}{replayed}", flush=True)
        mark = flyte.storage.join(flyte.ctx().run_base_dir, "died")
        if not await flyte.storage.exists(mark):
            await flyte.storage.put_stream(b"dead", to_path=mark)
            print("    *** the process dies ***", flush=True)
            os._exit(1)


@env.task(report=True, retries=3)
async def chat(message: str) -> str:
    return str(await run_agent(message, agent=graph, on_event=show))
