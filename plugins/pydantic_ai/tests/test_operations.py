"""The operations of a run that are neither requests nor tool calls: continuations, compaction, capabilities, validators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flyte
import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability, durable_operation
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.wrapper import WrapperModel

from flyteplugins.agents.pydantic_ai import durable_run, run_agent

RunTask = Callable[..., Any]
env = flyte.TaskEnvironment("operations")


async def twice(run_task: RunTask, task: Any) -> Any:
    """Run a task whose first attempt crashes, and resume it."""
    with pytest.raises(Exception, match="crash"):
        await run_task(task, name="run")
    return await run_task(task, name="run")


class Crash:
    def __init__(self) -> None:
        self.left = 1

    def once(self) -> None:
        if self.left:
            self.left -= 1
            raise RuntimeError("crash")


class Suspending(WrapperModel):
    """Answers in two segments, and can withdraw and compact."""

    def __init__(self) -> None:
        super().__init__(FunctionModel(self._answer, model_name="suspending"))
        self.calls: list[str] = []

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        going_on = isinstance(messages[-1], ModelResponse)
        self.calls.append("continuation" if going_on else "request")
        if going_on:
            return ModelResponse(parts=[TextPart("done")], provider_response_id="r2")
        return ModelResponse(parts=[TextPart("half ")], state="suspended", provider_response_id="r1")

    async def compact_messages(
        self, request_context: ModelRequestContext, *, instructions: str | None = None
    ) -> ModelResponse:
        self.calls.append("compact")
        return ModelResponse(parts=[TextPart(f"summary of {len(request_context.messages)}")])


async def test_each_segment_of_a_suspended_response_is_a_leaf(run_task: RunTask) -> None:
    model = Suspending()
    crash = Crash()

    @env.task
    async def asking() -> str:
        result = await run_agent("Hi", model=model, full_result=True)
        crash.once()
        return f"{result.text} {len(result.turns)}"

    assert (await twice(run_task, asking)).endswith("done 2")
    assert model.calls == ["request", "continuation"]


class Compacting(AbstractCapability[Any]):
    """Has the model compact the history before the first request."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        response = await request_context.model.compact_messages(request_context)
        request_context.messages = [
            ModelRequest(parts=[UserPromptPart(f"{response.text}: go on")]),
        ]
        return request_context


async def test_a_compaction_by_the_model_is_a_leaf(run_task: RunTask) -> None:
    model = Suspending()
    crash = Crash()
    agent = Agent(model, name="a", capabilities=[Compacting()])

    @env.task
    async def asking() -> str:
        async with durable_run("Hi"):
            answer = (await agent.run("Hi")).output
        crash.once()
        return str(answer)

    await twice(run_task, asking)
    assert model.calls.count("compact") == 1
    assert model.calls.count("request") == 1


class Looking(AbstractCapability[Any]):
    """Looks something up as a durable operation of its own."""

    id = "looking"

    def __init__(self) -> None:
        self.looked: list[str] = []

    @durable_operation("look")
    async def look(self, ctx: RunContext[Any], what: str) -> dict[str, int]:
        self.looked.append(what)
        return {what: len(self.looked)}

    async def before_run(self, ctx: RunContext[Any]) -> None:
        for what in ("one", "two"):
            assert (await self.look(ctx, what))[what] > 0


async def test_an_operation_of_a_capability_is_done_once(run_task: RunTask) -> None:
    capability = Looking()
    crash = Crash()

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("seen")])

    agent = Agent(FunctionModel(answer), name="a", capabilities=[capability])

    @env.task
    async def asking() -> str:
        found = await run_agent("Hi", agent=agent)
        crash.once()
        return str(found)

    assert await twice(run_task, asking) == "seen"
    assert capability.looked == ["one", "two"]


async def test_a_validator_of_arguments_runs_once_and_its_retry_is_kept(run_task: RunTask) -> None:
    effects: list[str] = []
    crash = Crash()

    def check(ctx: RunContext[Any], city: str) -> None:
        effects.append(f"check {city}")
        if city != "Oslo":
            raise ModelRetry("Only Oslo.")

    def visit(city: str) -> str:
        """Visit."""
        effects.append(f"visit {city}")
        return "visited"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        if turn < 2:
            return ModelResponse(parts=[ToolCallPart("visit", {"city": ("Rome", "Oslo")[turn]})])
        return ModelResponse(parts=[TextPart("done")])

    agent = Agent(FunctionModel(answer), name="a", tools=[Tool(visit, args_validator=check)])

    @env.task
    async def asking() -> str:
        found = await run_agent("Hi", agent=agent)
        crash.once()
        return str(found)

    assert await twice(run_task, asking) == "done"
    assert effects == ["check Rome", "check Oslo", "visit Oslo"]
