"""Tools of MCP servers: listed once, called once, and no server is started for what is on record."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
from google.adk.tools.mcp_tool.mcp_session_manager import MCPSessionManager
from mcp import StdioServerParameters

from flyteplugins.agents.adk import run_agent
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call

RunTask = Callable[..., Any]
GEMINI = "gemini-3.5-flash"

env = flyte.TaskEnvironment("adk_mcp")

SERVER = Path(__file__).parent / "apps" / "mcp_server.py"


async def test_a_server_serves_a_run_and_is_not_started_for_its_replay(
    model_env: ModelServer, run_task: RunTask, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process over standard input and output; an attempt that fails on its way has its calls on record."""
    model_env.script(
        "Keep notes",
        Reply(calls=(call("keep", text="a"),)),
        Reply(calls=(call("keep", text="bad"),)),
        lambda conversation: Reply(str([content["parts"] for content in conversation.body["contents"]])),
    )
    model_env.fault(Fault.error(500, times=1), user="Keep notes", turn=2)
    kept = tmp_path / "notes"
    started: list[str] = []
    open_session = MCPSessionManager.create_session

    async def create_session(self: MCPSessionManager, *args: Any, **kwargs: Any) -> Any:
        started.append("session")
        return await open_session(self, *args, **kwargs)

    monkeypatch.setattr(MCPSessionManager, "create_session", create_session)

    @env.task
    async def ask() -> str:
        parameters = StdioServerParameters(
            command=sys.executable, args=[str(SERVER)], env={**os.environ, "NOTES": str(kept)}
        )
        toolset = McpToolset(connection_params=StdioConnectionParams(server_params=parameters, timeout=30))
        agent = LlmAgent(name="one", model=GEMINI, tools=[toolset])
        return str(await run_agent("Keep notes", agent=agent))

    with pytest.raises(flyte.errors.RuntimeUserError, match="500"):
        await run_task(ask, name=run_name)
    assert kept.read_text() == "a\n"
    answer = await run_task(ask, name=run_name)
    assert "kept a" in answer
    assert "Error executing tool keep" in answer
    assert kept.read_text() == "a\nbad\n"
    assert started
    started.clear()
    assert await run_task(ask, name=run_name) == answer
    assert not started
    assert kept.read_text() == "a\nbad\n"
