"""Where the API's address cannot be moved: the session is kept after each step, and a retry goes on from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import pytest

from flyteplugins.agents.claude import run_agent, tool
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import AgentResult

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("fallback")

EFFECTS: list[str] = []
RESULTS: list[AgentResult[str]] = []


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    EFFECTS.append(f"add {a} {b}")
    return a + b


@tool
def flaky() -> str:
    """Fail once."""
    EFFECTS.append("flaky")
    if EFFECTS.count("flaky") == 1:
        raise ValueError("the worker is lost")
    return "fine"


@env.task
async def chat(crash: bool = False) -> str:
    result = await run_agent("go", tools=[add, flaky], on_tool_error="raise", full_result=True)
    RESULTS.append(result)
    if crash and len(RESULTS) == 1:
        raise ValueError("the worker is lost")
    return result.output


@pytest.fixture
def elsewhere(model_env: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """Another cloud's API, as Claude Code sees it: an address and a key of their own."""
    EFFECTS.clear()
    RESULTS.clear()
    monkeypatch.setenv("CLAUDE_CODE_USE_FOUNDRY", "1")
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_BASE_URL", model_env.env()["ANTHROPIC_BASE_URL"])
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_API_KEY", "k")
    return model_env


async def test_an_interrupted_run_goes_on_from_its_session(
    elsewhere: ModelServer, run_task: RunTask, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere.script("go", Reply(calls=(call("add", a=1, b=2),)), Reply(calls=(call("flaky"),)), anywhere=True)
    with pytest.raises(flyte.errors.RuntimeUserError), caplog.at_level(logging.WARNING):
        await run_task(chat)
    assert "CLAUDE_CODE_USE_FOUNDRY is set" in caplog.text
    assert elsewhere.journal.count() == 2
    elsewhere.clear()
    elsewhere.script("interrupted", Reply(calls=(call("flaky"),)), Reply("It is 3, and fine."))
    assert await run_task(chat) == "It is 3, and fine."
    assert EFFECTS == ["add 1 2", "flaky", "flaky"]
    assert elsewhere.journal.count() == 2
    said = str(elsewhere.journal.requests()[0].body["messages"])
    assert said.index("'go'") < said.index("toolu_") < said.index("interrupted")
    assert RESULTS[0].usage.fresh.requests == 2
    assert RESULTS[0].usage.replayed.requests in (1, 2)  # the second turn may not have been written yet


async def test_a_run_that_got_to_its_end_asks_nothing_on_the_retry(elsewhere: ModelServer, run_task: RunTask) -> None:
    elsewhere.script("go", Reply(calls=(call("add", a=1, b=2),)), Reply("It is 3."))
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(chat, crash=True)
    assert elsewhere.journal.count() == 2
    assert await run_task(chat, crash=True) == "It is 3."
    assert elsewhere.journal.count() == 2
    assert EFFECTS == ["add 1 2"]
    assert RESULTS[1].usage.fresh.requests == 0
