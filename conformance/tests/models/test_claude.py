"""What the Claude Code CLI needs beyond the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flyteplugins.agents.conformance.models import ModelServer

sdk: Any = pytest.importorskip("claude_agent_sdk", exc_type=ImportError)


async def test_deferred_tools_are_searched_for_without_taking_a_turn(model_server: ModelServer, tmp_path: Path) -> None:
    """With its built-in tools, Claude Code names MCP tools only; the model has to search for them first."""

    async def get_weather(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"sunny in {arguments['city']}"}]}

    tool = sdk.tool("get_weather", "Get the weather.", {"city": str})(get_weather)
    options = sdk.ClaudeAgentOptions(
        mcp_servers={"srv": sdk.create_sdk_mcp_server("srv", tools=[tool])},
        allowed_tools=["mcp__srv__get_weather"],
        setting_sources=[],
        env={**model_server.env(), "HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": str(tmp_path / "config")},
        cwd=str(tmp_path),
        model="claude-sonnet-4-5",
    )
    answers = []
    async for message in sdk.query(prompt="What is the weather in Paris?", options=options):
        if isinstance(message, sdk.ResultMessage):
            answers.append(message.result)
    assert answers == ["Here is the weather. Paris: sunny in Paris."]
    assert model_server.journal.per_turn() == {1: 2, 2: 1}
