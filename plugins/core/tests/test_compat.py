"""Names that programs written for other adapters use."""

from __future__ import annotations

from typing import Any

import flyte
import pytest

from flyteplugins.agents.core import (
    MemoryStore,
    ToolArgumentError,
    coerce_tool_args,
    resolve_memory,
    task_json_schema,
)

env = flyte.TaskEnvironment("compat")


@env.task
async def weather(city: str, days: list[float], unit: str = "celsius") -> str:
    """Tell the weather.

    Args:
        city: Where.
    """
    return city


def test_a_task_has_a_json_schema() -> None:
    schema = task_json_schema(weather)
    assert schema["properties"]["city"]["description"] == "Where."
    assert set(schema["properties"]) == {"city", "days", "unit"}


def test_arguments_are_read_by_the_types_of_the_task() -> None:
    assert coerce_tool_args(weather, '{"city": "Oslo", "days": [1]}') == {
        "city": "Oslo",
        "days": [1.0],
        "unit": "celsius",
    }
    with pytest.raises(ToolArgumentError, match="days"):
        coerce_tool_args(weather, {"city": "Oslo", "days": "many"})


async def test_a_memory_key_names_a_store(attempt: Any) -> None:
    async def body() -> MemoryStore | None:
        return resolve_memory("ada")

    store = await attempt(body)
    assert isinstance(store, MemoryStore)
    assert store.key == "ada"
    assert resolve_memory(None) is None
    with pytest.raises(RuntimeError, match="outside of a Flyte task"):
        resolve_memory("ada")
