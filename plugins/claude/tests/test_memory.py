"""Conversations that go on from run to run, whatever process, folder or session they are in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions
from claude_agent_sdk.testing import run_session_store_conformance

from flyteplugins.agents.claude import run_agent, tool
from flyteplugins.agents.claude._session import MemorySession, import_v0, messages_of, repair_messages
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import JSON, Folder, MemoryStore

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("memory")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def twice(a: int) -> int:
    """Double a number."""
    return 2 * a


@env.task
async def chat(message: str, instructions: str = "", other_tool: bool = False) -> str:
    tools = [twice] if other_tool else [add]
    return await run_agent(message, memory_key="ada", instructions=instructions or None, tools=tools)


async def kept_messages(home: Path, key: str) -> list[Any]:
    [folder] = (home / ".flyte" / "agents" / "memory").rglob(key)
    return await MemoryStore(key, Folder.at(str(folder))).messages("claude")


async def test_the_sdks_own_suite_for_session_stores_passes() -> None:
    await run_session_store_conformance(MemorySession)


async def test_the_next_run_knows_what_was_said_and_has_its_own_instructions_and_tools(
    model_env: ModelServer, run_task: RunTask, home: Path
) -> None:
    model_env.script("one and two", Reply(calls=(call("add", a=1, b=2),)), Reply("It is 3."))
    await run_task(chat, message="one and two", instructions="You are slow.", name="one")
    model_env.script("and twice", Reply(calls=(call("twice", a=3),)), Reply("It is 6."))
    await run_task(chat, message="and twice", instructions="You are quick.", other_tool=True, name="two")
    asked = model_env.journal.requests()[2].body
    system = json.dumps(asked["system"])
    assert "You are quick." in system
    assert "You are slow." not in system
    offered = [one["name"] for one in asked["tools"] if not one.get("defer_loading")]
    assert offered == ["mcp__flyte_tools__twice"]
    said = json.dumps(asked["messages"])
    assert said.index("one and two") < said.index("It is 3.") < said.index("and twice")
    assert said.count("one and two") == 1
    kept = await kept_messages(home, "ada")
    assert [message["role"] for message in kept] == ["user", "assistant", "user", "assistant"] * 2
    assert kept[2]["content"][0]["content"] == [{"type": "text", "text": "3"}]
    assert "system-reminder" not in json.dumps(kept)


@env.task
async def two_at_once() -> list[str]:
    return list(
        await asyncio.gather(
            run_agent("My name is Ada", memory_key="both", name="first"),
            run_agent("My dog is Rex", memory_key="both", name="second"),
        )
    )


async def test_two_runs_at_once_with_one_key_lose_nothing(
    model_env: ModelServer, run_task: RunTask, home: Path
) -> None:
    model_env.script("My name is Ada", "Hello Ada")
    model_env.script("My dog is Rex", "Hello Rex")
    assert await run_task(two_at_once) == ["Hello Ada", "Hello Rex"]
    kept = await kept_messages(home, "both")
    said = [message["content"] if message["role"] == "user" else message["content"][0]["text"] for message in kept]
    pairs = {("My name is Ada", "Hello Ada"), ("My dog is Rex", "Hello Rex")}
    assert {(said[0], said[1]), (said[2], said[3])} == pairs
    assert len(said) == 4


@env.task
async def delegate() -> str:
    helper = AgentDefinition(description="Adds.", prompt="You add numbers.", tools=["mcp__flyte_tools__add"])
    return await run_agent("delegate", tools=[add], subagents={"adder": helper}, memory_key="team")


async def test_the_transcripts_of_subagents_are_kept_and_given_back(
    model_env: ModelServer, run_task: RunTask, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_env.script(
        "delegate",
        Reply(calls=(call("Agent", description="add", prompt="one and two", subagent_type="adder"),)),
        Reply("The helper said 3."),
    )
    model_env.script("one and two", Reply(calls=(call("add", a=1, b=2),)), Reply("It is 3."))
    found: list[dict[str, bytes]] = []
    filled = MemorySession.fill

    async def fill(self: MemorySession) -> None:
        found.append(self._kept)
        await filled(self)
        key: Any = {"project_key": next(iter(self._store)).split("/")[0], "session_id": self.session_id}
        assert len(await self.list_subkeys(key)) == len(self._kept)

    monkeypatch.setattr(MemorySession, "fill", fill)
    await run_task(delegate, name="one")
    assert "It is 3." not in json.dumps((await kept_messages(home, "team"))[-1])
    model_env.clear()
    model_env.script("delegate", "I know that already.")
    assert await run_task(delegate, name="two") == "I know that already."
    [given] = found
    [(path, content)] = given.items()
    assert path.startswith("claude/subagents/")
    assert b"It is 3." in content


async def test_a_memory_and_a_session_exclude_each_other(model_env: ModelServer) -> None:
    with pytest.raises(ValueError, match="memory_key= and options= with resume"):
        await run_agent("hello", memory_key="ada", options=ClaudeAgentOptions(resume="0001"))
    assert model_env.journal.count() == 0


def use(*ids: str) -> dict[str, JSON]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": one, "name": "t", "input": {}} for one in ids]}


def results(*ids: str) -> dict[str, JSON]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": "x"} for one in ids]}


def ids_of(message: Any) -> list[str]:
    return [block.get("tool_use_id") for block in message["content"]]


def test_calls_without_results_and_results_without_calls_are_mended() -> None:
    hello: dict[str, JSON] = {"role": "user", "content": "hello"}
    mended: Any = repair_messages([hello, results("z"), use("a", "b"), results("b"), use("c"), hello, use("d")])
    roles = " ".join(str(message["role"]) for message in mended)
    assert roles == "user assistant user assistant user user assistant user"
    assert ids_of(mended[2]) == ["a", "b"]
    assert ids_of(mended[4]) == ["c"]
    assert ids_of(mended[7]) == ["d"]
    assert "no result" in json.dumps(mended[4])
    assert repair_messages(mended) == mended


def test_a_session_is_read_as_the_messages_that_the_api_knows() -> None:
    """One entry per block, results as they came: together and in order."""

    def entry(kind: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"type": kind, "message": message, "uuid": "u", "sessionId": "s", "cwd": "/x", "timestamp": "t", **more}

    def block(one: str, identity: str = "msg_1") -> dict[str, Any]:
        content = [{"type": "tool_use", "id": one, "name": "t", "input": {}}]
        return {"id": identity, "role": "assistant", "model": "m", "content": content}

    entries = [
        {"type": "queue-operation", "operation": "enqueue"},
        entry("user", {"role": "user", "content": "hello"}),
        {"type": "attachment", "attachment": {"type": "date"}},
        entry("assistant", block("a")),
        entry("user", results("a")),
        entry("assistant", block("b")),
        entry("assistant", block("c")),
        entry("user", results("c")),
        entry("user", results("b")),
        entry("user", {"role": "user", "content": "aside"}, isSidechain=True),
        {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted"},
        entry("user", {"role": "user", "content": "so far: hello"}, isCompactSummary=True),
    ]
    found = messages_of(entries)
    assert found[0] == {"role": "user", "content": "hello"}
    assert [one["id"] for one in found[1]["content"]] == ["a", "b", "c"]
    assert ids_of(found[2]) == ["a", "b", "c"]
    assert found[3:] == [
        {"role": "system", "subtype": "compact_boundary", "content": "Conversation compacted"},
        {"role": "user", "content": "so far: hello", "isCompactSummary": True},
    ]


def test_a_memory_of_another_implementation_is_read_and_nothing_else_is() -> None:
    kept = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello!"}]
    path = "claude/transcript.json"
    assert import_v0({path: json.dumps(kept).encode()}).messages == kept
    for other in ([{"role": "user"}], ["hello"], [{"role": "tool", "content": "x"}]):
        with pytest.raises(ValueError, match=r"\[0\] is no message"):
            import_v0({path: json.dumps(other).encode()})


async def test_what_was_summarized_is_not_sent_again() -> None:
    history: list[JSON] = [
        {"role": "user", "content": "long ago"},
        {"role": "system", "subtype": "compact_boundary", "content": ""},
        {"role": "user", "content": "in short", "isCompactSummary": True},
    ]
    session = MemorySession(history)
    await session.fill()
    assert "in short" in json.dumps(session._store)
    assert "long ago" not in json.dumps(session._store)
