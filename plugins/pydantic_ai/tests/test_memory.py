"""A memory key continues a conversation in another run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import JSON, Folder, MemoryNotice, MemoryStore
from flyteplugins.agents.pydantic_ai import run_agent, tool
from flyteplugins.agents.pydantic_ai._repair import NO_RESULT, import_history, repair_messages

RunTask = Callable[..., Any]
MODEL = "openai:gpt-4.1"

env = flyte.TaskEnvironment("memory")

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


@env.task
async def chat(message: str, memory_key: str = "ada", instructions: str = "") -> str:
    return str(
        await run_agent(message, model=MODEL, tools=[lookup], memory_key=memory_key, instructions=instructions or None)
    )


async def kept(home: Path, key: str = "ada") -> list[Any]:
    messages: list[Any] = []
    for folder in (home / ".flyte").rglob(key):
        messages += await MemoryStore(key, Folder.at(str(folder))).messages("pydantic_ai")
    return messages


async def test_the_second_run_knows_what_the_first_was_told(model_env: ModelServer, run_task: RunTask) -> None:
    assert await run_task(chat, message="My name is Ada", name="one")
    assert "Ada" in await run_task(chat, message="What is my name?", name="two")
    assert "Ada" not in await run_task(chat, message="What is my name?", memory_key="bob", name="three")


async def test_instructions_stay_instructions_and_are_those_of_the_run(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, "ok", repeat_last=True)
    await run_task(chat, message="first", instructions="Be brief.", name="one")
    await run_task(chat, message="second", instructions="Be long.", name="two")
    [one, two] = [entry.body for entry in model_env.journal.requests()]
    assert (one["instructions"], two["instructions"]) == ("Be brief.", "Be long.")
    assert "Be brief" not in str(two)
    assert [item["role"] for item in two["input"]] == ["user", "assistant", "user"]


async def test_a_history_with_an_image_survives_a_second_run(
    model_env: ModelServer, run_task: RunTask, home: Path
) -> None:
    model_env.script(None, "A dot.", repeat_last=True)

    @env.task
    async def show() -> str:
        image = BinaryContent(PNG, media_type="image/png")
        return str(await run_agent(["What is this?", image], model=MODEL, memory_key="ada"))

    await run_task(show, name="one")
    await run_task(chat, message="Sure?", name="two")
    [first, second] = [entry.body["input"] for entry in model_env.journal.requests()]
    assert second[0] == first[0]
    assert "image/png;base64," in str(second[0])
    [message] = [one for one in ModelMessagesTypeAdapter.validate_python(await kept(home)) if "What is" in str(one)]
    assert isinstance(message, ModelRequest)
    [prompt] = [part for part in message.parts if isinstance(part, UserPromptPart)]
    assert isinstance(prompt.content[1], BinaryContent)
    assert prompt.content[1].data == PNG


async def test_a_tool_call_and_its_result_go_on_together(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("where", Reply(calls=(call("lookup", city="Oslo"),), thinking="Hm."), "Oslo.")
    await run_task(chat, message="where", name="one")
    model_env.script("again", "As before.")
    await run_task(chat, message="again", name="two")  # the strict server refuses a history with a dangling call
    kinds = [item.get("type", "message") for item in model_env.journal.requests()[-1].body["input"]]
    assert kinds[-4:] == ["function_call", "function_call_output", "message", "message"]


async def test_two_runs_at_once_lose_nothing(model_env: ModelServer, run_task: RunTask, home: Path) -> None:
    model_env.script("number", "noted", repeat_last=True)

    @env.task
    async def both() -> None:
        await asyncio.gather(*(run_agent(f"number {number}", model=MODEL, memory_key="ada") for number in range(5)))

    await run_task(both)
    said = [message["parts"][0]["content"] for message in await kept(home) if message["kind"] == "request"]
    assert sorted(said) == [f"number {number}" for number in range(5)]


async def test_an_attempt_starts_from_the_transcript_that_the_first_attempt_saw(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, "ok", repeat_last=True)
    state = {"crash": True}

    @env.task
    async def asking() -> str:
        answer = await run_agent("first", model=MODEL, memory_key="ada", name="asker")
        if state["crash"]:
            raise RuntimeError("crash")
        return str(answer)

    await run_task(chat, message="before", name="zero")
    with pytest.raises(Exception, match="crash"):
        await run_task(asking, name="one")
    await run_task(chat, message="meanwhile", name="two")
    state["crash"] = False
    asked = model_env.journal.count()
    await run_task(asking, name="one")
    assert model_env.journal.count() == asked


async def test_a_run_that_fails_leaves_no_message(model_env: ModelServer, run_task: RunTask, home: Path) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)))

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", model=MODEL, tools=[lookup], memory_key="ada", retries=0))

    with pytest.raises(Exception, match="400"):  # the script has no second turn
        await run_task(asking)
    assert await kept(home) == []


async def test_a_history_that_is_given_counts_instead_of_the_memorys(
    model_env: ModelServer, run_task: RunTask, home: Path
) -> None:
    model_env.script(None, "ok", repeat_last=True)
    await run_task(chat, message="first", name="one")
    given: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("Given")]),
        ModelResponse(parts=[TextPart("Taken")]),
    ]

    @env.task
    async def asking() -> str:
        return str(await run_agent("second", model=MODEL, memory_key="ada", message_history=given))

    await run_task(asking, name="two")
    assert "first" not in str(model_env.journal.requests()[-1].body)
    assert "Given" in str(model_env.journal.requests()[-1].body)
    assert [message["kind"] for message in await kept(home)] == ["request", "response"] * 2


async def test_a_call_that_waits_for_approval_goes_on_in_another_run_or_is_said_to_be_left(
    model_env: ModelServer, run_task: RunTask
) -> None:
    done: list[str] = []

    @tool(requires_approval=True)
    def act(city: str) -> str:
        """Act."""
        done.append(city)
        return "acted"

    model_env.script("go", Reply(calls=(call("act", city="Oslo"),)), "done", repeat_last=True)
    model_env.script("never mind", "fine")
    agent = Agent(MODEL, name="a", tools=[act], output_type=[str, DeferredToolRequests], defer_model_check=True)
    waiting: list[str] = []

    @env.task
    async def asking(memory_key: str) -> str:
        output = await run_agent("go", agent=agent, memory_key=memory_key)
        assert isinstance(output, DeferredToolRequests)
        waiting.append(output.approvals[0].tool_call_id)
        return "waits"

    @env.task
    async def approving(memory_key: str, call_id: str) -> str:
        results = DeferredToolResults(approvals={call_id: True})
        return str(await run_agent(agent=agent, memory_key=memory_key, deferred_tool_results=results))

    @env.task
    async def going_on(memory_key: str) -> str:
        return str(await run_agent("never mind", agent=agent, memory_key=memory_key))

    assert await run_task(asking, memory_key="one", name="asked") == "waits"
    assert await run_task(approving, memory_key="one", call_id=waiting[-1], name="approved") == "done"
    assert done == ["Oslo"]
    assert await run_task(asking, memory_key="two", name="asked again") == "waits"
    assert await run_task(going_on, memory_key="two", name="left") == "fine"
    assert NO_RESULT in str(model_env.journal.requests()[-1].body)
    assert done == ["Oslo"]


def response(*ids: str) -> JSON:
    calls: list[JSON] = [{"part_kind": "tool-call", "tool_name": "act", "args": {}, "tool_call_id": one} for one in ids]
    return {"kind": "response", "parts": calls, "timestamp": "2026-01-01T00:00:00Z"}


def request(*parts: JSON) -> JSON:
    return {"kind": "request", "parts": list(parts)}


def result(one: str) -> JSON:
    return {"part_kind": "tool-return", "tool_name": "act", "content": "ok", "tool_call_id": one}


PROMPT: JSON = {"part_kind": "user-prompt", "content": "Hi"}


@pytest.mark.parametrize(
    ("messages", "ids"),
    [
        ([request(PROMPT), response("a")], [["a"]]),
        ([request(PROMPT), response("a", "b"), request(result("b"))], [["a", "b"]]),
        ([request(PROMPT), response("a"), request(PROMPT)], [["a"]]),
        ([request(PROMPT), response("a"), response("b"), request(result("b"))], [["a"], ["b"]]),
        ([request(PROMPT, result("a")), response()], []),
        ([request(PROMPT), response("a"), request(result("a"), result("a"))], [["a"]]),
    ],
)
def test_what_is_repaired_has_one_result_for_each_call(messages: list[JSON], ids: list[list[str]]) -> None:
    before = repr(messages)
    repaired = repair_messages(messages)
    assert repr(messages) == before
    found = [
        sorted(part.tool_call_id for part in message.parts if part.part_kind == "tool-return")
        for message in ModelMessagesTypeAdapter.validate_python(repaired)
        if message.kind == "request" and any(part.part_kind == "tool-return" for part in message.parts)
    ]
    assert found == ids
    assert repair_messages(repaired) == repaired


def test_a_history_of_another_implementation_is_taken_over() -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("Hi")]),
        ModelResponse(parts=[TextPart("Hello")]),
    ]
    taken = import_history({"pydantic_ai/history.json": ModelMessagesTypeAdapter.dump_json(messages)})
    assert ModelMessagesTypeAdapter.validate_python(taken.messages) == messages
    with pytest.raises(ValueError, match="validation error"):
        import_history({"pydantic_ai/history.json": b'[{"kind": "something else"}]'})


async def test_outside_of_a_task_there_is_no_memory_and_that_is_said(model_env: ModelServer) -> None:
    notices: list[str] = []
    await run_agent(
        "My name is Ada",
        model=MODEL,
        memory_key="ada",
        on_event=lambda event: notices.append(event.message) if isinstance(event, MemoryNotice) else None,
    )
    assert "goes on without memory" in notices[0]
    with pytest.raises(Exception, match="no place for the memory 'ada'"):
        await run_agent("My name is Ada", model=MODEL, memory_key="ada", memory_required=True)
