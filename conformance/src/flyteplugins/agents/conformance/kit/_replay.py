"""The dialogue of the checks in a process of its own, which finds on record what another one did."""

from __future__ import annotations

import datetime
import importlib
from typing import Any

import flyte
import time_machine

from ._stage import _BODIES, _RETURNED, work
from .promise._dialogue import INSTRUCTIONS, QUESTION, note, temperature

__all__ = ["replay"]


async def replay(module: str, model: str, run: str) -> None:
    """Go on with a run many days later, and print its answer.

    Args:
        module: The adapter's module.
        model: The model's name.
        run: The run's name.
    """
    adapter: Any = importlib.import_module(module)

    async def body() -> Any:
        tools = [adapter.tool(temperature), note]
        return await adapter.run_agent(QUESTION, model=model, instructions=INSTRUCTIONS, tools=tools)

    _BODIES[run] = body
    await flyte.init.aio()
    with time_machine.travel(datetime.datetime.now() + datetime.timedelta(days=40), tick=True):
        await flyte.with_runcontext(mode="local", name=run).run.aio(work, ticket=run)
    print(_RETURNED[run].pop())
