"""Where the API's address cannot be moved: the session is kept after each step, and a retry goes on from it."""

from __future__ import annotations

import itertools
import logging
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flyte
import flyte.errors
import pytest
from claude_agent_sdk import ClaudeAgentOptions, project_key_for_directory
from claude_agent_sdk.testing import run_session_store_conformance

from flyteplugins.agents.claude import run_agent, tool
from flyteplugins.agents.claude._fallback import EagerSession
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import AgentError, AgentResult, Folder, MemoryStore, RunMemory

Cloud = runpy.run_path(str(Path(__file__).parent / "apps" / "clouds.py"))["Cloud"]

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


@pytest.fixture(params=["foundry"])
def elsewhere(
    request: pytest.FixtureRequest, model_env: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModelServer]:
    """Another cloud's API, as Claude Code sees it: an address, a way to speak and a key of its own."""
    EFFECTS.clear()
    RESULTS.clear()
    api = model_env.env()["ANTHROPIC_BASE_URL"]
    kind = request.param
    monkeypatch.setenv(f"CLAUDE_CODE_USE_{kind.upper()}", "1")
    if kind == "foundry":
        monkeypatch.setenv("ANTHROPIC_FOUNDRY_BASE_URL", api)
        monkeypatch.setenv("ANTHROPIC_FOUNDRY_API_KEY", "k")
        yield model_env
        return
    monkeypatch.setenv(f"CLAUDE_CODE_SKIP_{kind.upper()}_AUTH", "1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("CLOUD_ML_REGION", "us-east5")
    monkeypatch.setenv("ANTHROPIC_VERTEX_PROJECT_ID", "project")
    with Cloud(kind, api) as cloud:
        monkeypatch.setenv(f"ANTHROPIC_{kind.upper()}_BASE_URL", cloud.url)
        yield model_env
        assert cloud.answered >= model_env.journal.count() > 0, "Claude Code spoke to somebody else"


CLOUDS = pytest.mark.parametrize("elsewhere", ["foundry", "bedrock", "vertex"], indirect=True)


@CLOUDS
async def test_an_interrupted_run_goes_on_from_its_session(
    elsewhere: ModelServer, run_task: RunTask, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere.script("go", Reply(calls=(call("add", a=1, b=2),)), Reply(calls=(call("flaky"),)), anywhere=True)
    with pytest.raises(flyte.errors.RuntimeUserError), caplog.at_level(logging.WARNING):
        await run_task(chat)
    assert re.search("CLAUDE_CODE_USE_[A-Z]+ is set: Claude Code asks another cloud's API", caplog.text)
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


@CLOUDS
async def test_a_run_that_got_to_its_end_asks_nothing_on_the_retry(elsewhere: ModelServer, run_task: RunTask) -> None:
    elsewhere.script("go", Reply(calls=(call("add", a=1, b=2),)), Reply("It is 3."))
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(chat, crash=True)
    assert elsewhere.journal.count() == 2
    assert await run_task(chat, crash=True) == "It is 3."
    assert elsewhere.journal.count() == 2
    assert EFFECTS == ["add 1 2"]
    assert RESULTS[1].usage.fresh.requests == 0


@env.task
async def remembering() -> str:
    return await run_agent("go", tools=[add], memory_key="ada")


async def test_what_an_attempt_did_not_live_to_remember_the_next_one_does(
    elsewhere: ModelServer, run_task: RunTask, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent got to its end, and the worker died before the memory was written."""
    elsewhere.script("go", Reply(calls=(call("add", a=1, b=2),)), Reply("It is 3."))

    async def dies(self: RunMemory, *args: Any, **given: Any) -> None:
        raise ValueError("the worker is lost")

    with monkeypatch.context() as patch:
        patch.setattr(RunMemory, "commit", dies)
        with pytest.raises(flyte.errors.RuntimeUserError, match="lost"):
            await run_task(remembering)
    assert await run_task(remembering) == "It is 3."
    assert elsewhere.journal.count() == 2
    [folder] = (home / ".flyte" / "agents" / "memory").rglob("ada")
    kept: list[Any] = list(await MemoryStore("ada", Folder.at(str(folder))).messages("claude"))
    assert [message["role"] for message in kept] == ["user", "assistant", "user", "assistant"]
    assert "It is 3." in str(kept[-1])


async def test_the_store_of_an_interrupted_run_passes_the_sdks_suite_and_is_there_again(tmp_path: Path) -> None:
    """Transcripts of sub-agents included."""
    numbers = itertools.count()

    def session(place: str) -> EagerSession:
        run = SimpleNamespace(recorder=SimpleNamespace(path=place), scope=SimpleNamespace(folder=folder))
        return EagerSession(run)  # type: ignore[arg-type]  # all that it needs of a run

    folder = Folder.at(str(tmp_path))
    await run_session_store_conformance(lambda: session(f"run-{next(numbers)}"))
    key: Any = {"project_key": project_key_for_directory(None), "session_id": "s"}
    first = session("one")
    below: Any = {**key, "subpath": "subagents/agent-1"}
    said: Any = [{"type": "assistant", "uuid": "a", "message": {"id": "m", "role": "assistant", "content": []}}]
    await first.append(key, said)
    await first.append(below, said)
    again = session("one")
    await again.read()
    await again.fill()
    assert again.session_id == "s"
    assert await again.load(key) == said
    assert await again.load(below) == said
    await first.append(key, said)
    with pytest.raises(AgentError, match="Another worker"):
        await again.append(key, said)


@env.task
async def resuming() -> str:
    return await run_agent("go", options=ClaudeAgentOptions(resume="0001"))


async def test_a_session_of_the_callers_own_is_refused_where_the_run_needs_one(
    elsewhere: ModelServer, run_task: RunTask
) -> None:
    with pytest.raises(
        flyte.errors.RuntimeUserError, match=r"with resume, and CLAUDE_CODE_USE_FOUNDRY is set"
    ) as caught:
        await run_task(resuming)
    assert caught.value.code == "NonRecoverableError"
    assert elsewhere.journal.count() == 0
