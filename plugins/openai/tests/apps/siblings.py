"""An agent that calls two tools at once, of which one fails at once, and that fails with it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import flyte

from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("siblings")


@tool
@env.task(cache="disable")
def slow(folder: str) -> str:
    """Take long."""
    Path(folder, "slow").write_text(str(os.getpid()))
    time.sleep(600)
    return "done"


@tool
@env.task(cache="disable")
def failing(folder: str) -> str:
    """Fail when the other one has begun."""
    while not Path(folder, "slow").exists():
        time.sleep(0.05)
    raise ValueError("this one fails")


@env.task
async def chat(message: str) -> str:
    return await run_agent(message, tools=[slow, failing], on_tool_error="raise")
