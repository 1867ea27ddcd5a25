"""Conversations that go on from run to run, with what the server keeps of them and without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from mistralai.client import Mistral

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import JSON, Event, MemoryNotice
from flyteplugins.agents.mistral import run_agent
from flyteplugins.agents.mistral._session import import_v0, repair_entries

RunTask = Callable[..., Any]

MODES = pytest.mark.parametrize("server_state", [False, True], ids=["stateless", "server state"])

env = flyte.TaskEnvironment("memory")


def on_server(server: ModelServer) -> Any:
    return Mistral(api_key="k", server_url=server.mistral_server_url).beta.conversations


def paths(server: ModelServer) -> list[str]:
    return [entry.path.removeprefix("/mistral/v1/") for entry in server.journal.requests()]


@env.task
async def chat(message: str, mode: dict[str, bool], instructions: str = "") -> str:
    server_state = mode.get("server_state", False)
    return await run_agent(message, memory_key="ada", instructions=instructions or None, server_state=server_state)


@MODES
async def test_the_next_run_knows_what_was_said(model_env: ModelServer, run_task: RunTask, server_state: bool) -> None:
    mode = {"server_state": server_state}
    await run_task(chat, message="My name is Ada", mode=mode, name="one")
    assert "Ada" in await run_task(chat, message="What is my name?", mode=mode, name="two")
    first, second = paths(model_env)
    assert first == "conversations"
    assert second.startswith("conversations/conv_") == server_state


async def test_each_mode_goes_on_from_what_the_other_left(model_env: ModelServer, run_task: RunTask) -> None:
    """The server's copy counts only while it holds exactly what the transcript does."""
    for number, server_state in enumerate((True, False, True, True)):
        message = "My name is Ada" if number == 0 else "What is my name?"
        answer = await run_task(chat, message=message, mode={"server_state": server_state}, name=str(number))
        assert "Ada" in answer
    asked = paths(model_env)
    assert asked[:3] == ["conversations"] * 3
    assert asked[3].startswith("conversations/conv_")
    kinds = [entry["type"] for entry in model_env.journal.requests()[2].body["inputs"]]
    assert kinds == ["message.input", "message.output"] * 2 + ["message.input"]


@MODES
async def test_new_instructions_and_tools_apply_to_an_old_key(
    model_env: ModelServer, run_task: RunTask, server_state: bool
) -> None:
    model_env.script("tools", lambda conversation: Reply(f"{conversation.system}; {len(conversation.tools)} tools"))
    model_env.script("start", Reply("started"))

    def other() -> str:
        """Something else."""
        return ""

    @env.task
    async def with_tool() -> str:
        return str(
            await run_agent(
                "tools", memory_key="ada", instructions="Be brief.", tools=[other], server_state=server_state
            )
        )

    await run_task(chat, message="start", mode={"server_state": server_state}, instructions="Be long.", name="one")
    assert await run_task(with_tool, name="two") == "Be brief.; 1 tools"
    assert [entry["type"] for entry in model_env.journal.requests()[1].body["inputs"]] == [
        "message.input", "message.output", "message.input",
    ]  # fmt: skip


@MODES
@pytest.mark.parametrize("on_tool_error", ["model", "raise"])
async def test_a_run_whose_tool_failed_does_not_break_the_next(
    model_env: ModelServer, run_task: RunTask, server_state: bool, on_tool_error: Any
) -> None:
    """A failed run leaves nothing in the memory; in the server's conversation it leaves a call without a result."""
    model_env.script("break", Reply(calls=(call("broken"),)), Reply("It broke."))
    model_env.script("hello", Reply("Hello."))
    model_env.script("again", lambda conversation: Reply(f"{len(conversation.messages)} messages"))
    mode = {"server_state": server_state}

    def broken() -> str:
        """Fail."""
        raise ValueError("it is broken")

    @env.task
    async def breaking(message: str) -> str:
        return str(
            await run_agent(
                message, memory_key="ada", tools=[broken], on_tool_error=on_tool_error, server_state=server_state
            )
        )

    del mode
    assert await run_task(breaking, message="hello", name="one") == "Hello."
    if on_tool_error == "raise":
        with pytest.raises(flyte.errors.RuntimeUserError, match="it is broken"):
            await run_task(breaking, message="break", name="two")
    else:
        assert await run_task(breaking, message="break", name="two") == "It broke."
    said = await run_task(breaking, message="again", name="three")
    assert said == ("3 messages" if on_tool_error == "raise" else "7 messages")


async def test_a_deleted_conversation_starts_anew_from_the_transcript_with_a_warning(
    model_env: ModelServer, run_task: RunTask
) -> None:
    notices: list[str] = []

    @env.task
    async def asking(message: str) -> str:
        def watch(event: Event) -> None:
            if isinstance(event, MemoryNotice):
                notices.append(event.message)

        return str(await run_agent(message, memory_key="ada", server_state=True, on_event=watch))

    await run_task(asking, message="My name is Ada", name="one")
    conversations = on_server(model_env)
    for one in await conversations.list_async():
        await conversations.delete_async(conversation_id=getattr(one, "root", one).id)
    assert "Ada" in await run_task(asking, message="What is my name?", name="two")
    assert any("is not on the server any more. A new one starts" in notice for notice in notices)
    notices.clear()
    assert "Ada" in await run_task(asking, message="What is my name?", name="three")
    assert not any("not on the server" in notice for notice in notices)


async def test_a_conversation_that_somebody_else_went_on_with_is_branched(
    model_env: ModelServer, run_task: RunTask
) -> None:
    mode = {"server_state": True}
    await run_task(chat, message="My name is Ada", mode=mode, name="one")
    conversations = on_server(model_env)
    [kept] = [getattr(one, "root", one).id for one in await conversations.list_async()]
    await conversations.append_async(conversation_id=kept, inputs="My name is Bob")
    assert "Ada" in await run_task(chat, message="What is my name?", mode=mode, name="two")
    assert paths(model_env)[-1] == f"conversations/{kept}/restart"
    assert len((await conversations.get_history_async(conversation_id=kept)).entries) == 4


async def test_a_memory_of_the_former_implementation_is_taken_over_with_its_entries(
    model_env: ModelServer, run_task: RunTask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It kept the id of a conversation on the server and nothing else. Once taken over, the server's copy may go."""
    from flyteplugins.agents.core import Folder
    from flyteplugins.agents.core._memory import _store

    conversations = on_server(model_env)
    started = await conversations.start_async(model="mistral-large-latest", inputs="My name is Ada")
    folder = tmp_path / "v0" / "mistral"
    folder.mkdir(parents=True)
    (folder / "conversation_id").write_text(started.conversation_id)
    monkeypatch.setattr(_store, "v0_folder", lambda key, scope: Folder.at(str(tmp_path / "v0")))
    model_env.journal.clear()
    assert "Ada" in await run_task(chat, message="What is my name?", mode={}, name="one")
    await conversations.delete_async(conversation_id=started.conversation_id)
    assert "Ada" in await run_task(chat, message="What is my name?", mode={}, name="two")
    kinds = [entry["type"] for entry in model_env.journal.requests()[-1].body["inputs"]]
    assert kinds == ["message.input", "message.output"] * 2 + ["message.input"]


def test_an_id_that_is_none_is_not_taken_over() -> None:
    assert import_v0({"mistral/conversation_id": b'"conv_1"\n'}).messages == [
        {"type": "flyte.conversation", "conversation_id": "conv_1"}
    ]
    for data in (b"", b"two words"):
        with pytest.raises(ValueError, match="holds no conversation id"):
            import_v0({"mistral/conversation_id": data})


def test_calls_without_a_result_and_results_without_a_call_are_mended() -> None:
    def a_call(number: int) -> JSON:
        return {"type": "function.call", "tool_call_id": f"c{number}", "name": "f", "arguments": "{}"}

    def a_result(number: int) -> JSON:
        return {"type": "function.result", "tool_call_id": f"c{number}", "result": "r"}

    said: JSON = {"type": "message.input", "role": "user", "content": "x"}
    whole = [said, a_call(1), a_call(2), a_result(1), a_result(2), said]
    assert repair_entries(whole) == whole
    [first, one, two, result, made_up, last] = repair_entries([said, a_call(1), a_call(2), a_result(1), said])
    assert [first, one, two, last] == [said, a_call(1), a_call(2), said]
    by_call = {entry["tool_call_id"]: entry["result"] for entry in (result, made_up)}  # type: ignore[index,call-overload]
    assert by_call["c1"] == "r"
    assert "no result" in str(by_call["c2"])
    assert repair_entries([said, a_result(3)]) == [said]
