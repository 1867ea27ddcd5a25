"""One agent run by the SDK alone, durably, and from its records: the same requests, output, messages and usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import flyte
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.run import AgentRunResult

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.pydantic_ai import durable_run

RunTask = Callable[..., Any]
env = flyte.TaskEnvironment("differential")

MADE_UP = {"timestamp", "run_id", "conversation_id"}


class Answer(BaseModel):
    city: str
    degrees: float


class Reading(BaseModel):
    degrees: float
    exact: Decimal


def build() -> Agent[str, Answer]:
    agent: Agent[str, Answer] = Agent(
        "openai-responses:gpt-5", name="meteorologist", output_type=Answer, deps_type=str, defer_model_check=True
    )
    helper = Agent("openai:gpt-4.1", name="helper", instructions="Help.", defer_model_check=True)

    @agent.instructions
    def who(ctx: RunContext[str]) -> str:
        return f"You work for {ctx.deps}."

    @agent.tool(retries=3)
    async def measure(ctx: RunContext[str], city: str) -> Reading:
        """Measure."""
        if city == "Osslo":
            raise ModelRetry("No such city.")
        return Reading(degrees=20, exact=Decimal("20.00"))

    @agent.tool_plain
    def picture(city: str) -> ToolReturn[Any]:
        """Take a picture."""
        return ToolReturn(return_value={"city": city, "seen": ("sun", 1)}, content="It looks sunny.", metadata={"x": 1})

    @agent.tool
    async def ask(ctx: RunContext[str], question: str) -> str:
        """Ask a helper."""
        return (await helper.run(question, usage=ctx.usage)).output

    return agent


def script(server: ModelServer) -> None:
    server.script(
        "How warm",
        Reply(calls=(call("measure", city="Osslo"), call("picture", city="Oslo")), thinking="Let me see."),
    )
    server.script(  # what the tool shows is a user's message
        "It looks sunny",
        Reply(calls=(call("measure", city="Oslo"), call("ask", question="Is that warm?")), text="Again."),
        Reply(calls=(call("final_result", city="Oslo", degrees=20.0),)),
    )
    server.script("Is that warm", "Quite.")


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items() if name not in MADE_UP}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def seen(result: AgentRunResult[Answer]) -> dict[str, Any]:
    return {
        "output": result.output,
        "messages": comparable(json.loads(ModelMessagesTypeAdapter.dump_json(result.all_messages()))),
        "usage": result.usage,
    }


@pytest.mark.parametrize("streamed", [False, True], ids=["not streamed", "streamed"])
async def test_a_bare_a_durable_and_a_replayed_run_come_to_the_same(
    model_env: ModelServer, run_task: RunTask, streamed: bool
) -> None:
    script(model_env)
    results: list[dict[str, Any]] = []
    events: list[list[str]] = []

    async def handler(ctx: RunContext[str], stream: Any) -> None:
        async for event in stream:
            name = type(event).__name__
            if name != "PartDeltaEvent":  # a replayed part is told in one piece
                events[-1].append(name)

    async def run() -> None:
        events.append([])
        options: dict[str, Any] = {"event_stream_handler": handler} if streamed else {}
        results.append(seen(await build().run("How warm is it?", deps="Ada", **options)))

    @env.task
    async def durable() -> None:
        async with durable_run("How warm is it?"):
            await run()

    await run()
    bodies = [[entry.body for entry in model_env.journal.requests()]]
    model_env.journal.clear()
    await run_task(durable, name="run")
    bodies.append([entry.body for entry in model_env.journal.requests()])
    model_env.journal.clear()
    await run_task(durable, name="run")
    assert model_env.journal.count() == 0
    assert len(bodies[0]) == 4
    assert bodies[0] == bodies[1]
    for name in ("output", "messages", "usage"):
        assert results[0][name] == results[1][name] == results[2][name], name
    assert events[0] == events[1] == events[2]
