"""MCP servers: listed and called once over all attempts, and not even started by a run that is on record."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.pydantic_ai import run_agent

RunTask = Callable[..., Any]
SERVER = Path(__file__).parent / "apps" / "mcp_server.py"

env = flyte.TaskEnvironment("mcp")


@pytest.mark.parametrize("toolset_id", [None, "counter"], ids=["without an id", "with an id"])
async def test_an_mcp_server_is_listed_and_called_once(
    model_env: ModelServer, run_task: RunTask, tmp_path: Path, toolset_id: str | None
) -> None:
    effects = tmp_path / "effects"
    model_env.script("go", Reply(calls=(call("count", step=1),)), Reply(calls=(call("count", step=2),)), "two")
    state = {"crash": True}

    @env.task
    async def asking() -> str:
        transport = StdioTransport(sys.executable, [str(SERVER)], env={"EFFECTS": str(effects)}, keep_alive=False)
        server = MCPToolset(transport, id=toolset_id, include_instructions=True, init_timeout=120)
        answer = await run_agent("go", model="openai:gpt-4.1", tools=[server])
        if state["crash"]:
            raise RuntimeError("crash")
        return str(answer)

    with pytest.raises(Exception, match="crash"):
        await run_task(asking, name="run")
    assert effects.read_text().split() == ["started", "count", "1", "count", "2"]  # one session for the whole run
    assert "Count on me." in model_env.journal.requests()[0].body["instructions"]
    state["crash"] = False
    assert await run_task(asking, name="run") == "two"
    assert model_env.journal.count() == 3
    again = effects.read_text().split()[5:]
    assert again == ([] if toolset_id else ["started"])
