"""An MCP server over stdio with two tools; it writes a line to the file `MCP_LOG` for each list and each call."""

import os
from pathlib import Path
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool


def note(what: str) -> None:
    with Path(os.environ["MCP_LOG"]).open("a") as file:
        file.write(f"{what}\n")


async def list_tools(*_: Any) -> ListToolsResult:
    note("list")
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to look for."}},
        "required": ["text"],
    }
    return ListToolsResult(
        tools=[
            Tool(name="find", title="Finder", description="Find a text.", input_schema=schema),
            Tool(name="break", description="Always fails.", input_schema=schema),
        ]
    )


async def call_tool(_: Any, params: Any) -> CallToolResult:
    text = (params.arguments or {}).get("text", "")
    note(f"{params.name} {text}")
    if params.name == "break":
        return CallToolResult(content=[TextContent(type="text", text="it is broken")], is_error=True)
    return CallToolResult(content=[TextContent(type="text", text=f"found {text} twice")])


async def main() -> None:
    server: Any = Server("finder", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
