"""Sessions of the caller's: read once, written once, and a memory as a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from agents import OpenAIConversationsSession, RunConfig, Runner, SQLiteSession
from agents.memory import Session, SessionSettings
from openai import AsyncOpenAI

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import MemoryStore
from flyteplugins.agents.openai import FlyteSession, run_agent

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("sessions")


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


class Notes:
    """A session that a program brings itself, which dies after it has kept some of what it is given."""

    def __init__(self, session_id: str = "notes") -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self.items: list[Any] = []
        self.dies_after: int | None = None
        self.reads = 0

    async def get_items(self, limit: int | None = None) -> list[Any]:
        self.reads += 1
        items = [{"type": "message", **item} for item in self.items]  # it may have more in it than was given
        return items if limit is None else items[-limit:]

    async def add_items(self, items: list[Any]) -> None:
        if self.dies_after is not None:
            self.items += items[: self.dies_after]
            raise Crash("Crash")
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


class Compacting(Notes):
    """One that makes itself shorter."""

    def __init__(self) -> None:
        super().__init__()
        self.compactions: list[tuple[Any, int]] = []

    async def run_compaction(self, args: Any = None) -> None:
        self.compactions.append((args, len(self.items)))


def kinds(items: list[Any]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]


WHOLE = ["user", "function_call", "function_call_output", "message"]


async def test_a_session_is_read_once_and_gets_the_messages_when_the_run_has_its_answer(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"), repeat_last=True)
    notes = Notes()
    notes.items = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}]
    during: list[int] = []
    state = {"crash": True}

    @env.task
    async def chat() -> str:
        answer = await run_agent(
            "go", tools=[lookup], session=notes, on_event=lambda event: during.append(len(notes.items))
        )
        if state["crash"]:
            raise Crash("Crash")
        return str(answer)

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    assert set(during[:-1]) == {2}
    assert kinds(notes.items) == ["user", "assistant", *WHOLE]
    state["crash"] = False
    assert await run_task(chat) == "done"
    assert kinds(notes.items) == ["user", "assistant", *WHOLE]
    assert notes.reads == 1
    assert model_env.journal.count() == 2
    assert [item["content"] for item in model_env.journal.requests()[0].body["input"]] == ["before", "yes", "go"]


@pytest.mark.parametrize("kept", [0, 1, 3, 4])
async def test_an_attempt_that_died_while_it_added_messages_is_made_whole(
    model_env: ModelServer, run_task: RunTask, kept: int
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"), repeat_last=True)
    notes = Notes()
    notes.items = [{"role": "user", "content": "go"}]  # as what the run itself says
    notes.dies_after = kept

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", tools=[lookup], session=notes))

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    assert len(notes.items) == 1 + kept
    notes.dies_after = None
    assert await run_task(chat) == "done"
    assert kinds(notes.items) == ["user", *WHOLE]
    assert model_env.journal.count() == 2


async def test_a_run_that_fails_leaves_nothing_in_the_session(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"), repeat_last=True)
    model_env.fault(Fault.error(400), turn=2)
    notes = Notes()

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", tools=[lookup], session=notes))

    with pytest.raises(Exception, match="400"):
        await run_task(chat)
    assert notes.items == []


async def test_limits_of_a_session_apply(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply("done"), repeat_last=True)
    notes = Notes()
    notes.items = [{"role": "user", "content": f"number {number}"} for number in range(5)]

    @env.task
    async def chat() -> str:
        config = RunConfig(session_settings=SessionSettings(limit=2), tracing_disabled=True)
        return str(await run_agent("go", session=notes, run_config=config))

    await run_task(chat)
    said = [item["content"] for item in model_env.journal.requests()[0].body["input"]]
    assert said == ["number 3", "number 4", "go"]


async def test_a_session_that_makes_itself_shorter_does_so_once_when_it_has_the_messages(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"), repeat_last=True)
    notes = Compacting()

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", tools=[lookup], session=notes))

    assert await run_task(chat) == await run_task(chat) == "done"
    ((args, length),) = notes.compactions
    assert length == len(notes.items) == 4
    assert args["response_id"] == model_env.journal.requests()[1].response_id


async def test_to_the_sdk_a_session_is_of_its_own_class(model_env: ModelServer, run_task: RunTask) -> None:
    """The SDK treats a conversation on the server in another way than other sessions."""
    model_env.script("go", Reply("done"), repeat_last=True)
    kept: list[int] = []
    conversation: list[str] = []

    @env.task
    async def chat() -> str:
        client = AsyncOpenAI()
        if not conversation:
            conversation.append((await client.conversations.create()).id)
        session = OpenAIConversationsSession(conversation_id=conversation[0], openai_client=client)
        answer = str(await run_agent("go", session=session))
        kept.append(len(await session.get_items()))
        return answer

    assert await run_task(chat) == await run_task(chat) == "done"
    assert kept == [2, 2]
    assert model_env.journal.count() == 1


async def test_without_durability_and_outside_of_a_task_the_sdk_has_the_session_itself(
    model_env: ModelServer, run_task: RunTask, tmp_path: Path
) -> None:
    model_env.script("go", Reply("done"), repeat_last=True)
    session = SQLiteSession("ada", tmp_path / "session.db")

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", session=session, durable=False))

    await run_task(chat)
    assert len(await session.get_items()) == 2
    await run_agent("go", session=session)
    assert len(await session.get_items()) == 4


# a memory as a session


async def test_a_memory_is_a_session_of_the_sdks(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"), repeat_last=True)
    model_env.script("again", Reply("as before"), repeat_last=True)
    kept: list[list[Any]] = []

    @env.task
    async def chat(message: str) -> str:
        session = FlyteSession(MemoryStore.for_key("ada"))
        assert isinstance(session, Session)
        answer = await run_agent(message, tools=[lookup], session=session)
        kept.append(await session.get_items())
        return str(answer)

    for _ in range(2):
        assert await run_task(chat, message="go", name="one") == "done"
        assert await run_task(chat, message="again", name="two") == "as before"
    assert kinds(kept[0]) == WHOLE
    assert kinds(kept[-1]) == [*WHOLE, "user", "message"]
    assert model_env.journal.count() == 3


async def test_a_memory_as_a_session_in_code_that_runs_an_agent_by_itself(
    model_env: ModelServer, run_task: RunTask
) -> None:
    from agents import Agent, OpenAIResponsesModel
    from openai import AsyncOpenAI

    model_env.script("one", Reply("first"), repeat_last=True)
    model_env.script("two", Reply("second"), repeat_last=True)
    seen: dict[str, Any] = {}

    @env.task
    async def chat() -> str:
        session = FlyteSession(MemoryStore.for_key("ada"))
        # a client of its own: the SDK's shared one may have connections of another test's event loop
        agent = Agent(name="a", model=OpenAIResponsesModel("gpt-4.1", openai_client=AsyncOpenAI()))
        config = RunConfig(tracing_disabled=True)
        await Runner.run(agent, "one", session=session, run_config=config)
        result = await Runner.run(agent, "two", session=session, run_config=config)
        seen["all"] = await session.get_items()
        seen["latest"] = await session.get_items(limit=1)
        seen["popped"] = await session.pop_item()
        seen["left"] = await session.get_items()
        with_memory_key = await run_agent("one", memory_key="ada")
        seen["key"] = with_memory_key
        await session.clear_session()
        seen["cleared"] = await session.get_items()
        seen["nothing"] = await session.pop_item()
        return str(result.final_output)

    assert await run_task(chat) == "second"
    assert kinds(seen["all"]) == ["user", "message", "user", "message"]
    assert seen["latest"] == seen["all"][-1:] == [seen["popped"]]
    assert seen["left"] == seen["all"][:-1]
    assert kinds(model_env.journal.requests()[-1].body["input"]) == ["user", "message", "user", "user"]
    assert seen["cleared"] == []
    assert seen["nothing"] is None
