"""Tools of the SDK's own: their calls are recorded as well."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, cast

from flyteplugins.agents.core import JSON, AgentRun, Codec, JsonCodec

if TYPE_CHECKING:
    from .sdk import Tool

__all__ = ["record_tool"]


def record_tool(run: AgentRun, tool: Tool) -> Tool:
    """Make a copy of a tool whose calls are recorded; one that `tool` made records them itself.

    Args:
        run: The agent run.
        tool: The tool.
    """
    if hasattr(tool.function, "__agent_tool__"):
        return tool

    async def call(arguments: str, call_id: str) -> str:
        recorded = await run.inline_tool(
            tool.name,
            cast(JSON, json.loads(arguments)),
            lambda: tool.function(arguments, call_id),
            codec=cast("Codec[str]", JsonCodec()),
            shown=str,
            call_id=call_id,
        )
        return recorded.value

    return dataclasses.replace(tool, function=call)
