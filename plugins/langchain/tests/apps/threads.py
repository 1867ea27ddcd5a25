"""Graphs with a thread on Flyte's storage, in a process that kills itself with SIGKILL.

`KILL` says where (`second` for the second node, `turn 2` for when a turn is on record), `EFFECTS` is a file that each node writes
a line to, and `THREAD` gets the thread as it is at the end.
"""

import json
import os
import signal
from pathlib import Path
from typing import Annotated, Any, TypedDict

import flyte
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langgraph.graph import END, START, StateGraph

from flyteplugins.agents.core import Event, TurnFinished
from flyteplugins.agents.langchain import FlyteCheckpointSaver, run_agent, tool

env = flyte.TaskEnvironment("threads")


def die_at(place: str) -> None:
    if os.environ.get("KILL") == place:
        os.kill(os.getpid(), signal.SIGKILL)


def join(left: list[str], right: list[str]) -> list[str]:
    return [*left, *right]


class State(TypedDict):
    done: Annotated[list[str], join]


def node(name: str) -> Any:
    def run(state: State) -> dict[str, list[str]]:
        with Path(os.environ["EFFECTS"]).open("a") as file:
            file.write(f"{name}\n")
        die_at(name)
        return {"done": [name]}

    return run


builder = StateGraph(State)
for name in ("first", "second", "third"):
    builder.add_node(name, node(name))
builder.add_edge(START, "first")
builder.add_edge("first", "second")
builder.add_edge("second", "third")
builder.add_edge("third", END)


@env.task
async def steps(given: str) -> list[str]:
    """LangGraph by itself: only its checkpointer is Flyte's."""
    graph = builder.compile(checkpointer=FlyteCheckpointSaver("steps"))
    state = await graph.ainvoke(
        {"done": [given]} if given else None, {"configurable": {"thread_id": "one"}}, durability="sync"
    )
    return list(state["done"])


@tool
def look(city: str) -> str:
    """Look a city up."""
    return f"{city} is cold"


class DieAfterTurn:
    def __init__(self) -> None:
        self.turns = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, TurnFinished):
            self.turns += 1
            if not event.replayed:
                die_at(f"turn {self.turns}")


@env.task
async def talk(message: str, kind: str) -> str:
    saver = FlyteCheckpointSaver("talk")
    build: Any = create_deep_agent if kind == "deep" else create_agent
    agent = build("openai:gpt-4.1", [look], checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "ada"}}
    answer = str(await run_agent(message, agent=agent, config=config, on_event=DieAfterTurn()))
    state = await agent.aget_state(config)
    kept = [[one.type, str(one.text)] for one in state.values["messages"]]
    Path(os.environ["THREAD"]).write_text(json.dumps(kept))  # noqa: ASYNC240
    return answer
