"""Third parties may watch agents, and whatever they do the agents do the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from flyteplugins.agents.core import (
    AgentTool,
    Event,
    MemoryNotice,
    TurnFinished,
    apply_call_wrapper,
    apply_instrumentation,
    instrumented_frameworks,
    register_call_wrapper,
    register_instrumentor,
    unregister_call_wrapper,
    unregister_instrumentor,
)

if TYPE_CHECKING:
    from .conftest import Attempts, StartAgent


@pytest.fixture(autouse=True)
def nothing_stays_registered() -> Iterator[None]:
    yield
    for framework in instrumented_frameworks():
        unregister_instrumentor(framework)
        unregister_call_wrapper(framework)


# payloads


def test_a_payload_is_offered_and_what_comes_back_is_used() -> None:
    def add_my_handler(config: dict[str, Any] | None) -> dict[str, Any]:  # as published guides show it
        config = dict(config or {})
        config.setdefault("callbacks", []).append("mine")
        return config

    register_instrumentor("langgraph", add_my_handler)
    given = {"callbacks": ["the caller's"], "tags": ["a"]}
    assert apply_instrumentation("langgraph", given) == {"callbacks": ["the caller's", "mine"], "tags": ["a"]}
    assert given == {"callbacks": ["the caller's"], "tags": ["a"]}, "the caller's stays as it is"
    assert apply_instrumentation("langgraph", None) == {"callbacks": ["mine"]}
    assert apply_instrumentation("openai", given) is given
    unregister_instrumentor("langgraph")
    assert apply_instrumentation("langgraph", given) is given
    unregister_instrumentor("langgraph")  # there need not be one


def test_the_last_one_that_was_registered_counts_and_names_of_published_guides_are_known() -> None:
    register_instrumentor("google", lambda payload: [*payload, "first"])
    register_instrumentor("adk", lambda payload: [*payload, "second"])
    register_call_wrapper("claude", lambda call: call)
    assert apply_instrumentation("google", ["a"]) == ["a", "second"]
    assert instrumented_frameworks() == ("adk", "claude")


@pytest.mark.parametrize("failure", ["raises", "returns nothing"])
def test_an_instrumentor_that_fails_changes_nothing_and_is_told_of_once(
    caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    def broken(payload: dict[str, Any]) -> Any:
        payload["half"] = "done"
        payload["callbacks"].append("half done")
        if failure == "raises":
            raise KeyError("no such thing")
        return None

    register_instrumentor("langchain", broken)
    given: dict[str, Any] = {"callbacks": []}
    with caplog.at_level(logging.WARNING, "flyteplugins.agents"):
        for _ in range(3):
            assert apply_instrumentation("langchain", given) is given
    assert given == {"callbacks": []}
    [record] = caplog.records
    said = "raised KeyError: 'no such thing'" if failure == "raises" else "returned None in place of the payload"
    assert said in record.getMessage()
    assert "test_instrumentation" in record.getMessage(), "whose it is"


# calls


def test_a_call_is_wrapped() -> None:
    register_call_wrapper("claude", lambda call: lambda *args, **kwargs: call(*args, **kwargs) + 100)
    assert apply_call_wrapper("claude", max)(1, 2) == 102
    assert apply_call_wrapper("openai", max) is max


@pytest.mark.parametrize("wrapper", [lambda call: 1 / 0, lambda call: None])
def test_a_wrapper_that_fails_leaves_the_call_as_it_is_and_is_told_of_once(
    caplog: pytest.LogCaptureFixture, wrapper: Any
) -> None:
    register_call_wrapper("claude", wrapper)
    with caplog.at_level(logging.WARNING, "flyteplugins.agents"):
        for _ in range(3):
            assert apply_call_wrapper("claude", max) is max
    assert len(caplog.records) == 1


# agent runs


@pytest.mark.parametrize(("observability", "asked"), [(True, True), ("structure", False), (False, False)])
async def test_an_agent_run_offers_payload_and_call_unless_it_is_not_to_be_watched(
    attempt: Attempts, start_agent: StartAgent, observability: Any, asked: bool
) -> None:
    register_instrumentor("test", lambda payload: [*payload, "watched"])
    register_instrumentor("other", lambda payload: [*payload, "other"])
    register_call_wrapper("test", lambda call: len)

    async def body() -> tuple[Any, ...]:
        async with start_agent(observability=observability) as run:
            return run.instrumented([]), run.instrumented([], "other"), run.wrapped_call(max)

    watched = (["watched"], ["other"], len) if asked else ([], [], max)
    assert await attempt(body) == watched


async def test_events_are_told_to_those_who_registered_for_them(attempt: Attempts, start_agent: StartAgent) -> None:
    mine: list[str] = []
    every: list[str] = []

    async def listen(event: Event) -> None:
        mine.append(event.type)

    register_instrumentor("test", listen, of="events")
    register_instrumentor("*", lambda event: every.append(event.type), of="events")
    register_instrumentor("openai", lambda event: mine.append("not mine"), of="events")

    async def body() -> None:
        async with start_agent(observability=True) as run:
            await run.emit(MemoryNotice(message="hm"))
        async with start_agent("quiet", observability=False):
            pass

    await attempt(body)
    assert mine == every == ["run started", "memory", "run finished"]


async def test_with_structure_alone_events_have_no_contents(attempt: Attempts, start_agent: StartAgent) -> None:
    events: list[Event] = []
    own: list[Event] = []
    register_instrumentor("test", events.append, of="events")

    async def tell(secret: str) -> str:
        """Tell."""
        if secret == "secret failure":
            raise ValueError(secret)
        return f"{secret} told"

    async def body() -> None:
        async with start_agent(input="secret input", observability="structure", on_event=own.append) as run:
            await run.emit(
                TurnFinished(run=run.id, agent="agent", model="m", text="secret answer", tool_calls=("tell",))
            )
            for secret in ("secret argument", "secret failure"):
                await AgentTool(tell).call({"secret": secret}, call_id=secret[7:])
            await run.emit(MemoryNotice(message="secret notice"))
            await run.finish("secret end")

    await attempt(body)
    assert [event.type for event in events] == [event.type for event in own]
    told = "".join(str(event.as_dict()) for event in events)
    assert "secret" not in told
    assert "'name': 'tell'" in told
    assert "'error': 'ValueError'" in told
    assert "(13 bytes, SHA-256 " in told  # the answer's
    assert "secret input" in str(own[0].as_dict()), "the caller's own listener is given everything"


async def test_a_listener_that_fails_is_told_nothing_more_and_is_logged_once(
    attempt: Attempts, start_agent: StartAgent, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def broken(event: Event) -> None:
        calls.append(event.type)
        raise OSError("no collector")

    register_instrumentor("test", broken, of="events")

    async def body() -> str:
        for name in ("one", "two"):
            async with start_agent(name, observability=True) as run:
                await run.finish("bye")
        return "the answer"

    with caplog.at_level(logging.WARNING, "flyteplugins.agents"):
        assert await attempt(body) == "the answer"
    assert calls == ["run started", "run started"]
    assert len([record for record in caplog.records if "no collector" in record.getMessage()]) == 1


@pytest.mark.parametrize("register", [register_instrumentor, register_call_wrapper])
def test_what_cannot_be_called_cannot_be_registered(register: Any) -> None:
    with pytest.raises(TypeError, match="of 'openai' is called with one argument; 'text' cannot be called"):
        register("openai", "text")


def test_what_an_instrumentor_is_of_has_two_words() -> None:
    with pytest.raises(ValueError, match="of is 'turns'; give 'payload' or 'events'"):
        register_instrumentor("openai", print, of="turns")  # type: ignore[arg-type]
