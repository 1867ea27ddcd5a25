"""A tool that asks for another argument, in a worker of its own."""

import os
from pathlib import Path

import flyte
from pydantic_ai import ModelRetry

from flyteplugins.agents.pydantic_ai import run_agent, tool

env = flyte.TaskEnvironment("picky")


@tool
@env.task(cache="disable", retries=3)
def spell(city: str) -> str:
    """Take a city's name."""
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{city}\n")
    if city != "Oslo":
        raise ModelRetry("Spell it Oslo.")
    return "well spelled"


@env.task
async def chat(message: str) -> str:
    result = await run_agent(message, model="openai:gpt-4.1", tools=[spell], full_result=True)
    return f"{result.text} {[call.error for call in result.tool_calls]}"
