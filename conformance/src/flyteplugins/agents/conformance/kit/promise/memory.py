"""Memory: a conversation that goes on across runs."""

from __future__ import annotations

import asyncio
from typing import Any

from flyteplugins.agents.conformance.models import Conversation, Fault, Reply, call

from .._capabilities import Capability
from .._checks import check, expect
from .._stage import Stage
from ._dialogue import note

RUN_MEMORY = "Read the history from core's RunMemory, and commit what is new when the run has its answer."


def _repeat(conversation: Conversation) -> Reply:
    return Reply(f"You said: {' / '.join(conversation.users)}")


@check("memory.continues", Capability.MEMORY)
async def the_next_run_knows_what_was_said(stage: Stage) -> None:
    """A run with a memory key knows what earlier runs said, keeps it once however often it died, and keeps no failed run."""
    adapter = stage.adapter
    stage.server.script(None, _repeat, repeat_last=True)

    async def say(text: str, **more: Any) -> Any:
        return await adapter.run_agent(text, model=adapter.model, memory_key="ada", **more)

    for _ in range(2):
        expect(await stage.crash(lambda: say("one"), "first"), "You said: one", "the first answer", RUN_MEMORY)
    expect(stage.asked(), 1, "requests of a run with a memory that died", RUN_MEMORY)
    again = await stage.crash(lambda: say("two", instructions="New."), "second")
    expect(again, "You said: one / two", "the answer of the next run", RUN_MEMORY)
    again = await stage.crash(lambda: say("two", instructions="New."), "second")
    expect(again, "You said: one / two", "the answer of a retry that began before its own commit", RUN_MEMORY)
    last = await stage.attempt(lambda: say("three"), "third")
    expect(last, "You said: one / two / three", "the answer after two runs that died twice each", RUN_MEMORY)


@check("memory.tools", Capability.MEMORY)
async def calls_and_results_go_on_together(stage: Stage) -> None:
    """A conversation with tool calls in it goes on, and the provider accepts it."""
    adapter = stage.adapter
    stage.server.script("Note", Reply(calls=(call("note", text="x"),)), "noted")
    stage.server.script("Then", _repeat)

    async def say(text: str) -> Any:
        return await adapter.run_agent(text, model=adapter.model, memory_key="tools", tools=[note])

    expect(await stage.attempt(lambda: say("Note this"), "first"), "noted", "the first answer", RUN_MEMORY)
    found = await stage.attempt(lambda: say("Then what?"), "second")
    expect(found, "You said: Note this / Then what?", "the answer of the next run", RUN_MEMORY)


@check("memory.writers", Capability.MEMORY)
async def two_runs_at_once_lose_nothing(stage: Stage) -> None:
    """Two runs of one key at once both leave their messages, each of them together."""
    adapter = stage.adapter
    stage.server.script(None, _repeat, repeat_last=True)

    async def say(text: str) -> Any:
        return await adapter.run_agent(text, model=adapter.model, memory_key="both")

    await asyncio.gather(*(stage.attempt(lambda name=name: say(name), name) for name in ("left", "right")))  # type: ignore[misc]
    found = await stage.attempt(lambda: say("after"), "after")
    wanted = {"You said: left / right / after", "You said: right / left / after"}
    expect(found in wanted, True, f"both runs are remembered ({found})", RUN_MEMORY)


@check("memory.failed", Capability.MEMORY)
async def a_failed_run_leaves_nothing(stage: Stage) -> None:
    """What a run said that has no answer is not remembered, and a key that is not one path segment is refused."""
    adapter = stage.adapter
    stage.server.script(None, _repeat, repeat_last=True)

    async def say(text: str, key: str = "failed") -> Any:
        return await adapter.run_agent(text, model=adapter.model, memory_key=key)

    stage.server.fault(Fault.unauthorized(times=1))
    try:
        await stage.attempt(lambda: say("lost"), "lost")
    except Exception as error:  # noqa: BLE001 - that it fails is what is wanted
        expect(bool(str(error)), True, "the error says something", RUN_MEMORY)
    found = await stage.attempt(lambda: say("kept"), "kept")
    expect(found, "You said: kept", "the answer after a run that failed", RUN_MEMORY)
    for key in ("a/b", "..", ""):
        try:
            await stage.attempt(lambda key=key: say("never", key), "refused")  # type: ignore[misc]
        except ValueError:
            continue
        expect("an answer", "a ValueError", f"memory_key={key!r}", "Hand the key to core's RunMemory as it is.")
