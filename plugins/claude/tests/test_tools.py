"""Tools: tasks, callables, the SDK's own and MCP servers, side by side, once, with results and errors that reach the model."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    SdkMcpTool,
    create_sdk_mcp_server,
)
from claude_agent_sdk import tool as sdk_tool
from claude_agent_sdk.types import McpStdioServerConfig

from flyteplugins.agents.claude import run_agent, tool
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import Event, ToolCallFinished

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("tools")

EFFECTS: list[str] = []
EVENTS: list[Event] = []
STATE: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def emptied() -> None:
    EFFECTS.clear()
    EVENTS.clear()
    STATE.clear()


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


def results_of(server: ModelServer, turn: int = -1) -> list[Any]:
    """What the model was given in the latest message of a request."""
    content = server.journal.requests()[turn].body["messages"][-1]["content"]
    return [block for block in content if block.get("type") == "tool_result"]


def text_of(block: Any) -> str:
    content = block["content"]
    return (content if isinstance(content, str) else str(content[0]["text"])).rstrip("\n")


@tool
async def meet(name: str) -> str:
    """Wait for the other one."""
    EFFECTS.append(name)
    STATE.setdefault("met", asyncio.Barrier(2))
    await asyncio.wait_for(STATE["met"].wait(), 60)
    if name == "first":
        await asyncio.sleep(0.2)  # so that the second one answers first
    return f"{name} was there"


@tool
def pick(numbers: list[int], scale: float = 1.0) -> str:
    """Pick numbers."""
    return f"{numbers} at {scale!r}"


@tool
def broken() -> str:
    """Break."""
    raise ValueError("it is broken")


@tool
@env.task(cache="disable")
async def shout(text: str) -> str:
    """Shout."""
    EFFECTS.append(f"shout {text}")
    return text.upper()


@env.task
async def meeting() -> str:
    return await run_agent("meet", tools=[meet])


async def test_calls_of_one_turn_run_side_by_side_and_their_results_keep_the_calls_order(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("meet", Reply(calls=(call("meet", name="first"), call("meet", name="second"))), Reply("done"))
    assert await run_task(meeting) == "done"
    assert [text_of(block) for block in results_of(model_env)] == ["first was there", "second was there"]


@env.task
async def many(on_error: str = "model") -> str:
    return await run_agent(
        "go",
        tools=[pick, broken, shout],
        on_tool_error="raise" if on_error == "raise" else "model",
        on_event=EVENTS.append,
    )


async def test_arguments_are_coerced_and_errors_reach_the_model(model_env: ModelServer, run_task: RunTask) -> None:
    calls = (
        call("pick", numbers="[1, 2]", scale=2),  # what models send
        call("pick", numbers="none"),
        call("broken"),
        call("shout", text="hey"),
    )
    model_env.script("go", Reply(calls=calls), Reply("done"))
    assert await run_task(many) == "done"
    good, bad, raised, task = results_of(model_env)
    assert text_of(good) == "[1, 2] at 2.0"
    assert "numbers" in text_of(bad)
    assert "it is broken" in text_of(raised)
    assert text_of(task) == "HEY"
    assert [bool(block.get("is_error")) for block in (good, bad, raised, task)] == [False, True, True, False]
    told = {event.name: event for event in EVENTS if isinstance(event, ToolCallFinished)}
    assert told["shout"].result == "HEY"
    assert told["shout"].call.startswith("toolu_")


async def test_an_error_can_fail_the_run_for_good(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("broken"),)), Reply("done"))
    with pytest.raises(flyte.errors.RuntimeUserError, match="it is broken") as caught:
        await run_task(many, on_error="raise")
    assert caught.value.code == "NonRecoverableError"
    assert model_env.journal.count() == 1


@sdk_tool("native", "A tool of the SDK's own.", {"text": str})
async def native(arguments: dict[str, Any]) -> dict[str, Any]:
    EFFECTS.append(f"native {arguments['text']}")
    return {"content": [{"type": "text", "text": f"native {arguments['text']}"}]}


@env.task
async def with_servers(crash: bool = False) -> str:
    served = create_sdk_mcp_server("mine", tools=[native])
    program = str(Path(__file__).parent / "apps" / "mcp_server.py")
    stdio: McpStdioServerConfig = {"command": sys.executable, "args": [program, STATE["file"]]}
    options = ClaudeAgentOptions(mcp_servers={"mine": served, "theirs": stdio})
    answer = await run_agent("go", tools=[native, shout], options=options)
    assert options.mcp_servers == {"mine": served, "theirs": stdio}
    STATE["runs"] = STATE.get("runs", 0) + 1
    if crash and STATE["runs"] == 1:
        raise Crash
    return answer


async def test_tools_of_the_sdk_and_of_mcp_servers_run_once(
    model_env: ModelServer, run_task: RunTask, tmp_path: Path
) -> None:
    """On a resume they are not called, and a server is not even started."""
    log = tmp_path / "server.log"
    STATE["file"] = str(log)
    calls = (
        call("mcp__flyte_tools__native", text="a"),
        call("mcp__mine__native", text="b"),
        call("mcp__theirs__echo", text="c"),
        call("shout", text="d"),
    )
    model_env.script("go", Reply(calls=calls), Reply("done"))
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(with_servers, crash=True)
    assert [text_of(block) for block in results_of(model_env)] == ["native a", "native b", '{"result":"echo c"}', "D"]
    assert sorted(EFFECTS) == ["native a", "native b", "shout d"]
    assert log.read_text().split("\n")[:-1] == ["started", "echo c"]
    assert await run_task(with_servers, crash=True) == "done"
    assert sorted(EFFECTS) == ["native a", "native b", "shout d"]
    assert log.read_text().split("\n")[:-1] == ["started", "echo c"]
    assert model_env.journal.count() == 2


@pytest.fixture
def remote_server(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts an MCP server that listens on loopback; its log and its port are in the test's folder."""
    started: list[subprocess.Popen[bytes]] = []

    def start(transport: str) -> subprocess.Popen[bytes]:
        program = Path(__file__).parent / "apps" / "mcp_server.py"
        process = subprocess.Popen([sys.executable, str(program), str(tmp_path / "server.log"), transport])
        started.append(process)
        deadline = time.monotonic() + 60
        while not (tmp_path / "server.port").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@env.task
async def with_a_remote_server(crash: bool = False) -> str:
    options = ClaudeAgentOptions(mcp_servers={"far": STATE["server"]})
    answer = await run_agent("go", options=options)
    STATE["runs"] = STATE.get("runs", 0) + 1
    if crash and STATE["runs"] == 1:
        raise Crash
    return answer


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_is_elsewhere_is_called_once_and_a_resume_needs_it_no_more(
    model_env: ModelServer,
    run_task: RunTask,
    run_folder: Callable[[str], Path],
    tmp_path: Path,
    remote_server: Callable[[str], subprocess.Popen[bytes]],
    transport: str,
) -> None:
    process = remote_server(transport)
    url = f"http://127.0.0.1:{(tmp_path / 'server.port').read_text()}/{'mcp' if transport == 'http' else 'sse'}"
    STATE["server"] = {"type": transport, "url": url, "headers": {"x-key": "very-secret"}}
    model_env.script("go", Reply(calls=(call("mcp__far__echo", text="c"), call("mcp__far__echo", text="d"))), "done")
    with pytest.raises(flyte.errors.RuntimeUserError):
        await run_task(with_a_remote_server, crash=True)
    assert [text_of(block).partition("}")[0] for block in results_of(model_env)] == [
        '{"result":"echo c"',
        '{"result":"echo d"',
    ]
    said = set((tmp_path / "server.log").read_text().split("\n")[:-1])
    assert said == {"started", "key very-secret", "echo c", "echo d"}
    process.kill()  # whoever asked it again would have an error
    process.wait()
    assert await run_task(with_a_remote_server, crash=True) == "done"
    assert (tmp_path / "server.log").read_text().count("echo") == 2
    assert model_env.journal.count() == 2
    kept = [path.read_bytes() for path in run_folder("").rglob("*") if path.is_file()]
    assert any(b"echo c" in content for content in kept)
    assert not any(b"very-secret" in content for content in kept)


async def test_a_server_that_is_not_there_ends_the_run_and_says_so(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", "done")
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        STATE["server"] = {"type": "http", "url": f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"}
        with pytest.raises(
            flyte.errors.RuntimeUserError,
            match=r"server far \(http://127.0.0.1:\d+/mcp\) cannot be connected: ConnectError",
        ):
            await run_task(with_a_remote_server)
    assert model_env.journal.count() == 0


async def test_a_caller_that_wants_to_be_asked_is_asked_and_hooks_see_each_call(model_env: ModelServer) -> None:
    """Claude Code does not ask about what is allowed beforehand, so nothing is."""
    asked: list[str] = []
    seen: list[str] = []

    async def can_use_tool(name: str, arguments: dict[str, Any], context: Any) -> Any:
        asked.append(name)
        if arguments.get("text") == "no":
            return PermissionResultDeny(message="The caller says no.")
        return PermissionResultAllow()

    async def hook(given: Any, call_id: str | None, context: Any) -> Any:
        seen.append(given["tool_name"])
        return {}

    options = ClaudeAgentOptions(
        can_use_tool=can_use_tool, hooks={"PreToolUse": [HookMatcher(matcher=None, hooks=[hook])]}
    )
    model_env.script("go", Reply(calls=(call("shout", text="yes"), call("shout", text="no"))), Reply("done"))
    assert await run_agent("go", tools=[shout], options=options) == "done"
    assert asked == ["mcp__flyte_tools__shout"] * 2 == seen
    yes, no = results_of(model_env)
    assert text_of(yes) == "YES"
    assert "The caller says no." in text_of(no)
    assert EFFECTS == ["shout yes"]


async def test_a_call_that_a_hook_defers_is_an_error_and_not_lost(model_env: ModelServer) -> None:
    async def defer(given: Any, call_id: str | None, context: Any) -> Any:
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "defer"}}

    options = ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(matcher=None, hooks=[defer])]})
    model_env.script("go", Reply(calls=(call("shout", text="later"),)), Reply("done"))
    with pytest.raises(NotImplementedError, match="deferred the call of mcp__flyte_tools__shout"):
        await run_agent("go", tools=[shout], options=options)
    assert EFFECTS == []


def test_a_tool_passes_for_the_sdks_own() -> None:
    assert isinstance(shout, SdkMcpTool)
    assert shout.name == "shout"
    renamed: Any = tool(shout, name="yell", description="Yell.")
    assert (renamed.name, renamed.description) == ("yell", "Yell.")
    assert shout.description == "Shout."
    create_sdk_mcp_server("mine", tools=[shout, renamed])


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([shout, shout], "two tools named 'shout'"),
        (shout, "give a list of tools"),
        ([3], "made of a Flyte task or a callable"),
        ([{"command": "x"}], "Give it a name"),
    ],
    ids=["twice", "alone", "none", "nameless server"],
)
async def test_what_is_no_list_of_tools_is_refused(tools: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        await run_agent("go", tools=tools)


async def test_a_long_result_reaches_the_model_whole(model_env: ModelServer) -> None:
    def long() -> str:
        """Tell a long story."""
        return json.dumps(["x" * 100] * 3000)

    model_env.script("go", Reply(calls=(call("long"),)), Reply("done"))
    assert await run_agent("go", tools=[long]) == "done"
    [result] = results_of(model_env)
    assert text_of(result) == long()
