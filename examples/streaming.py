# An agent whose answer is printed while it is made, and that dies in the middle of a longer one.
#
# Type, twice:  flyte run --local --name story examples/streaming.py tell --question "Tell me a long story"
# See:   the first process prints the weather, then the answer word by word, and dies before the end. The second one is given what
#        was finished from its records, marked `replayed`, and streams the answer that was cut off.
#
# With another name it starts from nothing. On a cluster Flyte's retries do it.
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import os

import flyte
import flyte.storage

from flyteplugins.agents.core import Event, RunFinished, TextDelta, ToolCallFinished, TurnFinished
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("streaming")

PIECES_BEFORE_DEATH = 20


@tool
@env.task(cache="disable")
async def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"Sunny and 24 °C in {city}."


class Printer:
    """Prints what the agent does as it does it, and dies once in the middle of an answer."""

    def __init__(self) -> None:
        self.pieces = 0

    async def __call__(self, event: Event) -> None:
        mark = " (replayed)" if event.replayed else ""
        match event:
            case TextDelta():
                self.pieces += 1
                print(event.text, end="", flush=True)
                if self.pieces == PIECES_BEFORE_DEATH:
                    await die_once()
            case TurnFinished():
                calls = f", calls {', '.join(event.tool_calls)}" if event.tool_calls else ""
                print(f"\n    [a turn of {event.usage.output_tokens} tokens{calls}{mark}]", flush=True)
            case ToolCallFinished():
                print(f"    [{event.name}: {event.result}{mark}]", flush=True)
            case RunFinished() if event.error is None:
                print(f"    [{self.pieces} pieces of text]", flush=True)


async def die_once() -> None:
    """Kill this process, as a lost machine would, unless an earlier process of the same run died here."""
    mark = flyte.storage.join(flyte.ctx().run_base_dir, "died")
    if not await flyte.storage.exists(mark):
        await flyte.storage.put_stream(b"dead", to_path=mark)
        print("\n    *** the process dies in the middle of the answer ***", flush=True)
        os._exit(1)


@env.task(report=True, retries=3)
async def tell(question: str, weather_in: str = "Lisbon") -> str:
    printer = Printer()
    weather = await run_agent(
        f"What is the weather in {weather_in}?", tools=[get_weather], model="gpt-4.1", name="weather", on_event=printer
    )
    story = await run_agent(question, instructions=str(weather), model="gpt-4.1", name="story", on_event=printer)
    return str(story)
