"""An agent whose built-in tool kills the agent's process and then takes long, while an MCP server of its own is connected."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import flyte

from flyteplugins.agents.claude import run_agent

env = flyte.TaskEnvironment("dies-in-a-tool")


@env.task
async def chat(message: str) -> str:
    from claude_agent_sdk import ClaudeAgentOptions

    folder = os.environ["CRASH_FOLDER"]
    program = str(Path(__file__).with_name("mcp_server.py"))
    options = ClaudeAgentOptions(
        tools=["Bash"],
        permission_mode="bypassPermissions",
        cwd=folder,
        env={"WORKER": str(os.getpid())},
        mcp_servers={
            "theirs": {
                "command": sys.executable,
                "args": [program, f"{folder}/server.log"],
                "env": {"CRASH_FOLDER": folder},
            }
        },
    )
    return await run_agent(message, options=options)
