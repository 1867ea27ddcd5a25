# A deep agent: a sub-agent with a model and a tool of its own, and files that last between runs.
#
# Type:  flyte run --local examples/deep_agent_chat.py chat --message "What is the weather in Oslo?" --memory_key ada
#        flyte run --local examples/deep_agent_chat.py files --memory_key ada
# See:   the first run hands the question to its sub-agent and writes the answer to a file; the second one, which asks no model,
#        finds the file beside the conversation.
#
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import flyte

from flyteplugins.agents.langchain import MemoryStore, run_agent, tool

env = flyte.TaskEnvironment("deep_agent_chat")


@tool
@env.task(retries=3)
async def get_weather(city: str) -> str:
    """Get the current weather for a city.

    Args:
        city: The city's name.
    """
    return f"It is sunny in {city}, 21 °C."


METEOROLOGIST = {
    "name": "meteorologist",
    "description": "Knows the weather of every city.",
    "system_prompt": "Answer with the weather, and nothing else.",
    "model": "openai:gpt-4.1-mini",
    "tools": [get_weather],
}


@env.task(report=True, retries=3)
async def chat(message: str, memory_key: str = "") -> str:
    return await run_agent(
        message,
        model="openai:gpt-4.1",
        instructions="Ask the meteorologist about the weather, and keep a diary in /weather.md.",
        subagents=[METEOROLOGIST],
        memory_key=memory_key or None,
    )


@env.task
async def files(memory_key: str) -> list[str]:
    return await MemoryStore.for_key(memory_key).list_paths("deepagents/files")
