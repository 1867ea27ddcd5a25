"""Toolsets of MCP servers: what a server offers is a leaf, so that a resume offers the model what the first attempt did."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from flyteplugins.agents.core import JSON, current_run

if TYPE_CHECKING:
    from google.adk.tools.mcp_tool import McpToolset

__all__ = ["list_recorded"]

_MODULE = "google.adk.tools.mcp_tool.mcp_toolset"


def list_recorded(toolset: BaseToolset, get_tools: Callable[..., Awaitable[list[BaseTool]]]) -> Any:
    """Catch a toolset's `get_tools`.

    Args:
        toolset: The toolset.
        get_tools: Its own method.

    Returns:
        What is called in its place. A toolset that is none of an MCP server's is asked as it is.
    """
    kind = getattr(sys.modules.get(_MODULE), "McpToolset", None)
    if kind is None or not isinstance(toolset, kind):
        return get_tools
    server = cast("McpToolset", toolset)

    async def recorded(readonly_context: Any = None) -> list[BaseTool]:
        run = current_run()
        if run is None:
            return await get_tools(readonly_context)
        agent = readonly_context.agent_name if readonly_context is not None else ""
        listed = await run.list_tools(
            _server_name(server), lambda: get_tools(readonly_context), codec=_ToolsCodec(server), agent=agent
        )
        return listed.value

    return recorded


def _server_name(toolset: McpToolset) -> str:
    """Which server it is: its command or address, without what may be secret."""
    given: Any = toolset.connection_params
    given = getattr(given, "server_params", given)
    url = getattr(given, "url", None)
    if url is not None:
        return str(url).partition("?")[0]
    return " ".join([str(getattr(given, "command", type(given).__qualname__)), *map(str, getattr(given, "args", ()))])


class _ToolsCodec:
    """For what a server offers. The tools are the SDK's own, on the toolset's connection, which is opened when one is called."""

    def __init__(self, toolset: McpToolset) -> None:
        self._toolset = toolset

    def encode(self, value: list[BaseTool]) -> JSON:
        from google.adk.tools.load_mcp_resource_tool import LoadMcpResourceTool
        from google.adk.tools.mcp_tool import McpTool

        return {
            "tools": [
                cast(JSON, tool.raw_mcp_tool.model_dump(mode="json", by_alias=True, exclude_none=True))
                for tool in value
                if isinstance(tool, McpTool)
            ],
            "resources": any(isinstance(tool, LoadMcpResourceTool) for tool in value),
        }

    def decode(self, payload: JSON) -> list[BaseTool]:
        from google.adk.tools.load_mcp_resource_tool import LoadMcpResourceTool
        from google.adk.tools.mcp_tool import McpTool
        from mcp.types import Tool

        kept = cast("dict[str, Any]", payload)
        own: Any = self._toolset
        tools: list[BaseTool] = [
            McpTool(
                mcp_tool=Tool.model_validate(tool),
                mcp_session_manager=own._mcp_session_manager,
                auth_scheme=own._auth_scheme,
                auth_credential=own._auth_credential,
                require_confirmation=own._require_confirmation,
                header_provider=own._header_provider,
                progress_callback=getattr(own, "_progress_callback", None),
                propagate_grounding_metadata=own._propagate_grounding_metadata,
            )
            for tool in kept["tools"]
        ]
        if kept["resources"]:
            tools.append(LoadMcpResourceTool(mcp_toolset=self._toolset))
        return tools
