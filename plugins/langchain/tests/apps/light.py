"""A tool that tells whether its worker has the agent SDK loaded."""

import sys

import flyte

from flyteplugins.agents.langchain import run_agent, tool

env = flyte.TaskEnvironment("light")


@tool
@env.task(cache="disable")
async def loaded() -> list[str]:
    """Tell which SDK modules this process has imported."""
    return [name for name in ("langchain", "langchain_core", "langgraph", "openai") if name in sys.modules]


@env.task
async def chat(message: str, memory_key: str = "") -> str:
    result = await run_agent(
        message, tools=[loaded], model="openai:gpt-4.1", memory_key=memory_key or None, full_result=True
    )
    return ", ".join(call.result for call in result.tool_calls) or result.text
