"""An MCP server that writes down what it does: over stdio, or over HTTP or SSE on a port that the system chooses.

python mcp_server.py LOG [http|sse]
"""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

from mcp.server import MCPServer

log = Path(sys.argv[1])
transport = sys.argv[2] if len(sys.argv) > 2 else "stdio"


def note(line: str) -> None:
    with log.open("a") as file:
        file.write(f"{line}\n")


server = MCPServer("theirs")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    note(f"echo {text}")
    return f"echo {text}"


def noting_keys(app: Any) -> Any:
    async def noting(scope: Any, receive: Any, send: Any) -> None:
        for name, value in scope.get("headers", ()):
            if name == b"x-key":
                note(f"key {value.decode()}")
        await app(scope, receive, send)

    return noting


async def serve() -> None:
    import uvicorn

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = server.streamable_http_app() if transport == "http" else server.sse_app()
    config = uvicorn.Config(noting_keys(app), log_config=None)
    # a name that appears with its content, for whoever waits for it
    port = log.with_suffix(".port.new")
    port.write_text(str(listener.getsockname()[1]))
    os.replace(port, log.with_suffix(".port"))
    await uvicorn.Server(config).serve(sockets=[listener])


note("started")
if transport == "stdio":
    server.run("stdio")
else:
    asyncio.run(serve())
