"""Sessions, memories and artifacts in services of the caller's, and the service that keeps sessions with Flyte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import pytest
from google.adk.agents import LlmAgent
from google.adk.artifacts import FileArtifactService, InMemoryArtifactService
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from flyteplugins.agents.adk import FlyteSessionService, run_agent
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import MemoryStore, MemoryUnavailableError, UnserializableError

RunTask = Callable[..., Any]
GEMINI = "gemini-3.5-flash"
APP: dict[str, Any] = {"app_name": "shop", "user_id": "ada"}

pytestmark = pytest.mark.usefixtures("model_env")

env = flyte.TaskEnvironment("adk_sessions", cache="disable")
DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


def said(text: str, number: int, **state: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(
        id=f"event-{number}",
        invocation_id="one",
        author="user",
        content=content,
        timestamp=float(number),
        actions=EventActions(state_delta=state),
    )


def texts(session: Session | None) -> list[str]:
    assert session is not None
    return [event.content.parts[0].text or "" for event in session.events if event.content and event.content.parts]


async def in_a_task(run_task: RunTask, run_name: str, what: Callable[[FlyteSessionService], Any]) -> None:
    """Do something in a task, with the services of two workers that have one memory key."""

    @env.task
    async def work(key: str) -> str:
        await what(FlyteSessionService(key))
        return key

    await run_task(work, run_name, name=run_name)


@pytest.fixture
def services() -> list[Callable[[str], BaseSessionService]]:
    """The SDK's own service, and ours: they are to do the same."""
    return [lambda _: InMemorySessionService(), FlyteSessionService]


async def test_it_keeps_events_and_the_state_of_app_user_and_session_as_the_sdks_own_does(
    run_task: RunTask, run_name: str, services: list[Callable[[str], BaseSessionService]]
) -> None:
    """What each method gives back is compared with the SDK's service in memory."""

    async def story(service: BaseSessionService) -> list[Any]:
        told: list[Any] = []
        first = await service.create_session(
            **APP, session_id=" one ", state={"a": 1, "user:b": 2, "app:c": 3, "temp:d": 4}
        )
        told.append((first.id, dict(first.state)))
        await service.append_event(first, said("hello", 10, a=5, **{"user:b": 6, "temp:x": 7, "app:e": [1]}))
        await service.append_event(first, said("again", 20, f=None))
        await service.append_event(first, said("piece", 25).model_copy(update={"partial": True}))
        told.append((texts(first), dict(first.state)))
        for config in (
            None,
            GetSessionConfig(num_recent_events=1),
            GetSessionConfig(num_recent_events=0),
            GetSessionConfig(after_timestamp=15.0),
            GetSessionConfig(after_timestamp=20.0),
            GetSessionConfig(after_timestamp=30.0),
        ):
            found = await service.get_session(**APP, session_id="one", config=config)
            told.append((texts(found), dict(found.state) if found else None))
        await service.create_session(**APP, session_id="two", state={"user:b": 8})
        await service.create_session(app_name="shop", user_id="bob", session_id="one", state={"g": 9})
        for user in ("ada", "bob", "carl", None):
            listed = await service.list_sessions(app_name="shop", user_id=user)
            told.append(
                sorted(
                    (one.user_id, one.id, json.dumps(one.state, sort_keys=True), len(one.events))
                    for one in listed.sessions
                )
            )
        told.append(await service.get_user_state(**APP))
        told.append(await service.get_user_state(app_name="other", user_id="ada"))
        await service.delete_session(**APP, session_id="one")
        await service.delete_session(**APP, session_id="never was")
        told.append(await service.get_session(**APP, session_id="one"))
        again = await service.create_session(**APP, session_id="one")
        told.append((texts(again), dict(again.state)))
        with pytest.raises(AlreadyExistsError):
            await service.create_session(**APP, session_id="one")
        gone = Session(id="gone", **APP)
        with pytest.raises(SessionNotFoundError):
            await service.append_event(gone, said("no", 1))
        return told

    @env.task
    async def both(key: str) -> str:
        theirs, ours = [await story(make(key)) for make in services]
        assert ours == theirs
        return key

    await run_task(both, run_name, name=run_name)


async def test_writers_beside_each_other_lose_nothing_and_the_same_event_is_added_once(
    run_task: RunTask, run_name: str
) -> None:
    async def what(service: FlyteSessionService) -> None:
        session = await service.create_session(**APP, session_id="one")
        other = await FlyteSessionService(service.key).get_session(**APP, session_id="one")
        assert other is not None
        await service.append_event(session, said("here", 1, **{"user:a": 1}))
        await service.append_event(other, said("there", 2, **{"user:b": 2}))
        await service.append_event(session, said("here", 1, **{"user:a": 1}))
        found = await service.get_session(**APP, session_id="one")
        assert texts(found) == ["here", "there"]
        assert found is not None
        assert found.state == {"user:a": 1, "user:b": 2}
        with pytest.raises(UnserializableError, match=r"state\['x'\]"):
            await service.append_event(session, said("no", 3, x=object()))
        store = MemoryStore.for_key(service.key)
        await service.delete_session(**APP, session_id="one")
        assert await store.transcripts() == []

    await in_a_task(run_task, run_name, what)


async def test_a_temporary_value_is_not_kept(run_task: RunTask, run_name: str) -> None:
    """Not even in an event, whoever adds it; a value that has no JSON form may be one."""

    async def what(service: FlyteSessionService) -> None:
        session = await service.create_session(**APP, session_id="one")
        await service.append_event(session, said("hello", 1, **{"temp:x": object(), "a": 1}))
        assert "temp:x" in session.state
        found = await service.get_session(**APP, session_id="one")
        assert found is not None
        assert [event.actions.state_delta for event in found.events] == [{"a": 1}]
        assert found.state == {"a": 1}

    await in_a_task(run_task, run_name, what)


def note(fact: str, tool_context: ToolContext) -> str:
    """Keep a fact."""
    DONE.append(fact)
    tool_context.state["fact"] = fact
    tool_context.state["user:name"] = "Ada"
    return "kept"


agent = LlmAgent(name="one", model=GEMINI, instruction="{user:name?} knows {fact?}.", tools=[note])
IN_MEMORY = InMemorySessionService()


@env.task(retries=1)
async def chat(message: str, key: str, session: str) -> str:
    service: Any = FlyteSessionService(key) if key else IN_MEMORY
    options: dict[str, Any] = {"session_service": service, "session_id": session, "user_id": "ada"}
    return str(await run_agent(message, agent=agent, **options))


@pytest.mark.parametrize("flyte_backed", [True, False], ids=["ours", "the SDK's"])
async def test_a_run_goes_on_with_a_session_and_attempts_that_fail_leave_one_copy(
    run_task: RunTask, run_name: str, model_server: ModelServer, flyte_backed: bool
) -> None:
    """The session is read once and written once; a run of the same name adds nothing, another session knows the user."""
    key, session = run_name if flyte_backed else "", run_name
    model_server.script("my colour", Reply(calls=(call("note", fact="blue"),)), "Noted.")
    model_server.script("which", "It is blue.", repeat_last=True)
    model_server.fault(Fault.error(500, times=1), user="my colour", turn=2)
    for _ in range(2):
        assert await run_task(chat, "my colour is blue", key, session, name=run_name) == "Noted."
    assert DONE == ["blue"]
    assert await run_task(chat, "which was it?", key, session, name=f"{run_name}-2") == "It is blue."
    first = model_server.journal.requests(user="which was it?")[0].body or {}
    assert [part["text"] for content in first["contents"] for part in content["parts"] if "text" in part] == [
        "my colour is blue",
        "Noted.",
        "which was it?",
    ]
    assert "Ada knows blue." in json.dumps(first)
    await run_task(chat, "which is it?", key, f"{session}-other", name=f"{run_name}-3")
    other = model_server.journal.requests(user="which is it?")[0].body or {}
    assert "Ada knows ." in json.dumps(other)
    assert "my colour" not in json.dumps(other)


async def test_a_run_that_fails_leaves_the_session_as_it_was(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    model_server.script("hello", "hi")
    model_server.fault(Fault.error(500, times=None), user="hello")
    with pytest.raises(flyte.errors.RuntimeUserError, match="500"):
        await run_task(chat, "hello", "", run_name, name=run_name)
    found = await IN_MEMORY.get_session(app_name="flyte-agent", user_id="ada", session_id=run_name)
    assert found is not None
    assert (found.events, found.state.get("fact")) == ([], None)


async def test_an_attempt_that_died_while_it_added_its_events_adds_the_rest(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """Whose calls and results still belong together: they are one attempt's."""

    class Breaks(InMemorySessionService):
        left = 2

        async def append_event(self, session: Session, event: Event) -> Event:
            if not self.left:
                self.left = 100
                raise ConnectionError("lost")
            self.left -= 1
            return await super().append_event(session, event)

    service = Breaks()
    model_server.script("my colour", Reply(calls=(call("note", fact="blue"),)), "Noted.")

    @env.task(retries=1)
    async def breaking(message: str) -> str:
        return str(await run_agent(message, agent=agent, session_service=service, session_id="one"))

    assert await run_task(breaking, "my colour is blue", name=run_name) == "Noted."
    [session] = (await service.list_sessions(app_name="flyte-agent")).sessions
    found = await service.get_session(app_name="flyte-agent", user_id=session.user_id, session_id="one")
    assert found is not None
    assert [event.author for event in found.events] == ["user", "one", "one", "one"]
    [made] = found.events[1].get_function_calls()
    [answered] = found.events[2].get_function_responses()
    assert made.id == answered.id
    assert found.state["fact"] == "blue"


async def test_the_sdks_own_runner_takes_the_service(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    model_server.script("hello", "hi")

    async def what(service: FlyteSessionService) -> None:
        runner = Runner(app_name="shop", agent=LlmAgent(name="one", model=GEMINI), session_service=service)
        await service.create_session(**APP, session_id="one")
        content = types.Content(role="user", parts=[types.Part(text="hello")])
        async for _ in runner.run_async(user_id="ada", session_id="one", new_message=content):
            pass
        assert texts(await service.get_session(**APP, session_id="one")) == ["hello", "hi"]

    await in_a_task(run_task, run_name, what)


async def test_without_a_task_there_is_no_place_for_sessions(model_server: ModelServer) -> None:
    """The run goes on, or says so where it is to."""
    model_server.script("hello", "hi")
    service = FlyteSessionService("somebody")
    assert await run_agent("hello", model=GEMINI, session_service=service) == "hi"
    with pytest.raises(MemoryUnavailableError, match="outside of a Flyte task"):
        await run_agent("hello", model=GEMINI, session_service=service, memory_required=True)
    with pytest.raises(ValueError, match="memory_key and session_service"):
        await run_agent("hello", model=GEMINI, session_service=service, memory_key="a")
    with pytest.raises(ValueError, match="session_id='a' and no session_service"):
        await run_agent("hello", model=GEMINI, session_id="a")


async def draw(name: str, tool_context: ToolContext) -> str:
    """Draw something."""
    DONE.append(f"draw {name}")
    part = types.Part.from_bytes(data=f"\x89{name}".encode("latin-1"), mime_type="image/png")
    return f"version {await tool_context.save_artifact(f'{name}.png', part)}"


async def look(name: str, tool_context: ToolContext) -> str:
    """Look at what was drawn."""
    part = await tool_context.load_artifact(f"{name}.png")
    DONE.append(f"look {name}")
    return "nothing" if part is None or part.inline_data is None else repr(part.inline_data.data)


@pytest.mark.parametrize("lasting", [False, True], ids=["in memory", "in files"])
async def test_artifacts_of_an_attempt_that_failed_are_there_in_the_next_one(
    run_task: RunTask, run_name: str, model_server: ModelServer, tmp_path: Any, lasting: bool
) -> None:
    """Each attempt has a service of its own, as in a process of its own; what was saved is saved once, with its version."""
    model_server.script(
        "draw",
        Reply(calls=(call("draw", name="cat"),)),
        Reply(calls=(call("draw", name="cat"),)),
        Reply(calls=(call("look", name="cat"),)),
        lambda conversation: Reply(" ".join(one.text for one in conversation.results)),
    )
    model_server.fault(Fault.error(500, times=1), user="draw it", turn=3)
    services: list[Any] = []

    @env.task(retries=1)
    async def paint(message: str) -> str:
        services.append(FileArtifactService(root_dir=str(tmp_path)) if lasting else InMemoryArtifactService())
        tools = [draw, look]
        return await run_agent(message, model=GEMINI, tools=tools, artifact_service=services[-1])

    answer = await run_task(paint, "draw it", name=run_name)
    assert len(services) == 2
    assert DONE == ["draw cat", "draw cat", "look cat"]
    assert "version 0" in answer
    assert "version 1" in answer
    assert r"b'\xc2\x89cat'" in answer or r"b'\x89cat'" in answer
    place = {"app_name": "flyte-agent", "user_id": "flyte-user", "session_id": "flyte-session", "filename": "cat.png"}
    assert await services[-1].list_versions(**place) == [0, 1]
