"""The standard dialogue with a mode of its own: `MODE` says which keywords `run_agent` gets."""

import json
import os
from pathlib import Path

import flyte

from flyteplugins.agents.mistral import run_agent, tool

env = flyte.TaskEnvironment("kept")


def note_effect(name: str) -> None:
    with Path(os.environ["CRASH_FOLDER"], "effects").open("a") as file:
        file.write(f"{name}\n")


@tool
@env.task(cache="disable")
async def temperature(city: str) -> str:
    """The temperature in a city."""
    note_effect(f"temperature {city}")
    return f"{5 * len(city)} degrees in {city}"


@tool
def note(text: str) -> str:
    """Write something down."""
    note_effect(f"note {text}")
    return f"noted: {text}"


@env.task(retries=2)
async def chat(message: str, memory_key: str = "") -> str:
    result = await run_agent(
        message,
        tools=[temperature, note],
        memory_key=memory_key or None,
        full_result=True,
        **json.loads(os.environ["MODE"]),
    )
    values = result.as_dict() | {"conversation_id": result.native.conversation_id}
    Path(os.environ["CRASH_FOLDER"], "result.json").write_text(json.dumps(values))  # noqa: ASYNC240
    return str(result.output)
