"""An agent that is killed at a named place: four turns, two parallel task tools, a slow one, and an inline tool.

`KILL` says where (`turn 1` ... `turn 4`, `tool <name>`, `committed`, or nothing), `EFFECTS` is a file that each tool body writes
a line to, `ANSWER` a file that gets the answer and the usage, and `IDS` one that gets the ids of the messages. `DAYS` moves the
clock.
"""

import json
import os
import time
from pathlib import Path

import flyte
import time_machine

from flyteplugins.agents.core import Event, TurnFinished
from flyteplugins.agents.langchain import run_agent, tool

if "DAYS" in os.environ:
    time_machine.travel(time.time() + 86400 * int(os.environ["DAYS"]), tick=True).start()

env = flyte.TaskEnvironment("dialogue")


def die_at(place: str) -> None:
    if os.environ.get("KILL") == place:
        os._exit(17)


def note_effect(name: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{name}\n")
    die_at(f"tool {name}")


@tool
@env.task(cache="disable")
async def temperature(city: str, unit: str = "celsius") -> str:
    """The temperature in a city.

    Args:
        city: The city's name.
        unit: The unit.
    """
    note_effect(f"temperature {city}")
    return f"{len(city) * 5} degrees {unit} in {city}"


@tool
@env.task(cache="disable")
def book(city: str) -> dict[str, str]:
    """Book a flight."""
    note_effect(f"book {city}")
    return {"city": city, "reference": "AB12"}


@tool
def write_note(text: str) -> str:
    """Write something down."""
    note_effect("write_note")
    return f"noted: {text}"


class DieAfterTurn:
    """Dies when the turn that `KILL` names was asked, which is when it is on record."""

    def __init__(self) -> None:
        self.turns = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, TurnFinished):
            self.turns += 1
            if not event.replayed:
                die_at(f"turn {self.turns}")


@env.task(retries=2)
async def chat(message: str, memory_key: str = "") -> str:
    result = await run_agent(
        message,
        tools=[temperature, book, write_note],
        model="openai:gpt-4.1",
        memory_key=memory_key or None,
        on_event=DieAfterTurn(),
        full_result=True,
    )
    die_at("committed")
    Path(os.environ["ANSWER"]).write_text(json.dumps(result.as_dict()))  # noqa: ASYNC240
    if "IDS" in os.environ:
        ids = [message.id for message in result.native["messages"]]
        Path(os.environ["IDS"]).write_text(json.dumps(ids))  # noqa: ASYNC240
    return str(result.output)
