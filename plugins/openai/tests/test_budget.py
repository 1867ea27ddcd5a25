"""Limits of an agent run, with the SDK's own loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import agents
import flyte
import pytest

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.openai import Budget, BudgetExceededError, run_agent, tool

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("budget")
CAUGHT: list[BudgetExceededError] = []


@tool
@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


@env.task(retries=2)
async def limited(budget: dict[str, float], handler: bool) -> str:
    limits: dict[str, Any] = {
        name: value if name in ("cost", "seconds") else int(value) for name, value in budget.items()
    }
    handlers: Any = (
        {"max_turns": lambda data: agents.RunErrorHandlerResult(final_output="gave up")} if handler else None
    )
    try:
        return await run_agent(
            "Look at them", tools=[lookup], model="gpt-4.1", budget=Budget(**limits), error_handlers=handlers
        )
    except BudgetExceededError as error:
        CAUGHT.append(error)
        raise


@pytest.fixture
def server(model_env: ModelServer) -> ModelServer:
    CAUGHT.clear()
    model_env.script(
        "Look at them",
        Reply(calls=(call("lookup", city="Oslo"), call("lookup", city="Rome"))),
        Reply(calls=(call("lookup", city="Oslo"),)),
        Reply("Both are there."),
    )
    return model_env


@pytest.mark.parametrize(
    ("budget", "message", "requests"),
    [
        ({"turns": 2}, "turns may be 2, and would be 3", 2),
        ({"tool_calls": 2}, "tool_calls may be 2, and would be 3", 2),
        ({"same_call": 1}, "same_call may be 1, and would be 2", 2),
        ({"tokens": 1}, "tokens may be 1", 1),
        ({"cost": 0.0000001}, "cost may be 1e-07", 1),
    ],
    ids=lambda value: "",
)
@pytest.mark.parametrize("handler", [False, True])
async def test_a_run_over_its_budget_ends_and_is_not_retried(
    run_task: RunTask, server: ModelServer, budget: dict[str, float], message: str, requests: int, handler: bool
) -> None:
    with pytest.raises(Exception, match=message):
        await run_task(limited, {name: float(value) for name, value in budget.items()}, handler)
    assert server.journal.count() == requests
    [error] = CAUGHT
    assert error.messages[0] == {"role": "user", "content": "Look at them"}


async def test_a_run_within_its_budget_is_not_touched(run_task: RunTask, server: ModelServer) -> None:
    budget = {"turns": 3.0, "tool_calls": 3.0, "same_call": 2.0, "tokens": 1e6, "seconds": 3600.0, "cost": 1.0}
    assert await run_task(limited, budget, False) == "Both are there."


async def test_outside_of_a_task_the_budget_holds_too(server: ModelServer) -> None:
    with pytest.raises(BudgetExceededError, match="turns may be 1"):
        await run_agent("Look at them", tools=[lookup], model="gpt-4.1", budget=Budget(turns=1))
