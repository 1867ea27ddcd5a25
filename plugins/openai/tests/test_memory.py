"""A memory key continues a conversation in another run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from agents import SQLiteSession

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import MemoryNotice
from flyteplugins.agents.openai import run_agent

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("memory")


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


@env.task
async def chat(message: str, memory_key: str = "ada") -> str:
    return str(await run_agent(message, tools=[lookup], memory_key=memory_key))


async def test_the_second_run_knows_what_the_first_was_told(model_env: ModelServer, run_task: RunTask) -> None:
    assert await run_task(chat, message="My name is Ada", name="one")
    assert "Ada" in await run_task(chat, message="What is my name?", name="two")
    assert "Ada" not in await run_task(chat, message="What is my name?", memory_key="bob", name="three")


async def test_a_tool_call_and_its_result_go_on_together(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("where", Reply(calls=(call("lookup", city="Oslo"),), thinking="Hm."), Reply("Oslo."))
    await run_task(chat, message="where", name="one")
    model_env.script("again", Reply("As before."))
    await run_task(chat, message="again", name="two")  # the strict server refuses a history with a dangling call
    kinds = [item.get("type", "message") for item in model_env.journal.requests()[-1].body["input"]]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output", "message", "message"]


async def test_two_runs_at_once_lose_nothing(model_env: ModelServer, run_task: RunTask, home: Path) -> None:
    model_env.script("number", Reply("noted"), repeat_last=True)

    @env.task
    async def both() -> None:
        await asyncio.gather(*(run_agent(f"number {number}", memory_key="ada") for number in range(5)))

    await run_task(both)
    segments = [json.loads(path.read_text()) for path in (home / ".flyte").rglob("transcript/openai/*.json")]
    said = sorted(segment["messages"][0]["content"] for segment in segments)
    assert said == [f"number {number}" for number in range(5)]
    assert all(len(segment["messages"]) == 2 for segment in segments)


async def test_an_attempt_starts_from_the_transcript_that_the_first_attempt_saw(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("first", Reply("ok"), repeat_last=True)
    model_env.script("meanwhile", Reply("ok"), repeat_last=True)
    state = {"crash": True}

    @env.task
    async def asking() -> str:
        answer = await run_agent("first", memory_key="ada", name="asker")
        if state["crash"]:
            raise RuntimeError("crash")
        return str(answer)

    model_env.script("before", Reply("ok"))
    await run_task(chat, message="before", name="zero")
    with pytest.raises(Exception, match="crash"):
        await run_task(asking, name="one")
    await run_task(chat, message="meanwhile", name="two")
    state["crash"] = False
    asked = model_env.journal.count()
    await run_task(asking, name="one")
    assert model_env.journal.count() == asked


async def test_a_run_that_fails_leaves_no_message(model_env: ModelServer, run_task: RunTask, home: Path) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), repeat_last=True)

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", tools=[lookup], memory_key="ada", max_turns=3))

    with pytest.raises(Exception, match="Max turns"):
        await run_task(asking)
    assert not [*(home / ".flyte").rglob("transcript/openai/*.json")]


@pytest.mark.parametrize("key", ["a/b", "..", "", " ", "a\\b", "line\nbreak"])
async def test_a_key_that_is_not_one_path_segment_is_refused(
    model_env: ModelServer, run_task: RunTask, key: str
) -> None:
    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi?", memory_key=key))

    with pytest.raises(Exception, match="one path segment"):
        await run_task(asking)
    assert model_env.journal.count() == 0


async def test_keys_that_differ_in_case_or_accents_are_different_memories(
    model_env: ModelServer, run_task: RunTask, home: Path
) -> None:
    model_env.script(None, Reply("ok"), repeat_last=True)
    keys = ["ada", "Ada", "ADA", "àda", "a da", "a-da", "x" * 300]
    for number, key in enumerate(keys):
        await run_task(chat, message="Hi", memory_key=key, name=str(number))
    folders = {path.parents[2].name for path in (home / ".flyte").rglob("transcript/openai/*.json")}
    assert len(folders) == len({folder.lower() for folder in folders}) == len(keys)


async def test_a_session_and_a_memory_key_exclude_each_other(model_env: ModelServer) -> None:
    with pytest.raises(ValueError, match=r"session= and memory_key="):
        await run_agent("Hi?", memory_key="ada", session=SQLiteSession("x"))


async def test_outside_of_a_task_there_is_no_memory_and_that_is_said(model_env: ModelServer) -> None:
    notices: list[str] = []
    await run_agent(
        "My name is Ada",
        memory_key="ada",
        on_event=lambda event: notices.append(event.message) if isinstance(event, MemoryNotice) else None,
    )
    assert "goes on without memory" in notices[0]
    with pytest.raises(Exception, match="no place for the memory 'ada'"):
        await run_agent("My name is Ada", memory_key="ada", memory_required=True)
