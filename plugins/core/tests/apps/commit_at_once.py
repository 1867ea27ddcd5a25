"""Many processes commit to one memory key at once: `commit_at_once.py KEY PROCESSES`; each waits for a line of its parent's."""

from __future__ import annotations

import asyncio
import os
import sys

from flyteplugins.agents.core import ErrorClass, Folder, RunMemory, TaskScope, agent_run
from flyteplugins.agents.core import _run as run_module
from flyteplugins.agents.core._scope import AttemptState

KEY, PROCESSES = sys.argv[1], int(sys.argv[2])


def scope(run: str) -> TaskScope:
    """A task of a run, as `current_scope` gives it inside of one."""
    return TaskScope(
        org="",
        project="",
        domain="",
        run=run,
        action="a0",
        mode="local",
        folder=Folder.at(os.environ["HOME"], "runs", run),
        raw_data="",
        state=AttemptState(),
    )


async def commit(number: int, start: int) -> None:
    here = scope(f"run-{number}")
    setattr(run_module, "current_scope", lambda: here)  # noqa: B010 - it is not exported there
    async with agent_run(
        framework="test",
        name="agent",
        input="Hello",
        memory_key=KEY,
        configuration={},
        classify=lambda error: ErrorClass.RETRY_ATTEMPT,
        durable=False,
        observability=False,
    ) as run:
        memory = await RunMemory.open(run, KEY, sdk="test")
        await asyncio.to_thread(os.read, start, 1)
        for _ in range(2):  # the second one changes nothing
            await memory.commit([{"role": "user", "n": number}, {"role": "assistant", "n": number}])


def main() -> None:
    children: list[int] = []
    start, go = os.pipe()
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.run(commit(number, start))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.write(go, b"x" * PROCESSES)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(any(statuses))


if __name__ == "__main__":
    main()
