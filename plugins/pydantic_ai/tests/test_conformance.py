"""The conformance kit, on this adapter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter, Capability, ConformanceSuite, Options
from flyteplugins.agents.core import ErrorClass

MADE_UP = {"timestamp", "run_id", "conversation_id"}


def model_object(name: str) -> Options:
    from pydantic_ai.models.openai import OpenAIResponsesModel

    return {"model": OpenAIResponsesModel(name)}


def agent(instructions: str, tools: Sequence[Any]) -> Options:
    from pydantic_ai import Agent

    built: Agent[Any, Any] = Agent(
        "openai:gpt-4.1", name="built", instructions=instructions, tools=list(tools), defer_model_check=True
    )
    return {"agent": built}


async def bare(options: Options, question: str) -> Any:
    return await options["agent"].run(question, usage_limits=options.get("usage_limits"))


def messages(result: Any) -> list[Any]:
    return [_comparable(message) for message in json.loads(result.all_messages_json())]


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items() if name not in MADE_UP}
    return [_comparable(item) for item in value] if isinstance(value, list) else value


def unlimited() -> Options:
    from pydantic_ai import UsageLimits

    return {"usage_limits": UsageLimits(request_limit=None)}


def raises() -> set[type[BaseException]]:
    import pydantic_ai.exceptions as sdk

    public = [one for name, one in vars(sdk).items() if not name.startswith("_")]
    found = [one for one in public if isinstance(one, type) and issubclass(one, Exception)]
    return {one for one in found if one.__module__ == sdk.__name__ and not issubclass(one, Warning)}


def error_classes() -> Mapping[type[BaseException], ErrorClass]:
    from flyteplugins.agents.pydantic_ai._errors import ERROR_CLASSES

    return ERROR_CLASSES


PYDANTIC_AI = Adapter(
    title="Pydantic AI",
    module="flyteplugins.agents.pydantic_ai",
    sdk=("pydantic_ai", "openai"),
    distribution="pydantic-ai-slim",
    model="openai:gpt-4.1",
    model_object=model_object,
    agent=agent,
    bare=bare,
    messages=messages,
    temperature=lambda value: {"model_settings": {"temperature": value}},
    raises=raises,
    error_classes=error_classes,
    unlimited=unlimited(),
    golden=Path(__file__).parent / "golden",
    capabilities={
        Capability.MODELS: "names, `Model` objects, fallbacks, agents in tools",
        Capability.AGENTS: "`Agent`",
        Capability.STREAMS: "with `on_event`",
        Capability.OUTPUT: "types, `ToolOutput`, `NativeOutput`, `PromptedOutput`",
        Capability.TASK_TOOLS: "yes",
        Capability.INLINE_TOOLS: "functions, `Tool`, toolsets, MCP servers",
        Capability.MEMORY: "`memory_key`",
        Capability.LIMITS: "yes",
        Capability.APPROVALS: "`requires_approval`, deferred calls",
    },
)


class TestConformance(ConformanceSuite):
    adapter = PYDANTIC_AI
