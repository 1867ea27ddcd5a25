"""An MCP server over standard input and output: one tool, which writes down that it was called."""

import os
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.tool()
def keep(text: str) -> str:
    """Keep a note."""
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{text}\n")
    if text == "bad":
        raise ValueError("this note is bad")
    return f"kept {text}"


if __name__ == "__main__":
    server.run("stdio")
