"""The crash suite of the conformance kit on a deep agent, whose sub-agent calls the tools, and which writes a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.crash import Dialogue, Outcome
from flyteplugins.agents.conformance.crash.testing import CrashSuite
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

_SUBAGENTS = """subagents=[
            {
                "name": "meteorologist",
                "description": "Measures.",
                "system_prompt": "Measure.",
                "model": "openai:gpt-4.1-mini",
                "tools": [temperature],
            }
        ],"""


class DeepDialogue(Dialogue):
    """The standard dialogue with a sub-agent that has a model of its own."""

    def write_program(self, folder: Path) -> Path:
        """Write the program, and have it build a deep agent."""
        file = super().write_program(folder)
        text = file.read_text()
        tools = "tools=[temperature, note],"
        assert tools in text
        file.unlink()
        other = file.with_name("standard_deep.py")  # both programs may be imported in one process
        other.write_text(text.replace(tools, f"tools=[note],\n        {_SUBAGENTS}"))
        return other

    @staticmethod
    def script(server: ModelServer) -> None:
        """Tell the models what to say."""
        server.script(
            "How warm is it",
            Reply(calls=(call("task", description="Measure Oslo and Rome", subagent_type="meteorologist"),)),
            Reply(calls=(call("write_file", file_path="/warm.md", content="Oslo 20, Rome 20"),)),
            Reply(calls=(call("note", text="Oslo 20"), call("read_file", file_path="/warm.md"))),
            Reply(calls=(call("note", text="done"),)),
            Reply("Rome is warmer than Oslo.", pieces=4),
        )
        server.script(
            "Measure Oslo",
            Reply(calls=(call("temperature", city="Oslo"), call("temperature", city="Rome"))),
            "20 degrees in both",
        )

    def outcome(self, folder: Path, server: ModelServer, transcript: list[Any]) -> Outcome:
        """Read what came of a run, and of its sub-agent."""
        outcome = super().outcome(folder, server, transcript)
        measured = server.journal.per_turn(user="Measure Oslo and Rome", model="gpt-4.1-mini")
        inside = {100 + turn: times for turn, times in measured.items()}
        return dataclasses.replace(outcome, requests={**outcome.requests, **inside})


class TestCrashOfADeepAgent(CrashSuite):
    dialogue = DeepDialogue("langchain", model="openai:gpt-4.1")
    sdk = ("langchain", "langchain_core", "langgraph", "deepagents", "openai")
