"""An MCP server over stdio that writes down what it does."""

import sys
from pathlib import Path

from mcp.server import MCPServer

log = Path(sys.argv[1])


def note(line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


server = MCPServer("theirs")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    note(f"echo {text}")
    return f"echo {text}"


note("started")
server.run("stdio")
