"""A wrong argument is refused by every adapter in the same words, before anything is asked."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import pytest

ADAPTERS = sorted(
    path.name for path in Path(__file__).parents[1].glob("plugins/*") if path.is_dir() and path.name != "core"
)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"input": 5}, "input is 5; give what the user says"),
        ({"input": "hi", "model": 5}, "model is 5; give a model's name"),
        ({"input": "hi", "name": " "}, "name is ' '; give the agent a name"),
        ({"input": "hi", "durable": "no"}, "durable is 'no'; give True or False"),
        ({"input": "hi", "memory_retention": 5}, "memory_retention is 5; give a Retention"),
        ({"input": "hi", "tools": [Path], "model": "openai:gpt-4.1"}, "Path is a class"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_argument_is_refused(adapter: str, arguments: dict[str, object], said: str) -> None:
    module = importlib.import_module(f"flyteplugins.agents.{adapter}")
    with pytest.raises((TypeError, ValueError), match=said):
        asyncio.run(module.run_agent(**arguments))
