"""An agent run whose process dies after a turn when `KILL` is set, and goes on when run again under the same name."""

import asyncio
import os
import sys

import flyte

from flyteplugins.agents.core import ErrorClass, JsonCodec, TurnFinished, Usage, agent_run

env = flyte.TaskEnvironment("report-dies")


@env.task(report=True)
async def chat() -> str:
    async with agent_run(
        framework="test",
        name="mortal",
        input="Hi",
        memory_key=None,
        configuration={},
        classify=lambda error: ErrorClass.RETRY_ATTEMPT,
    ) as run:
        for number in range(2):

            async def answer(number: int = number) -> str:
                return f"answer {number}"

            recorded = await run.recorder.record("turn", {"number": number}, answer, codec=JsonCodec())
            usage = Usage(1, 100, 10)
            text = str(recorded.value)
            await run.emit(TurnFinished(agent="mortal", model="m", text=text, usage=usage, replayed=recorded.replayed))
            if os.environ.get("KILL") == "in silence":
                os._exit(9)
            if os.environ.get("KILL") == "after a write":
                await asyncio.sleep(60)  # a long turn: the report is written meanwhile
        await run.finish("bye")
    return "bye"


if __name__ == "__main__":
    flyte.init()
    flyte.with_runcontext(mode="local", name=sys.argv[1]).run(chat)
