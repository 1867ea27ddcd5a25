"""A sync task whose agent calls sync tools that run agents: as many at once as the machine's thread pool is large."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading

import flyte

from flyteplugins.agents.core import AgentTool, ErrorClass, JsonCodec, agent_run, run_coro_sync

AT_ONCE = min(32, (os.cpu_count() or 1) + 4)  # asyncio's default

env = flyte.TaskEnvironment("core-nested-sync-agents")
everybody = threading.Barrier(AT_ONCE)


async def agent(name: str) -> str:
    async with agent_run(
        framework="test",
        name=name,
        input="Hello",
        memory_key=None,
        configuration={},
        classify=lambda error: ErrorClass.RETRY_ATTEMPT,
        observability=False,
    ) as run:
        if name == "outer":
            tool = AgentTool(delegate)
            outcomes = await asyncio.gather(*(tool.call({"number": number}) for number in range(AT_ONCE)))
            return " ".join(outcome.text for outcome in outcomes)

        async def call() -> str:
            return name

        recorded = await run.recorder.record("turn", {"name": name}, call, codec=JsonCodec())
        return str(recorded.value)


def delegate(number: int) -> str:
    """Ask another agent.

    Args:
        number: Which one.
    """
    everybody.wait()
    return run_coro_sync(agent(f"inner-{number}"))


@env.task
def work() -> str:
    return run_coro_sync(agent("outer"))


def main() -> None:
    flyte.init()
    faulthandler.dump_traceback_later(30, exit=True)  # it hangs, or ends at once
    print(flyte.with_runcontext(mode="local").run(work).outputs()[0])


if __name__ == "__main__":
    main()
