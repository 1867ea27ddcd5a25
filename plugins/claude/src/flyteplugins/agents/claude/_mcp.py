"""The caller's MCP servers: connected by the agent's process when first needed, so that each call is recorded.

Claude Code would connect them itself, and nobody would see the calls. What is on record needs no connection at all. Most of MCP's
connections can only be closed by the task that opened them, so each has a task of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import httpx2
from claude_agent_sdk.types import McpSdkServerConfig
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, Tool

from flyteplugins.agents.core import JSON, AgentRun, JsonCodec, error_chain

from ._context import RunContext
from ._function_tools import Check, record_call, serve_tools

__all__ = ["McpConnection", "read_servers", "recorded_server"]

logger = logging.getLogger("flyteplugins.agents")

_TRANSPORTS = ("sdk", "stdio", "http", "sse")


def read_servers(servers: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Read `ClaudeAgentOptions.mcp_servers`, which may be a mapping, JSON text or the path of a JSON file.

    Args:
        servers: The option's value.

    Raises:
        ValueError: It is neither, or a server has a transport that nobody here knows.
    """
    if isinstance(servers, Mapping):
        found = dict(servers)
    else:
        text = str(servers)
        try:
            read = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
            found = dict(read["mcpServers"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"mcp_servers is {text[:200]!r}, which is neither JSON nor a file of JSON with 'mcpServers' in it "
                f"({type(error).__name__}: {error})."
            ) from error
    for name, config in found.items():
        kind = config.get("type", "stdio")
        if kind not in _TRANSPORTS:
            raise ValueError(f"The MCP server {name} has the type {kind!r}; there are {', '.join(_TRANSPORTS)}.")
    return found


@contextlib.asynccontextmanager
async def _connect(config: Mapping[str, Any]) -> AsyncIterator[Client]:
    match config.get("type", "stdio"):
        case "sdk":
            opened = Client(config["instance"], cache=None)
        case "http":
            async with (
                httpx2.AsyncClient(headers=config.get("headers"), timeout=httpx2.Timeout(30, read=300)) as http,
                Client(streamable_http_client(config["url"], http_client=http), cache=None) as client,
            ):
                yield client
            return
        case "sse":
            opened = Client(sse_client(config["url"], headers=config.get("headers")), cache=None)
        case _:
            given = StdioServerParameters(
                command=config["command"], args=list(config.get("args") or ()), env=config.get("env")
            )
            opened = Client(given, cache=None)
    async with opened as client:
        yield client


class McpConnection:
    """One MCP server in one agent run.

    Args:
        name: The server's name.
        config: How to reach it.
    """

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self.name = name
        self._config = config
        self._client: asyncio.Future[Client] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Leave the server, if it was connected."""
        if self._task is None:
            return
        self._closing.set()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (problem := self._task.exception()) is not None:
            logger.warning("The MCP server %s was not left cleanly: %r", self.name, problem)

    async def connected(self) -> Client:
        """The client, connected.

        Raises:
            ConnectionError: The server is not there, or speaks something else.
        """
        if self._client is None:
            self._client = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._live(self._client))
        return await asyncio.shield(self._client)

    async def _live(self, ready: asyncio.Future[Client]) -> None:
        try:
            async with _connect(self._config) as client:
                ready.set_result(client)
                await self._closing.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(self._not_there(error) if isinstance(error, Exception) else error)
            ready.exception()  # whoever waits for it gets it

    def _not_there(self, error: Exception) -> ConnectionError:
        """Say which server it is: of the clients' errors most are groups, and none says it."""
        place = self._config.get("url") or self._config.get("command") or "this process"
        *_, cause = (one for one in error_chain(error) if not isinstance(one, BaseExceptionGroup))
        made = ConnectionError(
            f"The MCP server {self.name} ({place}) cannot be connected: {type(cause).__name__}: {cause}"
        )
        made.__cause__ = error
        return made

    async def tools(self, run: AgentRun) -> list[Tool]:
        """The tools that the server offers, once: a resume gets the same list without asking.

        Args:
            run: The agent run.
        """

        async def ask() -> JSON:
            client = await self.connected()
            found: list[Tool] = []
            cursor: str | None = None
            while True:
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            return [cast(JSON, one.model_dump(mode="json", by_alias=True, exclude_none=True)) for one in found]

        recorded = await run.list_tools(self.name, ask, codec=JsonCodec())
        return [Tool.model_validate(one) for one in cast("list[Any]", recorded.value)]

    async def call(self, run: AgentRun, tool: str, arguments: dict[str, Any], call_id: str) -> CallToolResult:
        """Call a tool, once over all attempts.

        Args:
            run: The agent run.
            tool: Its name.
            arguments: Its arguments.
            call_id: The model's id of the call.
        """

        async def execute() -> CallToolResult:
            return await (await self.connected()).call_tool(tool, arguments)

        return await record_call(run, f"{self.name}/{tool}", arguments, call_id, execute)


def recorded_server(
    run: AgentRun, connection: McpConnection, config: Mapping[str, Any], *, context: RunContext, check: Check
) -> McpSdkServerConfig:
    """Make the server that stands for the caller's in front of Claude Code.

    Args:
        run: The agent run.
        connection: The caller's server.
        config: How the caller described it; what is Claude Code's in it stays.
        context: Where calls are made.
        check: Compares a call with what was approved.
    """

    async def call(tool: str, arguments: dict[str, Any], call_id: str) -> CallToolResult:
        return await connection.call(run, tool, arguments, call_id)

    served = serve_tools(connection.name, lambda: connection.tools(run), call, context=context, check=check)
    kept = {name: value for name, value in config.items() if name in ("alwaysLoad", "timeout")}
    return cast(McpSdkServerConfig, {**kept, **served})
