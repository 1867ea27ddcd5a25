"""Memory: sessions that go on in another run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from flyteplugins.agents.adk import run_agent
from flyteplugins.agents.adk._session import import_v0, repair_events
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import AgentResult

RunTask = Callable[..., Any]
GEMINI = "gemini-3.5-flash"

pytestmark = pytest.mark.usefixtures("model_env")

env = flyte.TaskEnvironment("adk_memory")


def note(fact: str, tool_context: ToolContext) -> str:
    """Keep a fact."""
    tool_context.state["fact"] = fact
    tool_context.state["temp:passing"] = fact
    return "kept"


agent = LlmAgent(name="one", model=GEMINI, instruction="You know {fact?}.", tools=[note])


@env.task(retries=1)
async def chat(message: str, key: str) -> str:
    result: AgentResult[Any] = await run_agent(message, agent=agent, memory_key=key, full_result=True)
    return result.text


async def test_another_run_goes_on_with_the_conversation_and_its_state(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    model_server.script("my colour", Reply(calls=(call("note", fact="blue"),)), "Noted.")
    model_server.script("which", "It is blue.")
    assert await run_task(chat, "my colour is blue", run_name, name=run_name) == "Noted."
    assert await run_task(chat, "which was it?", run_name, name=f"{run_name}-2") == "It is blue."
    [last] = model_server.journal.requests(user="which was it?")
    assert "You know blue." in json.dumps(last.body)
    assert "my colour is blue" in json.dumps(last.body)
    assert "temp:passing" not in json.dumps(last.body)


async def test_attempts_that_fail_leave_one_copy(run_task: RunTask, run_name: str, model_server: ModelServer) -> None:
    """The attempt after one that failed starts from the same session, and commits once; so does a run of the same name."""
    model_server.script("first", "one")
    model_server.script("second", "two")
    model_server.fault(Fault.error(500, times=1), user="the first")
    for _ in range(2):
        assert await run_task(chat, "the first", run_name, name=run_name) == "one"
    assert await run_task(chat, "the second", run_name, name=f"{run_name}-2") == "two"
    [last] = model_server.journal.requests(user="the second")
    assert [content["parts"][0]["text"] for content in last.body["contents"]] == ["the first", "one", "the second"]


async def test_new_instructions_apply_to_an_old_conversation(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    model_server.script("hello", "hi", repeat_last=True)

    @env.task
    async def other(message: str, instructions: str, key: str) -> str:
        return await run_agent(message, model=GEMINI, instructions=instructions, memory_key=key)

    await run_task(other, "hello", "Be short.", run_name, name=run_name)
    await run_task(other, "hello again", "Be long.", run_name, name=f"{run_name}-2")
    last = json.dumps(model_server.journal.requests()[-1].body)
    assert "Be long." in last
    assert "Be short." not in last


async def test_pictures_survive(run_task: RunTask, run_name: str, model_server: ModelServer) -> None:
    model_server.script("picture", "seen", repeat_last=True)
    picture = types.Part.from_bytes(data=b"\x89PNG\xff\xfe", mime_type="image/png")

    @env.task
    async def look(words: str, with_picture: bool, key: str) -> str:
        given: str | list[str | types.Part] = [words, picture] if with_picture else words
        return await run_agent(given, model=GEMINI, memory_key=key)

    await run_task(look, "a picture", True, run_name, name=run_name)
    await run_task(look, "which picture?", False, run_name, name=f"{run_name}-2")
    first, last = (request.body["contents"][0]["parts"] for request in model_server.journal.requests())
    assert first == last
    assert len(first) == 2


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_what_was_said_is_kept_whole_and_streamed(
    run_task: RunTask, run_name: str, model_server: ModelServer, streaming: bool
) -> None:
    """Thoughts and calls as well."""
    model_server.script(
        "my colour",
        Reply("Let me", calls=(call("note", fact="blue"),), thinking="hm", pieces=2),
        Reply("Noted.", pieces=2),
    )
    model_server.script("which", "It is blue.")

    @env.task
    async def ask(message: str, key: str) -> str:
        return str(await run_agent(message, agent=agent, memory_key=key, streaming=streaming))

    assert await run_task(ask, "my colour is blue", run_name, name=run_name) == "Noted."
    assert await run_task(ask, "which was it?", run_name, name=f"{run_name}-2") == "It is blue."
    [last] = model_server.journal.requests(user="which was it?")
    assert all(word in json.dumps(last.body) for word in ("Let me", "functionCall", "kept", "Noted."))


async def test_what_cannot_be_kept_in_the_state_is_an_error_that_names_it(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """Whoever puts it there: here a callback, whose changes are no tool's."""
    model_server.script("hello", "hi")

    def spoil(callback_context: Any) -> None:
        callback_context.state["thing"] = object()

    spoiled = LlmAgent(name="one", model=GEMINI, before_agent_callback=spoil)

    @env.task
    async def keep(message: str, key: str) -> str:
        return str(await run_agent(message, agent=spoiled, memory_key=key))

    with pytest.raises(flyte.errors.RuntimeUserError, match=r"state\['thing'\].*name the key temp:thing"):
        await run_task(keep, "hello", run_name, name=run_name)


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    """The same on every attempt, and nothing else is changed."""

    def event(number: int, **part: Any) -> Any:
        return {"id": str(number), "author": "one", "timestamp": 1.0, "content": {"role": "model", "parts": [part]}}

    calls = event(1, function_call={"id": "a", "name": "f", "args": {}})
    said = event(2, text="on")
    mended = repair_events([calls, said])
    assert mended[0] == calls
    assert mended[2] == said
    assert "this call has no result" in json.dumps(mended[1])
    assert repair_events([calls, said]) == mended
    answered = [calls, event(3, function_response={"id": "a", "name": "f", "response": {"result": "r"}}), said]
    assert repair_events(answered) == answered


def test_a_memory_of_2x_is_taken_over() -> None:
    events = [
        {"author": "user", "content": {"role": "user", "parts": [{"text": "hello"}]}, "id": "1", "timestamp": 1.0}
    ]
    assert import_v0({"google/events.json": json.dumps(events).encode()}).messages == events
    with pytest.raises(ValueError, match="validation error"):
        import_v0({"google/events.json": b'[{"content": 3}]'})
