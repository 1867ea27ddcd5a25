"""The standard dialogue: what is asked, what the model says, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.models import ModelServer, Reply, call

__all__ = ["ANSWER", "QUESTION", "TASK", "Dialogue", "Outcome"]

QUESTION = "How warm is it in Oslo and Rome? Keep notes."
ANSWER = "Rome is warmer than Oslo."
TASK = "chat"

_PROGRAM = '''\
"""The standard dialogue, on one adapter."""

import json
import os
from pathlib import Path

import flyte

from flyteplugins.agents.conformance.faults import reach
from flyteplugins.agents.{adapter} import run_agent, tool

env = flyte.TaskEnvironment("standard")


def note_effect(name: str) -> None:
    with Path(os.environ["CRASH_FOLDER"], "effects").open("a") as file:
        file.write(f"{{name}}\\n")
    reach("in-tool")


@tool
@env.task(cache="disable")
async def temperature(city: str) -> str:
    """The temperature in a city."""
    note_effect(f"temperature {{city}}")
    reach("after-tool")
    return f"{{5 * len(city)}} degrees in {{city}}"


@tool
def note(text: str) -> str:
    """Write something down."""
    note_effect(f"note {{text}}")
    reach("after-tool")
    return f"noted: {{text}}"


@env.task(retries=2, report=True)
async def chat(message: str, memory_key: str = "") -> str:
    result = await run_agent(
        message, tools=[temperature, note], model="{model}", memory_key=memory_key or None, full_result=True
    )
    values = result.as_dict()
    Path(os.environ["CRASH_FOLDER"], "result.json").write_text(json.dumps(values))
    return str(result.output)
'''


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        answer: The final text.
        requests: How often each turn was asked, by its number.
        effects: How often each tool body ran, by what it did.
        transcript: The memory's messages.
        usage: What all attempts together paid for the turns that the run is made of.
        fresh: How many of the turns the last attempt asked.
    """

    answer: str
    requests: Mapping[int, int]
    effects: Counter[str]
    transcript: tuple[Any, ...]
    usage: Mapping[str, int]
    fresh: int = field(compare=False, default=0)


@dataclass(frozen=True)
class Dialogue:
    """The standard dialogue on one adapter.

    Attributes:
        adapter: The adapter's module below `flyteplugins.agents`.
        model: A model's name that the adapter sends to the offline server.
    """

    adapter: str
    model: str

    def write_program(self, folder: Path) -> Path:
        """Write the program into a folder, and return its path."""
        file = folder / f"standard_{self.adapter}.py"
        file.write_text(_PROGRAM.format(adapter=self.adapter, model=self.model))
        return file

    @staticmethod
    def script(server: ModelServer) -> None:
        """Tell the model what to say."""
        server.script(
            "How warm is it",
            Reply(calls=(call("temperature", city="Oslo"), call("temperature", city="Rome"))),
            Reply(calls=(call("note", text="Oslo 20"),)),
            Reply(calls=(call("note", text="Rome 20"),)),
            Reply(calls=(call("note", text="done"),)),
            Reply(ANSWER),
        )

    @staticmethod
    def outcome(folder: Path, server: ModelServer, transcript: list[Any]) -> Outcome:
        """Read what came of a run from the folder that it wrote to."""
        result = json.loads((folder / "result.json").read_text())
        fresh, replayed = result["usage"]["fresh"], result["usage"]["replayed"]
        return Outcome(
            answer=result["output"],
            requests=server.journal.per_turn(user=QUESTION),
            effects=Counter((folder / "effects").read_text().split("\n")[:-1]),
            transcript=tuple(transcript),
            usage={name: fresh[name] + replayed[name] for name in fresh},
            fresh=fresh["requests"],
        )
