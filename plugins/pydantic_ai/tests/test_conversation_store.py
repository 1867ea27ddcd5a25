"""The SDK's conversation store on Flyte's storage: two writers know of each other, and a resume saves once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flyte
import pytest
from pydantic_ai import Agent, Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from flyteplugins.agents.pydantic_ai import FlyteConversationStore, durable_run

RunTask = Callable[..., Any]
env = flyte.TaskEnvironment("conversations")
asked: list[int] = []


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    asked.append(len(messages))
    return ModelResponse(parts=[TextPart(f"after {len(messages)}")])


agent = Agent(FunctionModel(answer), name="a")


@pytest.fixture(autouse=True)
def _forget() -> None:
    asked.clear()


async def say(store: FlyteConversationStore, text: str) -> str:
    conversation = await store.load("talk") or Conversation(conversation_id="talk")
    result = await agent.run(text, conversation=conversation)
    await store.save(result, scope="ada")
    return result.output


async def test_a_conversation_goes_on_in_another_run(run_task: RunTask) -> None:
    @env.task
    async def talk(text: str) -> str:
        async with durable_run(text):
            return await say(FlyteConversationStore("team"), text)

    assert await run_task(talk, text="one", name="one") == "after 1"
    assert await run_task(talk, text="two", name="two") == "after 3"
    assert await run_task(talk, text="three", name="three") == "after 5"


async def test_a_resume_sees_what_the_first_attempt_saw_and_saves_once(run_task: RunTask) -> None:
    state = {"crash": True}

    @env.task
    async def talk(text: str) -> str:
        async with durable_run(text):
            said = await say(FlyteConversationStore("team"), text)
        if state["crash"]:
            raise RuntimeError("crash")
        return said

    @env.task
    async def length() -> int:
        found = await FlyteConversationStore("team").load("talk")
        return len(found.messages) if found else 0

    with pytest.raises(Exception, match="crash"):
        await run_task(talk, text="one", name="one")
    state["crash"] = False
    assert await run_task(talk, text="one", name="one") == "after 1"
    assert asked == [1]
    assert await run_task(length, name="length") == 2


async def test_a_save_that_was_interrupted_behind_the_write_is_made_again_without_a_conflict(
    run_task: RunTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flyteplugins.agents.core import MemoryStore

    state = {"crash": True}
    write = MemoryStore.write_json

    async def dying(self: MemoryStore, path: str, *args: Any, **kwargs: Any) -> Any:
        done = await write(self, path, *args, **kwargs)
        if state["crash"] and "conversations" in path:
            state["crash"] = False
            raise ConnectionError("died")
        return done

    monkeypatch.setattr(MemoryStore, "write_json", dying)

    @env.task
    async def talk(text: str) -> str:
        async with durable_run(text):
            return await say(FlyteConversationStore("team"), text)

    with pytest.raises(Exception, match="died"):
        await run_task(talk, text="one", name="one")
    assert await run_task(talk, text="one", name="one") == "after 1"
    assert asked == [1]
    assert await run_task(talk, text="two", name="two") == "after 3"


async def test_of_two_writers_one_is_told_of_the_other(run_task: RunTask) -> None:
    @env.task
    async def race() -> str:
        store = FlyteConversationStore("team")
        await say(store, "one")
        first, second = await store.load("talk"), await store.load("talk")
        assert first is not None
        assert second is not None
        await store.save(await agent.run("two", conversation=first))
        with pytest.raises(ConversationConflict):
            await store.save(await agent.run("two as well", conversation=second))
        [record] = await store.read_records(scope="ada")
        assert await store.read_records(scope="bob") == []
        with pytest.raises(ConversationConflict):
            await store.delete_record("talk", expected_revision="another")
        await store.delete_record("talk", expected_revision=record.revision)
        assert await store.load("talk") is None
        return "done"

    assert await run_task(race) == "done"


async def test_outside_of_a_task_there_is_no_storage_and_that_is_said() -> None:
    with pytest.raises(RuntimeError, match="outside of a Flyte task"):
        await FlyteConversationStore("team").load("talk")
