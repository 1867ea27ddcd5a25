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
from flyteplugins.agents.core import Event
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
    told: list[Event] = []
    result = await run_agent(
        message,
        tools=[temperature, note],
        model="{model}",
        memory_key=memory_key or None,
        on_event={listener},
        full_result=True,
    )
    values = result.as_dict()
    values["told"] = [
        [event.type, event.text, event.replayed] for event in told if event.type in ("text delta", "turn finished")
    ]
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
        told: What `on_event` was told by the attempt that finished, where somebody listens: pieces of text and finished turns,
            by type and text.
        fresh: How many of the turns the last attempt asked.
    """

    answer: str
    requests: Mapping[int, int]
    effects: Counter[str]
    transcript: tuple[Any, ...]
    usage: Mapping[str, int]
    told: tuple[tuple[str, str], ...] = ()
    fresh: int = field(compare=False, default=0)


@dataclass(frozen=True)
class Dialogue:
    """The standard dialogue on one adapter.

    Attributes:
        adapter: The adapter's module below `flyteplugins.agents`.
        model: A model's name that the adapter sends to the offline server.
        streamed: Whether somebody listens (`on_event`), so that the text arrives in pieces where the adapter can do that.
        volatile: Names of what the SDK writes into messages anew in each process, such as clocks: transcripts are compared
            without them.
    """

    adapter: str
    model: str
    streamed: bool = False
    volatile: frozenset[str] = frozenset()

    def write_program(self, folder: Path) -> Path:
        """Write the program into a folder, and return its path."""
        file = folder / f"standard_{self.adapter}{'_streamed' if self.streamed else ''}.py"
        listener = "told.append" if self.streamed else "None"
        file.write_text(_PROGRAM.format(adapter=self.adapter, model=self.model, listener=listener))
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
            Reply(ANSWER, pieces=4),
        )

    def outcome(self, folder: Path, server: ModelServer, transcript: list[Any]) -> Outcome:
        """Read what came of a run from the folder that it wrote to."""
        result = json.loads((folder / "result.json").read_text())
        fresh, replayed = result["usage"]["fresh"], result["usage"]["replayed"]
        _check_marks(result["told"])
        return Outcome(
            answer=result["output"],
            requests=server.journal.per_turn(user=QUESTION),
            effects=Counter((folder / "effects").read_text().split("\n")[:-1]),
            transcript=tuple(self._lasting(message) for message in transcript),
            usage={name: fresh[name] + replayed[name] for name in fresh},
            told=tuple((kind, text) for kind, text, _ in result["told"]),
            fresh=fresh["requests"],
        )

    def _lasting(self, value: Any) -> Any:
        """A message without what is volatile."""
        if isinstance(value, dict):
            return {name: self._lasting(item) for name, item in value.items() if name not in self.volatile}
        if isinstance(value, list):
            return [self._lasting(item) for item in value]
        return value


def _check_marks(told: list[tuple[str, str, bool]]) -> None:
    """The pieces of a turn are marked as replayed when the turn is."""
    pieces: list[bool] = []
    for kind, text, replayed in told:
        if kind == "text delta":
            pieces.append(replayed)
            continue
        assert set(pieces) <= {replayed}, f"The pieces of {text!r} are marked {pieces}, and the turn {replayed}."
        pieces = []
