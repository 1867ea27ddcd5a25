"""Tools of MCP servers: listed once, called once, and connections that are opened when they are needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from mcp import StdioServerParameters
from mistralai.client.models import Function, FunctionTool
from mistralai.extra.mcp.stdio import MCPClientSTDIO
from mistralai.extra.run.context import RunContext

from flyteplugins.agents.conformance.models import ModelServer, Reply, ToolCall, call
from flyteplugins.agents.mistral import run_agent

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("mcp")

SERVER = Path(__file__).parent / "apps" / "mcp_server.py"


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


class Notes:
    """An MCP client without a server, as the SDK's protocol has it."""

    _name = "notes"

    def __init__(self) -> None:
        self.did: list[str] = []
        self.connected = False

    async def initialize(self, exit_stack: AsyncExitStack | None) -> None:
        del exit_stack
        self.connected = True
        self.did.append("connect")

    async def aclose(self) -> None:
        self.did.append("close")

    async def get_tools(self) -> list[FunctionTool]:
        assert self.connected
        self.did.append("list")
        parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
        return [FunctionTool(function=Function(name="keep", description="Keep a note.", parameters=parameters))]

    async def execute_tool(self, name: str, arguments: dict[str, Any]) -> list[Any]:
        assert self.connected
        self.did.append(f"{name} {arguments['text']}")
        if arguments["text"] == "bad":
            raise ValueError("this note is bad")
        return [{"type": "text", "text": f"kept {arguments['text']}"}]


def two_notes(server: ModelServer) -> None:
    server.script(
        "Keep notes",
        Reply(calls=(call("keep", text="a"),)),
        Reply(calls=(call("keep", text="bad"), ToolCall("keep", "[1]", unlisted=True))),
        lambda conversation: Reply(" | ".join(result.text for result in conversation.results)),
    )


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_a_server_is_asked_once_and_not_connected_for_what_is_on_record(
    model_env: ModelServer, run_task: RunTask, streaming: bool
) -> None:
    """The caller's client is not the one that is connected, so another run can use it."""
    two_notes(model_env)
    notes: Any = Notes()

    @env.task
    async def ask() -> str:
        return str(await run_agent("Keep notes", tools=[notes], streaming=streaming))

    answer = await run_task(ask)
    assert answer == (
        '[{"type":"text","text":"kept a"}] | Error: the tool keep failed. ValueError: this note is bad | '
        "Error: the arguments of keep are not a JSON object."
    )
    assert notes.did == ["connect", "list", "keep a", "keep bad", "close"]
    assert notes.connected is False
    assert await run_task(ask) == answer
    assert len(notes.did) == 5


async def test_a_tool_that_fails_may_fail_the_run(model_env: ModelServer, run_task: RunTask) -> None:
    two_notes(model_env)
    notes: Any = Notes()

    @env.task(retries=2)
    async def ask() -> str:
        return str(await run_agent("Keep notes", tools=[notes], on_tool_error="raise"))

    with pytest.raises(flyte.errors.RuntimeUserError, match="The tool keep failed: ValueError: this note is bad"):
        await run_task(ask)
    assert notes.did.count("keep bad") == 1
    assert notes.did[-1] == "close"


async def test_a_client_that_the_caller_has_connected_stays_open(model_env: ModelServer) -> None:
    two_notes(model_env)
    notes: Any = Notes()
    async with RunContext(model="mistral-large-latest") as context:
        await context.register_mcp_client(notes)
        assert "kept a" in await run_agent("Keep notes", agent=context)
        assert notes.did == ["connect", "list", "keep a", "keep bad"]


async def test_a_tool_of_a_server_and_one_of_the_agents_cannot_have_one_name(model_env: ModelServer) -> None:
    notes: Any = Notes()

    def keep(text: str) -> str:
        """Keep."""
        return text

    with pytest.raises(ValueError, match="The MCP server notes has a tool 'keep', and so has the agent"):
        await run_agent("Keep notes", tools=[keep, notes])
    assert model_env.journal.count() == 0


async def test_a_real_server_serves_a_run_and_is_not_started_for_its_replay(
    model_env: ModelServer, run_task: RunTask, tmp_path: Path
) -> None:
    """A process over standard input and output, with the SDK's own client; the second attempt goes on after the first."""
    two_notes(model_env)
    kept = tmp_path / "notes"
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(SERVER)], env={**os.environ, "NOTES": str(kept)}
    )
    client = MCPClientSTDIO(parameters, name="notes")
    state: dict[str, Any] = {"max_turns": 1}

    @env.task
    async def ask() -> str:
        return str(await run_agent("Keep notes", tools=[client], **state))

    with pytest.raises(flyte.errors.RuntimeUserError, match="took 1 turns"):
        await run_task(ask)
    assert kept.read_text() == "a\n"
    state["max_turns"] = 3
    answer = await run_task(ask)
    assert "kept a" in answer
    assert kept.read_text() == "a\nbad\n"
    parameters.command = "/nowhere"
    assert await run_task(ask) == answer
