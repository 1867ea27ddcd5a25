"""MCP clients of an agent run: connected when first needed, in a task of their own, and left as the caller gave them.

Most of MCP's connections can only be closed by the task that opened them, and what is on record needs no connection at all. So a
copy of the caller's client is connected by a task of its own as soon as somebody calls it, and closed when the run ends. A client
that the caller has connected is used as it is, and stays open.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from mistralai.client.models import FunctionTool

from flyteplugins.agents.core import JSON, AgentRun, JsonCodec

if TYPE_CHECKING:
    from mistralai.extra.mcp.base import MCPClientProtocol

__all__ = ["McpConnection", "is_mcp_client"]

logger = logging.getLogger("flyteplugins.agents")


def is_mcp_client(value: object) -> bool:
    """Whether a value is what the SDK calls an MCP client."""
    return all(callable(getattr(value, name, None)) for name in ("initialize", "get_tools", "execute_tool", "aclose"))


class McpConnection:
    """One MCP client in one agent run.

    Args:
        client: The caller's client.
        connected: Whether the caller has connected it.
    """

    def __init__(self, client: MCPClientProtocol, *, connected: bool = False) -> None:
        self._given = client
        self._connected = connected or bool(getattr(client, "_is_initialized", False))
        self._client: asyncio.Future[MCPClientProtocol] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The client's name."""
        return str(getattr(self._given, "_name", "") or type(self._given).__qualname__)

    async def __aenter__(self) -> McpConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._closing.set()
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (problem := self._task.exception()) is not None:
                logger.warning("The MCP server %s was not left cleanly: %r", self.name, problem)

    async def connected(self) -> MCPClientProtocol:
        """The client, connected."""
        if self._connected:
            return self._given
        if self._client is None:
            self._client = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._live(self._client))
        return await asyncio.shield(self._client)

    async def _live(self, ready: asyncio.Future[MCPClientProtocol]) -> None:
        client = copy.copy(self._given)
        try:
            async with AsyncExitStack() as stack:
                await client.initialize(stack)
                ready.set_result(client)
                await self._closing.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
                with contextlib.suppress(BaseException):
                    ready.exception()  # whoever waits for it gets it
                return
            raise
        finally:
            await client.aclose()

    async def tools(self, run: AgentRun) -> list[FunctionTool]:
        """The tools that the server offers, once: a resume gets the same list without asking.

        Args:
            run: The agent run.
        """

        async def ask() -> JSON:
            found = await (await self.connected()).get_tools()
            return [cast(JSON, tool.model_dump(mode="json", by_alias=True)) for tool in found]

        recorded = await run.list_tools(self.name, ask, codec=JsonCodec())
        return [FunctionTool.model_validate(tool) for tool in cast("list[Any]", recorded.value)]

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool.

        Args:
            name: The tool.
            arguments: Its arguments.
        """
        return await (await self.connected()).execute_tool(name, arguments)
