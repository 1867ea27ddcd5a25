"""Approvals: a tool's own, and the SDK's `needs_approval`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import flyte
import pytest
from agents import Agent, function_tool

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer, reviewer
from flyteplugins.agents.core import Approval, ApprovalAnswered, Event, canonical_json
from flyteplugins.agents.openai import run_agent, tool

__all__ = ["reviewer"]

env = flyte.TaskEnvironment("openai-approvals", cache="disable")

RunTask = Callable[..., Any]

DONE: list[str] = []


@pytest.fixture(autouse=True)
def done() -> list[str]:
    DONE.clear()
    return DONE


@env.task
async def refund(order: str, cents: int = 100) -> str:
    """Refund an order."""
    DONE.append(f"refund {order} {cents}")
    return f"refunded {order}"


@env.task
async def look_up(order: str) -> str:
    """Look an order up."""
    DONE.append(f"look up {order}")
    return f"found {order}"


def proposes(model: ModelServer, *names: str) -> None:
    calls = tuple(call(name, order=order) for name, order in zip(names, "abcdef", strict=False))
    model.script("^go$", Reply(calls=calls), "all done")


def told(model: ModelServer) -> list[str]:
    """What the model was given of its calls, in their order."""
    body = model.journal.requests()[-1].body
    order = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    outputs = {
        item["call_id"]: str(item["output"]) for item in body["input"] if item.get("type") == "function_call_output"
    }
    return [outputs[one] for one in order]


def made_as(form: str) -> Any:
    if form != "the SDK's own tool":
        return tool(refund, **{form: True})  # one of two keywords

    async def own(order: str, cents: int = 100) -> str:
        """Refund an order."""
        return await refund(order, cents)

    return function_tool(own, name_override="refund", needs_approval=True)


@pytest.mark.parametrize("listened_to", [False, True])
@pytest.mark.parametrize("form", ["requires_approval", "needs_approval", "the SDK's own tool"])
async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: str, listened_to: bool
) -> None:
    proposes(model_env, "refund", "look_up", "refund")
    reviewer.says('"a"', "yes")
    reviewer.says('"c"', "no: it is too late")
    events: list[Event] = []

    @env.task
    async def asking() -> str:
        agent = Agent(name="clerk", model="gpt-4.1", tools=[made_as(form), tool(look_up)])
        return str(await run_agent("go", agent=agent, on_event=events.append if listened_to else None))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len(reviewer.asked) == 2
    first, second, third = told(model_env)
    assert (first, second) == ("refunded a", "found b")
    assert "a person denied it" in third
    assert "it is too late" in third
    assert model_env.journal.count() == 2
    if form != "the SDK's own tool":  # what the function fills in by itself is not in the call
        digest = hashlib.sha256(canonical_json({"order": "a", "cents": 100})).hexdigest()
        assert any(digest in text for text in reviewer.asked)
    if listened_to:
        answers = [event for event in events if isinstance(event, ApprovalAnswered)]
        assert sorted((one.decision, one.replayed) for one in answers) == [
            ("approved", False), ("approved", True), ("denied", False), ("denied", True),
        ]  # fmt: skip


async def test_edited_arguments_run_as_edited(model_env: ModelServer, run_task: RunTask, reviewer: Reviewer) -> None:
    proposes(model_env, "refund")
    reviewer.says("is no answer", '{"order": "a", "cents": "7"}')
    reviewer.says("do not fit", "what?")
    reviewer.says('"a"', '{"order": "a", "cents": "seven"}')

    @env.task
    async def asking() -> str:
        return await run_agent("go", tools=[tool(refund, requires_approval=Approval(edit=True))])

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert DONE == ["refund a 7"]
    assert len(reviewer.asked) == 3


@pytest.mark.parametrize("form", ["requires_approval", "needs_approval"])
async def test_what_waits_is_no_answer_and_goes_on_when_somebody_is_there(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: str
) -> None:
    proposes(model_env, "refund")
    reviewer.present = False
    full = True

    @env.task(retries=2)
    async def asking() -> str:
        if not full:
            return await run_agent("go", tools=[made_as(form)])
        result = await run_agent("go", tools=[made_as(form)], full_result=True)
        return f"{result.output} {result.text!r} {result.pending}"

    digest = hashlib.sha256(canonical_json({"order": "a", "cents": 100})).hexdigest()
    assert await run_task(asking, name="run") == f"None '' ('refund sha256:{digest}',)"
    full = False
    with pytest.raises(flyte.errors.RuntimeUserError, match="is pending: there is no terminal") as raised:
        await run_task(asking, name="run")
    assert raised.value.code == "ApprovalPending"
    assert DONE == []
    reviewer.present = True
    reviewer.says('"a"', "yes")
    assert await run_task(asking, name="run") == "all done"
    assert DONE == ["refund a 100"]
    assert model_env.journal.count() == 2


@pytest.mark.parametrize("form", ["requires_approval", "needs_approval"])
async def test_a_sub_agents_call_asks_too(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: str
) -> None:
    model_env.script("^go$", Reply(calls=(call("ask_expert", input="refund it"),)), "all done")
    model_env.script("^refund it$", Reply(calls=(call("refund", order="a"),)), "expert done")
    reviewer.says('"a"', "yes")

    @env.task
    async def asking() -> str:
        expert = Agent(name="expert", model="gpt-4.1", tools=[made_as(form)])
        start = Agent(name="start", model="gpt-4.1", tools=[expert.as_tool("ask_expert", "Ask.")])
        return str(await run_agent("go", agent=start))

    for _ in range(2):
        assert await run_task(asking, name="run") == "all done"
    assert DONE == ["refund a 100"]
    assert len(reviewer.asked) == 1
