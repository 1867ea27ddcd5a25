"""What most checks talk about: two tools, one of them a Flyte task, and a model that calls them and then answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from flyteplugins.agents.conformance.models import Conversation, ModelServer, Reply, call

from .._adapter import Options
from .._stage import EFFECTS, Stage, env

__all__ = [
    "ANSWER",
    "INSTRUCTIONS",
    "QUESTION",
    "City",
    "agent_options",
    "note",
    "options",
    "script",
    "structured",
    "temperature",
    "temperature_at",
]

QUESTION = "How warm is it in Oslo and Rome?"
INSTRUCTIONS = "Be brief."
ANSWER = "Rome is warmer."


class City(BaseModel):
    """A city."""

    name: str
    degrees: float


@env.task(cache="disable")
async def temperature(city: str) -> str:
    """The temperature in a city.

    Args:
        city: Which city.
    """
    EFFECTS.append(f"temperature {city}")
    return f"{5 * len(city)} degrees in {city}"


@env.task(cache="disable")
async def temperature_at(city: str, hour: int = 12) -> str:
    """The temperature in a city.

    Args:
        city: Which city.
        hour: When.
    """
    EFFECTS.append(f"temperature {city}")
    return f"{5 * len(city)} degrees in {city} at {hour}"


def note(text: str) -> str:
    """Write something down.

    Args:
        text: What to write.
    """
    EFFECTS.append(f"note {text}")
    return f"noted: {text}"


def script(server: ModelServer, question: str = "How warm", answer: str = ANSWER) -> None:
    """Have the model call the task twice side by side, then the function, and then answer."""
    server.script(
        question,
        Reply(calls=(call("temperature", city="Oslo"), call("temperature", city="Rome"))),
        Reply(calls=(call("note", text="Rome"),)),
        Reply(answer, pieces=3),
    )


def options(stage: Stage, **more: Any) -> dict[str, Any]:
    """Keywords of `run_agent` for the dialogue, with an agent that is made of arguments."""
    adapter = stage.adapter
    return {"model": adapter.model, "instructions": INSTRUCTIONS, "tools": [adapter.tool(temperature), note]} | more


def agent_options(stage: Stage, tools: Sequence[Any] | None = None) -> Options:
    """Keywords of `run_agent` for the dialogue, with a pre-built agent."""
    adapter = stage.adapter
    return adapter.agent(INSTRUCTIONS, [adapter.tool(temperature), note] if tools is None else tools)


def structured(conversation: Conversation) -> Reply:
    """A reply of the type that is asked for, in the way in which the SDK asks for it: a schema, a tool, or a prompt."""
    values: dict[str, Any] = {"name": "Oslo", "degrees": 3.5, "size": 3, "country": "Norway"}
    for offered in conversation.tools:
        properties: Any = offered.parameters.get("properties", {})
        if offered.name not in ("temperature", "note") and properties and set(properties) <= set(values):
            return Reply(calls=(call(offered.name, **{name: values[name] for name in properties}),))
    if conversation.output_schema is not None:
        wanted: Any = conversation.output_schema["properties"]
        return Reply(structured={name: values[name] for name in wanted})
    return Reply("Cold.")
