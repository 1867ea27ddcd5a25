"""A memory key continues a conversation; each message is kept once, and what was taken out stays out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from flyteplugins.agents.conformance.crash import kept_messages
from flyteplugins.agents.conformance.models import Conversation, ModelServer, Reply
from flyteplugins.agents.core import JSON
from flyteplugins.agents.langchain import MemoryStore, run_agent
from flyteplugins.agents.langchain._codec import pack
from flyteplugins.agents.langchain._session import import_v0, new_messages, repair_messages

RunTask = Callable[..., Any]
Said = Callable[[], Coroutine[Any, Any, list[str]]]

MODEL = "openai:gpt-4.1"
env = flyte.TaskEnvironment("memory")


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


def how_many(conversation: Conversation) -> Reply:
    """Says how many messages it was sent."""
    return Reply(f"{len(conversation.messages)} messages")


@pytest.fixture
def said(home: Path) -> Said:
    """What is kept under the key `ada`, as text."""

    async def read() -> list[str]:
        memories = home / ".flyte" / "agents" / "memory"
        kept = repair_messages(await asyncio.to_thread(kept_messages, memories, "ada"))
        return [str(message.text) for message in messages_from_dict(kept)]  # type: ignore[arg-type]

    return read


@env.task
async def talk(message: str, instructions: str = "Be brief.") -> str:
    return str(await run_agent(message, model=MODEL, instructions=instructions, memory_key="ada"))


async def test_a_conversation_goes_on_and_new_instructions_apply(
    model_env: ModelServer, run_task: RunTask, said: Said
) -> None:
    model_env.script(None, lambda one: Reply(f"{one.system} {len(one.messages)}"), repeat_last=True)
    first = await run_task(talk, message="One", name="one")
    second = await run_task(talk, message="Two", instructions="Be long.", name="two")
    assert first.startswith("Be brief.")
    assert second.startswith("Be long.")
    assert int(second.split()[-1]) == int(first.split()[-1]) + 2
    assert await said() == ["One", first, "Two", second]


async def test_a_resume_starts_from_the_transcript_that_the_first_attempt_saw_and_keeps_its_messages_once(
    model_env: ModelServer, run_task: RunTask, said: Said
) -> None:
    model_env.script(None, how_many, repeat_last=True)
    await run_task(talk, message="One", name="one")
    state = {"crash": True}

    @env.task
    async def two() -> str:
        answer = str(await run_agent("Two", model=MODEL, instructions="Be brief.", memory_key="ada"))
        if state["crash"]:
            raise Crash("Crash")
        return answer

    with pytest.raises(Exception, match="Crash"):
        await run_task(two, name="two")
    await run_task(talk, message="Between", name="between")
    state["crash"] = False
    requests = model_env.journal.count()
    answer = await run_task(two, name="two")
    assert model_env.journal.count() == requests
    assert (await said()).count("Two") == 1
    assert (await said())[2:4] == ["Two", answer]


class Forget(AgentMiddleware[Any, Any]):
    """Takes the first message out of the conversation."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if len(state["messages"]) < 3:
            return None
        return {"messages": [RemoveMessage(id=state["messages"][0].id)]}


async def test_what_a_run_took_out_of_the_conversation_stays_out(
    model_env: ModelServer, run_task: RunTask, said: Said
) -> None:
    model_env.script(None, Reply("Yes."), repeat_last=True)

    @env.task
    async def forgetful(message: str) -> str:
        return str(await run_agent(message, model=MODEL, middleware=[Forget()], memory_key="ada"))

    await run_task(forgetful, message="My secret", name="one")
    assert await said() == ["My secret", "Yes."]
    await run_task(forgetful, message="Two", name="two")
    assert await said() == ["Yes.", "Two", "Yes."]
    await run_task(talk, message="Three", name="three")
    assert "My secret" not in json.dumps(model_env.journal.requests()[-1].body)


async def test_a_pre_built_graph_has_a_memory_and_binary_content_survives(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, Reply("Seen."), repeat_last=True)
    graph = create_agent(MODEL)
    picture = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
    states: list[list[BaseMessage]] = []

    @env.task
    async def show(second: bool) -> str:
        content: list[Any] = [{"type": "text", "text": "And?" if second else "Look"}, *([] if second else [picture])]
        result = await run_agent([HumanMessage(content)], agent=graph, memory_key="ada", full_result=True)
        states.append(result.native["messages"])
        return str(result.text)

    await run_task(show, second=False, name="one")
    await run_task(show, second=True, name="two")
    assert states[1][0].content == states[0][0].content
    assert picture in states[1][0].content


async def test_a_memory_that_has_no_place_is_an_error_where_the_caller_says_so(model_env: ModelServer) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)
    assert await run_agent("Hi", model=MODEL, memory_key="ada") == "Hello."
    with pytest.raises(Exception, match="no place for the memory"):
        await run_agent("Hi", model=MODEL, memory_key="ada", memory_required=True)


def kept(*messages: BaseMessage) -> list[JSON]:
    return [pack(message_to_dict(message)) for message in messages]


def calls(*ids: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "t", "args": {}, "id": one, "type": "tool_call"} for one in ids])


def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_is_dropped() -> None:
    repaired = messages_from_dict(
        repair_messages(  # type: ignore[arg-type]
            kept(
                ToolMessage("lost", tool_call_id="0"),
                HumanMessage("Hi"),
                calls("1", "2"),
                ToolMessage("one", tool_call_id="1"),
                ToolMessage("one again", tool_call_id="1"),
                HumanMessage("And?"),
                calls("3"),
            )
        )
    )
    assert [(one.type, str(one.text)[:7]) for one in repaired] == [
        ("human", "Hi"),
        ("ai", ""),
        ("tool", "one"),
        ("tool", "The run"),
        ("human", "And?"),
        ("ai", ""),
        ("tool", "The run"),
    ]
    assert [one.tool_call_id for one in repaired if isinstance(one, ToolMessage)] == ["1", "2", "3"]
    assert all(one.id for one in repaired)


def test_messages_are_equal_for_equal_ones_and_each_of_two_equal_ones_can_be_removed() -> None:
    log = kept(HumanMessage("Hi"), AIMessage("Yes."), HumanMessage("Hi"), AIMessage("Yes."))
    assert repair_messages(log) == repair_messages(log)
    history = messages_from_dict(repair_messages(log))  # type: ignore[arg-type]
    assert len({one.id for one in history}) == 4
    left = [*history[:2], history[3], HumanMessage("New")]
    after = messages_from_dict(repair_messages([*log, *new_messages(history, left)]))  # type: ignore[arg-type]
    assert [str(one.text) for one in after] == ["Hi", "Yes.", "Yes.", "New"]


def test_nothing_is_kept_of_messages_that_are_as_they_were() -> None:
    history = messages_from_dict(repair_messages(kept(HumanMessage("Hi"), AIMessage("Yes."))))  # type: ignore[arg-type]
    assert new_messages(history, list(history)) == []


def test_a_history_of_flytes_own_store_is_taken_over_in_both_of_its_formats() -> None:
    files = {
        "langchain/history.json": json.dumps(
            [message_to_dict(HumanMessage("Hi", id="1")), {"role": "assistant", "content": "Hello."}]
        ).encode()
    }
    found = messages_from_dict(repair_messages(import_v0(files).messages))  # type: ignore[arg-type]
    assert [(one.type, one.text) for one in found] == [("human", "Hi"), ("ai", "Hello.")]


async def test_the_store_of_a_key_reads_what_was_kept(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)

    @env.task
    async def look() -> list[str]:
        await run_agent("Hi", model=MODEL, memory_key="ada")
        messages: Any = await MemoryStore.for_key("ada").messages("langchain")
        return [message["data"]["content"] for message in messages]

    assert await run_task(look) == ["Hi", "Hello."]
