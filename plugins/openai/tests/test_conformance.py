"""The conformance kit, on this adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter, Capability, ConformanceSuite, Options
from flyteplugins.agents.core import ErrorClass


def model_object(name: str) -> Options:
    from agents import OpenAIResponsesModel
    from openai import AsyncOpenAI

    return {"model": OpenAIResponsesModel(name, AsyncOpenAI())}


def agent(instructions: str, tools: Sequence[Any]) -> Options:
    from agents import Agent, function_tool

    native = [function_tool(tool) if inspect.isfunction(tool) else tool for tool in tools]
    return {"agent": Agent(name="built", model="gpt-4.1", instructions=instructions, tools=native)}


async def bare(options: Options, question: str) -> Any:
    from agents import RunConfig, Runner

    config, turns = RunConfig(tracing_disabled=True), options.get("max_turns", 10)
    return await Runner.run(options["agent"], question, run_config=config, max_turns=turns)


def at_once(asked: Callable[[], bool], behind: int, tools: Sequence[Any]) -> tuple[Options, Any]:
    """An agent whose model answers at once. Without tools, two agents hand over to each other, which leaves no other leaf."""
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    def message(number: int) -> ResponseOutputMessage:
        text = ResponseOutputText(text=(f"{number} " * 1000)[:2000], type="output_text", annotations=[])
        return ResponseOutputMessage(
            id=f"msg_{number}", content=[text], role="assistant", status="completed", type="message"
        )

    def call(number: int, name: str) -> ResponseFunctionToolCall:
        arguments = "{}" if not tools else f'{{"number": {number}}}'
        return ResponseFunctionToolCall(
            arguments=arguments, call_id=f"call_{number}", name=name, type="function_call", id=f"fc_{number}"
        )

    class AtOnce(Model):
        model = "at-once"

        def __init__(self) -> None:
            self.turns = behind

        async def get_response(
            self,
            system_instructions: Any,
            input: Any,
            model_settings: Any,
            tools: list[Any],
            output_schema: Any,
            handoffs: list[Any],
            tracing: Any,
            **_: Any,
        ) -> ModelResponse:
            self.turns += 1
            output: list[Any] = [message(self.turns)]
            if asked():
                output.append(call(self.turns, tools[0].name if tools else handoffs[0].tool_name))
            usage = Usage(requests=1, input_tokens=10, output_tokens=10, total_tokens=20)
            return ModelResponse(output=output, usage=usage, response_id=f"resp_{self.turns}")

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    model = AtOnce()
    agent = Agent[Any](name="built", model=model, tools=[function_tool(tool) for tool in tools])
    if not tools:
        agent.handoffs = [Agent(name="other", model=model, handoffs=[agent])]
    past: list[Any] = [{"role": "user", "content": "Go."}]
    for number in range(behind):
        said = [message(number), call(number, "step")]
        past += [item.model_dump(mode="json", exclude_unset=True) for item in said]
        past.append({"type": "function_call_output", "call_id": f"call_{number}", "output": f"done {number}"})
    return {"agent": agent}, past


def temperature(value: float) -> Options:
    from agents import ModelSettings, RunConfig

    return {"run_config": RunConfig(model_settings=ModelSettings(temperature=value), tracing_disabled=True)}


def raises() -> set[type[BaseException]]:
    """Those that the packages export; test_errors reads their source for the rest."""
    import agents.exceptions
    import openai._exceptions

    modules = (agents.exceptions, openai._exceptions)
    found = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    return {
        one
        for one in found
        if issubclass(one, Exception) and one.__name__[0] != "_" and one.__module__.startswith(("agents", "openai"))
    }


def error_classes() -> Mapping[type[BaseException], ErrorClass]:
    from flyteplugins.agents.openai._errors import ERROR_CLASSES

    return ERROR_CLASSES


OPENAI = Adapter(
    title="OpenAI Agents SDK",
    module="flyteplugins.agents.openai",
    sdk=("agents", "openai"),
    distribution="openai-agents",
    model="gpt-4.1",
    model_object=model_object,
    agent=agent,
    bare=bare,
    messages=lambda result: result.to_input_list(),
    temperature=temperature,
    raises=raises,
    error_classes=error_classes,
    at_once=at_once,
    unlimited={"max_turns": 10_000},
    golden=Path(__file__).parent / "golden",
    capabilities={
        Capability.MODELS: "names, `Model` objects, hand-offs, agents as tools",
        Capability.AGENTS: "`Agent`",
        Capability.STREAMS: "with `on_event`",
        Capability.OUTPUT: "types, `AgentOutputSchema`",
        Capability.TASK_TOOLS: "yes",
        Capability.INLINE_TOOLS: "functions, `FunctionTool`, MCP servers",
        Capability.MEMORY: "`memory_key`, `Session`",
        Capability.LIMITS: "yes",
        Capability.APPROVALS: "`requires_approval`, `needs_approval`",
    },
)


class TestConformance(ConformanceSuite):
    adapter = OPENAI
