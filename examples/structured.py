# An agent that answers with a typed value: the task's output is data, not text.
#
# Type:  flyte run --local examples/structured.py plan --city Lisbon
# See:   a `Trip` with fields, which another task computes with. The model is told the schema, and what it says is checked.
#
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import flyte
from pydantic import BaseModel, Field

from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("structured")


class Day(BaseModel):
    """One day of a trip."""

    activity: str = Field(description="What to do.")
    cost: float = Field(description="What it costs, in EUR.", ge=0)


class Trip(BaseModel):
    """A trip."""

    city: str
    days: list[Day]
    needs_umbrella: bool


@tool
@env.task(cache="disable")
async def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"Sunny and 24 °C in {city}."


@env.task
async def total(trip: Trip) -> str:
    return f"{trip.city}: {len(trip.days)} days, {sum(day.cost for day in trip.days):.2f} EUR"


@env.task(report=True, retries=3)
async def plan(city: str) -> str:
    trip = await run_agent(
        f"Propose a short trip to {city} as data.",
        instructions="Look at the weather first.",
        tools=[get_weather],
        model="gpt-4.1",
        output_type=Trip,
    )
    print(f"    {trip!r}", flush=True)
    return await total(trip)
