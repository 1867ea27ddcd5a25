"""A tree of agents that the caller built: a root that hands the conversation on, and a child with tools."""

import json
import os
from pathlib import Path
from typing import Any

import flyte
from google.adk.agents import LlmAgent
from google.adk.tools.tool_context import ToolContext

from flyteplugins.agents.adk import run_agent, tool

env = flyte.TaskEnvironment("tree")
MODEL = "gemini-3.5-flash"


def note_effect(name: str) -> None:
    """Write down that something happened."""
    with Path(os.environ["CRASH_FOLDER"], "effects").open("a") as file:
        file.write(f"{name}\n")


def note_result(values: dict[str, Any]) -> None:
    """Write down what came of it."""
    Path(os.environ["CRASH_FOLDER"], "result.json").write_text(json.dumps(values))


@tool
@env.task(cache="disable")
async def price(item: str) -> str:
    """The price of an item."""
    note_effect(f"price {item}")
    return f"{item} costs 3"


def order(item: str, tool_context: ToolContext) -> dict[str, str]:
    """Order an item."""
    note_effect(f"order {item}")
    tool_context.state["ordered"] = item
    return {"ordered": item}


@env.task
async def chat(message: str) -> str:
    """Run the tree."""
    shop = LlmAgent(name="shop", model=MODEL, instruction="Sold so far: {ordered?}.", tools=[price, order])
    root = LlmAgent(name="root", model=MODEL, instruction="You route.", sub_agents=[shop])
    result = await run_agent(message, agent=root, full_result=True)
    turns = [[turn.agent, turn.replayed] for turn in result.turns]
    note_result({"text": result.text, "turns": turns})
    return str(result.output)
