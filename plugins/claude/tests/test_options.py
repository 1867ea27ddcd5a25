"""Options: respected, never changed, and each run's own."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import claude_agent_sdk as sdk
import flyte
import pytest
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, InMemorySessionStore, ResultMessage

from flyteplugins.agents.claude import run_agent, tool
from flyteplugins.agents.claude._agent import build_agent
from flyteplugins.agents.claude._errors import ERROR_CLASSES, UpstreamError, classify
from flyteplugins.agents.claude._process import surroundings
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import Budget, ErrorClass, Event, ToolCallFinished

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("options")


@tool
def whoami(name: str) -> str:
    """Tell who it is."""
    return f"you are {name}"


def contents(options: ClaudeAgentOptions) -> dict[str, Any]:
    return {
        name: copy.copy(value) if isinstance(value, (list, dict)) else value for name, value in vars(options).items()
    }


@env.task
async def side_by_side() -> list[str]:
    async def one(name: str) -> str:
        options = ClaudeAgentOptions(system_prompt=f"You are {name}.", model=f"claude-{name}", env={"WHO": name})
        before = contents(options)
        told: list[Event] = []
        answer = await run_agent(f"I am {name}", tools=[whoami], options=options, on_event=told.append)
        assert contents(options) == before
        results = [event.result for event in told if isinstance(event, ToolCallFinished)]
        return f"{answer} / {results}"

    first = await asyncio.gather(one("ada"), one("bob"))
    return [*first, await one("eve")]


async def test_runs_in_one_task_have_their_own_options_and_answers(model_env: ModelServer, run_task: RunTask) -> None:
    """Two at once and one after them, and a second attempt makes no request."""
    for name in ("ada", "bob", "eve"):
        model_env.script(f"I am {name}", Reply(calls=(call("whoami", name=name),)), Reply(f"Hello {name}."))
    environment = dict(os.environ)
    expected = [f"Hello {name}. / ['you are {name}']" for name in ("ada", "bob", "eve")]
    assert await run_task(side_by_side) == expected
    assert await run_task(side_by_side) == expected
    assert model_env.journal.count() == 6
    for entry in model_env.journal.requests():
        name = entry.body["model"].removeprefix("claude-")
        assert f"You are {name}." in str(entry.body["system"])
        assert f"I am {name}" in str(entry.body["messages"])
    assert dict(os.environ) == environment


async def test_an_agent_can_be_made_of_a_definition(model_env: ModelServer) -> None:
    definition = AgentDefinition(description="Greets.", prompt="You greet.", model="claude-greeter")
    model_env.script("hello", "Hello!")
    assert await run_agent("hello", agent=definition) == "Hello!"
    [entry] = model_env.journal.requests()
    assert entry.body["model"] == "claude-greeter"
    assert "You greet." in str(entry.body["system"])
    with pytest.raises(ValueError, match="agent= and model"):
        await run_agent("hello", agent=definition, model="claude-other")  # type: ignore[call-overload]


async def test_a_session_of_the_callers_own_is_gone_on_with(model_env: ModelServer) -> None:
    """And the caller's store is where it is kept."""
    store = InMemorySessionStore()
    model_env.script("My name is Ada", "Hello Ada.")
    first = await run_agent("My name is Ada", options=ClaudeAgentOptions(session_store=store), full_result=True)
    session = cast("ResultMessage", first.native).session_id
    model_env.script("What is my name", "Ada.")
    options = ClaudeAgentOptions(session_store=store, resume=session)
    assert await run_agent("What is my name?", options=options) == "Ada."
    assert "My name is Ada" in str(model_env.journal.requests()[-1].body["messages"])
    assert options == ClaudeAgentOptions(session_store=store, resume=session)


@pytest.mark.parametrize("sources", [None, ["project"]], ids=["nobody", "project"])
async def test_what_a_project_says_is_taken_in_where_the_caller_asks_for_it(
    model_env: ModelServer, tmp_path: Path, sources: Any
) -> None:
    (tmp_path / "CLAUDE.md").write_text("Always greet the moon first.")
    model_env.script("hello", "Hello!", anywhere=True)
    options = ClaudeAgentOptions(cwd=tmp_path, setting_sources=sources)
    assert await run_agent("hello", options=options) == "Hello!"
    assert ("greet the moon" in str(model_env.journal.requests()[-1].body)) == bool(sources)


async def test_agents_and_an_output_format_of_the_options_apply(model_env: ModelServer) -> None:
    helper = AgentDefinition(description="Adds.", prompt="You add numbers.")
    wanted = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    options = ClaudeAgentOptions(
        agents={"adder": helper}, output_format={"type": "json_schema", "schema": wanted}, model="claude-one"
    )
    model_env.script(
        "^go$",
        Reply(calls=(call("Agent", description="add", prompt="one and two", subagent_type="adder"),)),
        Reply(calls=(call("StructuredOutput", sum=3),)),
        Reply("done"),
    )
    model_env.script("one and two", "It is 3.")
    result = await run_agent("go", options=options, full_result=True)
    assert cast("ResultMessage", result.native).structured_output == {"sum": 3}
    assert {entry.body["model"] for entry in model_env.journal.requests()} == {"claude-one"}
    assert any("You add numbers." in str(entry.body["system"]) for entry in model_env.journal.requests())


async def test_several_messages_are_the_sdks_own_input(model_env: ModelServer) -> None:
    model_env.script("hello", "Hello!")
    message = {"type": "user", "message": {"role": "user", "content": "hello"}, "parent_tool_use_id": None}
    assert await run_agent([message]) == "Hello!"


async def test_built_in_tools_are_opted_into_with_a_warning_and_are_told_of(
    model_env: ModelServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for root, in a task's container."""
    options = ClaudeAgentOptions(tools=["Bash"], permission_mode="bypassPermissions", cwd=tmp_path)
    model_env.script(
        "go", Reply(calls=(call("Bash", command="echo out > file; cat file", description="x"),)), Reply("done")
    )
    told: list[Event] = []
    with caplog.at_level(logging.WARNING):
        assert await run_agent("go", options=options, on_event=told.append) == "done"
    assert "Built-in tools of Claude Code are on (Bash)" in caplog.text
    assert (tmp_path / "file").read_text() == "out\n"
    [event] = [event for event in told if isinstance(event, ToolCallFinished)]
    assert (event.name, event.result, event.error) == ("Bash", "out", None)


async def test_another_model_takes_over_when_the_first_is_overloaded(model_env: ModelServer) -> None:
    """It is Claude Code's own way out, and gets the failures to see."""
    model_env.script("hello", "Hello!")
    model_env.fault(Fault.overloaded(times=None), model="claude-one")
    options = ClaudeAgentOptions(model="claude-one", fallback_model="claude-two")
    assert await run_agent("hello", options=options) == "Hello!"
    assert [entry.body["model"] for entry in model_env.journal.requests()][-1] == "claude-two"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"model": "a", "options": ClaudeAgentOptions(model="b")}, "model= and options= that say it as well"),
        ({"instructions": "a", "options": ClaudeAgentOptions(system_prompt="b")}, "instructions= and options="),
        ({"max_turns": 1, "options": ClaudeAgentOptions(max_turns=2)}, "max_turns= and options="),
        ({"max_turns": 0}, "give a number of turns from 1"),
        ({"options": {"model": "a"}}, "options is dict"),
        ({"options": ClaudeAgentOptions(mcp_servers={"flyte_tools": {"command": "x"}})}, "named 'flyte_tools'"),
        ({"options": ClaudeAgentOptions(mcp_servers='{"mcpServers": {"x": {"type": "ws"}}}')}, "type 'ws'"),
        ({"options": ClaudeAgentOptions(mcp_servers="/not/there.json")}, "neither JSON nor a file"),
        ({"input": ""}, "input is empty"),
        ({"input": 3}, "input is 3"),
        ({"input": ["hello"]}, r"input\[0\] is no user message"),
    ],
    ids=str,
)
async def test_what_cannot_be_meant_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        await run_agent(**{"input": "hello", **given})


async def test_turns_that_nobody_can_count_have_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    with pytest.raises(NotImplementedError, match="CLAUDE_CODE_USE_BEDROCK is set"):
        await run_agent("hello", budget=Budget(turns=3))


def built(options: ClaudeAgentOptions | None = None, **given: Any) -> Any:
    defaults: dict[str, Any] = dict.fromkeys(
        ("agent", "model", "instructions", "name", "output_type", "subagents", "max_turns")
    )
    more = {"tools": (), "server_name": "flyte_tools", "durable": True, "remembers": False, "budgeted": False}
    return build_agent(options=options, **{**defaults, **more, **given})


def test_nothing_of_the_machine_is_taken_in_unless_it_is_asked_for() -> None:
    plain = built().options
    assert (plain.tools, plain.setting_sources, plain.strict_mcp_config) == ([], [], True)
    asked = built(ClaudeAgentOptions(setting_sources=["project"], tools=["Read"])).options
    assert (asked.tools, asked.setting_sources, asked.strict_mcp_config) == (["Read"], ["project"], False)


def test_servers_that_claude_code_connects_by_itself_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    one = AgentDefinition(description="d", prompt="p", mcpServers=["named", {"mine": {"command": "x"}}])
    built(subagents={"named": AgentDefinition(description="d", prompt="p", mcpServers=["named"])})
    assert caplog.text == ""
    built(subagents={"helper": one}, durable=False)
    assert caplog.text == ""
    built(subagents={"helper": one})
    assert "helper have MCP servers of their own" in caplog.text


def test_a_process_has_a_folder_of_its_own_and_the_callers_environment_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

    def opened(env: dict[str, str], **given: Any) -> Any:
        defaults: dict[str, Any] = {"proxy_url": "http://127.0.0.1:1/s", "program": None, "own_configuration": True}
        return surroundings(env, **{**defaults, "own_caches": True, "bypasses_permissions": False, **given})

    with opened({}) as first, opened({"CLAUDE_CONFIG_DIR": "/mine"}) as second:
        assert Path(first.env["CLAUDE_CONFIG_DIR"]).parent.is_dir()
        assert second.env["CLAUDE_CONFIG_DIR"] == "/mine"
        assert first.env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1/s"
        assert "127.0.0.1" in first.env["NO_PROXY"].split(",")
    assert not Path(first.env["CLAUDE_CONFIG_DIR"]).parent.exists()
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    with opened({}) as third:  # somebody who is logged in stays that
        assert "CLAUDE_CONFIG_DIR" not in third.env


def test_every_exception_of_the_sdk_is_listed() -> None:
    """A new one in a new version fails here, so that somebody decides."""
    there = [
        one for name in sdk.__all__ if isinstance(one := getattr(sdk, name), type) and issubclass(one, BaseException)
    ]
    assert there
    missing = [one for one in there if one not in ERROR_CLASSES and not issubclass(one, Warning)]
    assert missing == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, ErrorClass.FAIL_NOW) for status in (400, 401, 402, 403, 404, 413, 422)),
        *((status, ErrorClass.RETRY_IN_PLACE) for status in (0, 408, 409, 429, 500, 502, 529)),
        (418, ErrorClass.RETRY_ATTEMPT),
    ],
)
def test_a_status_says_what_is_to_be_done(status: int, expected: ErrorClass) -> None:
    assert classify(UpstreamError(status, "x")) is expected
    reported = sdk.ResultError("x", {"api_error_status": status or None})
    reported.__cause__ = UpstreamError(status, "x")
    assert classify(reported) is expected


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_what_a_process_leaves_holds_no_credential_and_is_removed(
    model_env: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-a-very-secret-key")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    contents: list[bytes] = []

    def look() -> str:
        """Look at the files."""
        contents.extend(path.read_bytes() for path in files_in(tmp_path))
        return "seen"

    model_env.script("go", Reply(calls=(call("look"),)), Reply("done"))
    assert await run_agent("go", tools=[look]) == "done"
    assert contents
    assert not [content for content in contents if b"very-secret" in content]
    assert files_in(tmp_path) == []
