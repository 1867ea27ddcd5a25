"""Golden records of a deep agent: files, two sub-agents side by side, one with a model of its own, and their tools.

python -m flyteplugins.agents.conformance.kit golden plugins/langchain/tests/test_deep_golden.py
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import flyte
import pytest

from flyteplugins.agents.conformance.kit import checks, load_adapters, run_check
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.langchain import tool

env = flyte.TaskEnvironment("deep_golden")


@tool
@env.task(cache="disable")
async def temperature(city: str) -> str:
    """The temperature in a city."""
    return f"{5 * len(city)} degrees"


def dialogue(server: ModelServer) -> tuple[str, dict[str, Any]]:
    """Write two files, ask two experts at once, delete a file, and answer."""
    server.script(
        "Which is warmer",
        Reply(
            calls=(
                call("write_file", file_path="/plan.md", content="ask both"),
                call("write_file", file_path="/draft.md", content="?"),
            )
        ),
        Reply(
            calls=(
                call("task", description="How warm is Oslo", subagent_type="north"),
                call("task", description="How warm is Rome", subagent_type="south"),
            )
        ),
        Reply(calls=(call("delete", file_path="/draft.md"),)),
        "Equal.",
    )
    for city in ("Oslo", "Rome"):
        server.script(f"How warm is {city}", Reply(calls=(call("temperature", city=city),)), f"20 in {city}")
    expert = {"description": "Knows it.", "system_prompt": "You know it.", "tools": [temperature]}
    subagents = [{"name": "north", "model": "openai:gpt-4.1-mini", **expert}, {"name": "south", **expert}]
    return "Which is warmer?", {"model": "openai:gpt-4.1", "tools": [], "subagents": subagents}


(LANGCHAIN,) = load_adapters([Path(__file__).with_name("test_conformance.py")])
DEEP = replace(LANGCHAIN, title="Deep Agents", distribution="deepagents", dialogue=dialogue)
del LANGCHAIN  # it is declared elsewhere


@pytest.mark.parametrize("paragraph", ["records.golden", "records.format"])
def test_golden_records_of_a_deep_agent_replay_and_have_the_form_of_todays(paragraph: str) -> None:
    asyncio.run(run_check(checks()[paragraph], DEEP))
