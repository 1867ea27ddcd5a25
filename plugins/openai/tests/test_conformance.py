"""The conformance kit, on this adapter."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
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
