# An agent of Google's ADK with a tool, and a memory that lasts between runs.
#
# Type:  flyte run --local examples/adk_chat.py chat --message "My name is Ada" --memory_key ada
# then:  flyte run --local examples/adk_chat.py chat --message "What is my name?" --memory_key ada
# See:   the second answer knows the name, although it is another run, in another process.
#
# With a key of your own:  export GOOGLE_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import flyte

from flyteplugins.agents.adk import run_agent, tool

env = flyte.TaskEnvironment("adk_chat")


@tool
@env.task(retries=3)
async def get_weather(city: str) -> str:
    """Get the current weather for a city.

    Args:
        city: The city's name.
    """
    return f"It is sunny in {city}, 21 °C."


@env.task(report=True, retries=3)
async def chat(message: str, memory_key: str = "") -> str:
    return await run_agent(message, tools=[get_weather], model="gemini-3.5-flash", memory_key=memory_key or None)
