"""An MCP server over standard input and output. It writes a line for its start and for each call to the file in `EFFECTS`."""

import os
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("counter", instructions="Count on me.")


def note(line: str) -> None:
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{line}\n")


@server.tool()
def count(step: int) -> str:
    """Count on."""
    note(f"count {step}")
    return f"counted {step}"


if __name__ == "__main__":
    note("started")
    server.run("stdio")
