# An agent that dies twice on its way, and goes on where it was.
#
# Type, three times:  flyte run --local --name lisbon examples/crash_resume.py plan --city Lisbon
# See:   the first process dies after the second turn, the next one in a tool, the third one finishes. What an earlier process was
#        answered is marked `replayed`: the model is not asked for it again, and finished tools do not run again.
#
# The name is what makes it the same run: with another name it starts from nothing. On a cluster Flyte's retries do it.
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import os

import flyte
import flyte.storage

from flyteplugins.agents.core import Event, ToolCallFinished, TurnFinished
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("crash_resume")


async def die_once(place: str) -> None:
    """Kill this process, as a lost machine would, unless an earlier process of the same run died here."""
    mark = flyte.storage.join(flyte.ctx().run_base_dir, f"died-{place.replace(' ', '-')}")
    if not await flyte.storage.exists(mark):
        await flyte.storage.put_stream(b"dead", to_path=mark)
        print(f"    *** the process dies {place} ***", flush=True)
        os._exit(1)


@tool
@env.task(cache="disable")
async def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"Sunny and 24 °C in {city}."


@tool
@env.task(cache="disable")
async def find_flights(city: str) -> str:
    """Find flights to a city."""
    return f"TP 1234 to {city}, 180 EUR."


@tool
@env.task(cache="disable")
async def find_hotels(city: str) -> str:
    """Find hotels in a city."""
    return f"Hotel Central in {city}, 90 EUR a night."


@tool
@env.task(cache="disable", retries=2)
async def book_trip(city: str) -> str:
    """Book a trip to a city."""
    await die_once("in book_trip")
    return f"Booked: {city}, reference AB12."


class Narrator:
    """Prints what happens, and dies after the second turn."""

    def __init__(self) -> None:
        self.turns = 0

    async def __call__(self, event: Event) -> None:
        match event:
            case TurnFinished():
                self.turns += 1
                what = f"calls {', '.join(event.tool_calls)}" if event.tool_calls else "answers"
                print(f"    turn {self.turns}: the model {what}{' (replayed)' if event.replayed else ''}", flush=True)
                if self.turns == 2:
                    await die_once("after turn 2")
            case ToolCallFinished():
                print(f"    {event.name}: {event.result}{' (replayed)' if event.replayed else ''}", flush=True)


@env.task(report=True, retries=3)
async def plan(city: str) -> str:
    return str(
        await run_agent(
            f"Plan a trip to {city} and book it.",
            instructions="Look at the weather, then at flights and hotels together, then book.",
            tools=[get_weather, find_flights, find_hotels, book_trip],
            model="gpt-4.1",
            on_event=Narrator(),
        )
    )
