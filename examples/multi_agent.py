# Several agents at once: one per city, side by side in a group of its own, and one that weighs what they found.
#
# Type:  flyte run --local examples/multi_agent.py compare --cities '["Lisbon", "Oslo", "Rome"]'
# See:   a line when each scout is done, then the verdict. In Flyte's console the scouts' tools are below the group `scouts`. Give
#        the run a name (`--name trip`), kill it, and type it again: scouts that were done are not asked again.
#
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import asyncio

import flyte
from agents import Agent

from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("multi_agent")


@tool
@env.task(cache="disable")
async def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"Sunny and {len(city) * 4} °C in {city}."


scout = Agent(name="scout", instructions="Answer in one sentence.", model="gpt-4.1-mini", tools=[get_weather])


async def explore(city: str) -> str:
    found = await run_agent(f"What is the weather in {city}?", agent=scout)
    print(f"    {city}: {found}", flush=True)
    return f"{city}: {found}"


@env.task(report=True, retries=3)
async def compare(cities: list[str]) -> str:
    with flyte.group("scouts"):
        found = await asyncio.gather(*(explore(city) for city in cities))
    return await run_agent(
        "Which city is the warmest?\n" + "\n".join(found),
        instructions="Name one city and say why, in one sentence.",
        name="judge",
        model="gpt-4.1",
    )
