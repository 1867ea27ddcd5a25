"""A module with an agent and three tools, as a worker of a tool's task imports it."""

import flyte

from flyteplugins.agents.langchain import run_agent, tool

env = flyte.TaskEnvironment("worker")


@tool
@env.task(cache="disable")
async def get_weather(city: str) -> str:
    """Get the weather."""
    return f"sunny in {city}"


@tool(name="adder", description="Add two numbers.")
@env.task(cache="disable")
def add(one: int, two: int = 2) -> int:
    """Add."""
    return one + two


@tool
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


@env.task
async def chat(message: str) -> str:
    return str(await run_agent(message, tools=[get_weather, add, shout], model="openai:gpt-4.1"))
