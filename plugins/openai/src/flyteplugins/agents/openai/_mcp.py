"""MCP servers, in an agent run: the list of their tools is a leaf. Their calls are those of function tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from agents import RunContextWrapper
from agents.agent import AgentBase
from agents.mcp import MCPServer
from mcp.types import Tool
from pydantic import TypeAdapter

from flyteplugins.agents.core import JSON, AgentRun

__all__ = ["list_recorded"]

_TOOLS = TypeAdapter(list[Tool])


class _ToolsCodec:
    def encode(self, value: list[Tool]) -> JSON:
        return cast(JSON, _TOOLS.dump_python(value, mode="json", exclude_unset=True, by_alias=True))

    def decode(self, payload: JSON) -> list[Tool]:
        return _TOOLS.validate_python(payload)


async def list_recorded(
    run: AgentRun,
    list_tools: Callable[[MCPServer, RunContextWrapper[Any], AgentBase], Awaitable[list[Tool]]],
    server: MCPServer,
    run_context: RunContextWrapper[Any],
    agent: AgentBase,
) -> list[Tool]:
    """List a server's tools as the SDK would, and record them.

    Args:
        run: The agent run.
        list_tools: The SDK's own function.
        server: The server.
        run_context: The SDK's context of the run.
        agent: The agent that the tools are for.
    """

    async def call() -> list[Tool]:
        return await list_tools(server, run_context, agent)

    recorded = await run.list_tools(server.name, call, codec=_ToolsCodec(), agent=agent.name)
    return recorded.value
