"""An agent of three turns and a tool, in a process of its own: `three_turns.py RUN FOLDER [WHAT HAPPENS]`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import flyte
from flyte._internal.controllers._local_controller import LocalController

from flyteplugins.agents.core import JSON, AgentTool, ErrorClass, JsonCodec, agent_run, idempotency_key

RUN, FOLDER, HAPPENS = sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""

env = flyte.TaskEnvironment("core-three-turns")


def note(event: str) -> None:
    with (FOLDER / "events").open("a") as file:
        file.write(f"{event}\n")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def meet() -> None:
    """Go on when two processes are here."""
    (FOLDER / f"here-{os.getpid()}").touch()
    while len(list(FOLDER.glob("here-*"))) < 2:
        time.sleep(0.005)


async def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    note(f"pay {idempotency_key()}")
    if HAPPENS == "dies in the tool":
        die()
    return f"paid {amount}"


@env.task
async def agent() -> str:
    async with agent_run(
        framework="test",
        name="agent",
        input="Hello",
        memory_key=None,
        configuration={},
        classify=lambda error: ErrorClass.RETRY_ATTEMPT,
        observability=False,
    ) as run:
        answers: list[JSON] = []
        for number in range(3):

            async def call(number: int = number) -> JSON:
                note(f"turn {number}")
                if HAPPENS == "meets in the call":
                    meet()
                if f"dies in turn {number}" == HAPPENS:
                    die()
                return f"{number} from {os.getpid()}"

            recorded = await run.recorder.record("turn", {"number": number}, call, codec=JsonCodec())
            answers.append(recorded.value)
        answers.append((await AgentTool(pay).call({"amount": 5})).text)
        return json.dumps(answers)


def main() -> None:
    if HAPPENS == "dies between record and trace":
        record_trace = LocalController.record_trace
        traces = []

        async def record(self: LocalController, info: Any) -> None:
            traces.append(info)
            if len(traces) == 2:
                die()
            await record_trace(self, info)

        LocalController.record_trace = record  # type: ignore[method-assign]
    flyte.init()
    result = flyte.with_runcontext(mode="local", name=RUN).run(agent)
    print(result.outputs()[0])


if __name__ == "__main__":
    main()
