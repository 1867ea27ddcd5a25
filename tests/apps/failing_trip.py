"""An agent whose tools leave a line each, in the task's own process and in one of theirs."""

import os
from pathlib import Path

import flyte

from flyteplugins.agents.core import idempotency_key
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("failing_trip")


def leave(line: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{line}\n")


def take_note(text: str) -> str:
    """Take a note."""
    leave(f"note {idempotency_key()}")
    return "noted"


@tool
@env.task(cache="disable")
async def book(city: str) -> str:
    """Book a trip to a city."""
    leave(f"book {city}")
    return f"booked {city}"


@env.task(report=True, retries=1)
async def plan(city: str) -> str:
    return await run_agent(f"Book a trip to {city}.", tools=[take_note, book], model="gpt-4.1", memory_key="trips")
