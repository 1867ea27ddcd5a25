"""Limits and errors."""

from __future__ import annotations

from typing import Any

from flyteplugins.agents.conformance.models import Reply, call
from flyteplugins.agents.core import Budget, BudgetExceededError, ErrorClass

from .._capabilities import Capability
from .._checks import NotConformingError, check, expect
from .._stage import Stage
from ._dialogue import note


@check("limits.budget", Capability.LIMITS)
async def a_budget_ends_the_run_the_same_way_each_time(stage: Stage) -> None:
    """Over its budget a run ends for good, with the messages so far, and a replay ends at the same place."""
    adapter = stage.adapter
    stage.server.script(
        None,
        Reply(calls=(call("note", text="1"),)),
        Reply(calls=(call("note", text="2"),)),
        Reply(calls=(call("note", text="3"),)),
        "never",
    )
    attempts: list[int] = []

    async def body() -> Any:
        attempts.append(1)
        return await adapter.run_agent("Go.", model=adapter.model, tools=[note], budget=Budget(turns=2))

    todo = "Hand `budget` to core's agent run, and make every turn and tool call with it."
    for which in ("first", "second"):
        try:
            answer = await stage.attempt(body, retried=True)
        except BudgetExceededError as error:
            expect(bool(error.messages), True, "the error carries the messages so far", "Give them in TurnFacts.")
        except Exception as error:
            raise NotConformingError(f"Over its budget a run raised {type(error).__name__}: {error}. {todo}") from error
        else:
            expect(answer, "a BudgetExceededError", "a run over its budget", todo)
        expect(len(attempts), 1, f"attempts of the {which} run", todo)
        attempts.clear()
    expect(stage.asked(), 2, "requests of two runs over a budget of two turns", todo)


@check("limits.loops", Capability.LIMITS)
async def a_model_that_goes_round_in_circles_is_stopped(stage: Stage) -> None:
    """`Budget(same_call=...)` ends a run whose model calls one tool again and again."""
    adapter = stage.adapter
    stage.server.script(None, Reply(calls=(call("note", text="again"),)), repeat_last=True)

    async def body() -> Any:
        return await adapter.run_agent("Go.", model=adapter.model, tools=[note], budget=Budget(same_call=3, turns=20))

    todo = "Make tool calls with core's AgentTool, which counts them."
    try:
        answer = await stage.attempt(body)
    except BudgetExceededError:
        pass
    except Exception as error:
        raise NotConformingError(f"A loop raised {type(error).__name__}: {error}. {todo}") from error
    else:
        expect(answer, "a BudgetExceededError", "a model that goes round in circles", todo)
    expect(stage.did(), ["note again"] * 3, "calls before it was stopped", todo)


@check("limits.errors", Capability.LIMITS)
async def every_exception_has_a_meaning(stage: Stage) -> None:
    """Every exception class of the SDK is declared: ask again in place, try the attempt again, or fail now."""
    declared = stage.adapter.error_classes()
    kinds = stage.adapter.raises()
    expect(bool(kinds), True, "the declaration enumerates exceptions", "List the SDK's exception classes in `raises`.")
    unknown = sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind not in declared)
    expect(unknown, [], "exceptions that mean nothing", "Say in `_errors.py` what they mean for the attempt.")
    odd = [kind.__name__ for kind, meaning in declared.items() if not isinstance(meaning, ErrorClass)]
    expect(odd, [], "exceptions whose meaning is no ErrorClass", "Use core's ErrorClass.")
