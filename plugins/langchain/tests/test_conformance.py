"""The conformance kit, on this adapter."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import pkgutil
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter, Capability, ConformanceSuite, Options
from flyteplugins.agents.core import ErrorClass

# connections of their own: the SDK shares a pool for equal time limits, and it belongs to another event loop
SECONDS = itertools.count(200)

MADE_UP = re.compile(r"lc_run--[0-9a-f-]+|lc_[0-9a-f-]{36}|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


def model_object(name: str, **options: Any) -> Options:
    from langchain_openai import ChatOpenAI

    return {"model": ChatOpenAI(model=name, timeout=next(SECONDS), **options)}


def agent(instructions: str, tools: Sequence[Any]) -> Options:
    from langchain.agents import create_agent
    from langchain.tools import tool as langchain_tool

    native = [langchain_tool(tool) if inspect.isfunction(tool) else tool for tool in tools]
    return {"agent": create_agent(model_object("gpt-4.1")["model"], native, system_prompt=instructions)}


async def bare(options: Options, question: str) -> Any:
    from langchain_core.messages import HumanMessage

    return await options["agent"].ainvoke({"messages": [HumanMessage(question)]}, options.get("config"))


def messages(state: Any) -> list[Any]:
    from langchain_core.messages import message_to_dict

    kept = json.dumps([message_to_dict(message) for message in state["messages"]], sort_keys=True)
    return list(json.loads(MADE_UP.sub("made up", kept)))


NOT_OF_A_RUN = {
    # of fakes, indexing, templates, key-value stores and URL checks, which no agent run calls
    "FakeListChatModelError",
    "FakeListLLMError",
    "IndexingException",
    "ChevronError",
    "InvalidKeyException",
    "SSRFBlockedError",
    "_MCPToolExecutionError",
    # of Deep Agents, which tells the model of them
    "InvalidGlobPatternError",
    "VideoExtractionError",
}


def raises() -> set[type[BaseException]]:
    """Every exception class that the SDK defines, wherever it can be imported without further packages."""
    import deepagents
    import langchain
    import langchain_core
    import langgraph

    kinds: set[type[BaseException]] = set()
    for package in (langchain, langchain_core, langgraph, deepagents):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "pydantic_v1" in found.name or ".tests" in found.name:
                continue
            try:
                module = importlib.import_module(found.name)
            except (ImportError, AttributeError):
                continue
            for name, kind in inspect.getmembers(module, inspect.isclass):
                ours = kind.__module__.partition(".")[0] in ("langchain", "langchain_core", "langgraph", "deepagents")
                if not ours or {name, kind.__name__} & NOT_OF_A_RUN or issubclass(kind, Warning):
                    continue
                if issubclass(kind, BaseException):
                    kinds.add(kind)
    return kinds


def error_classes() -> Mapping[type[BaseException], ErrorClass]:
    from flyteplugins.agents.langchain._errors import ERROR_CLASSES

    return ERROR_CLASSES


LANGCHAIN = Adapter(
    title="LangChain and LangGraph",
    module="flyteplugins.agents.langchain",
    sdk=("langchain", "langchain_core", "langgraph", "openai"),
    distribution="langchain",
    model="openai:gpt-4.1",
    model_object=model_object,
    agent=agent,
    bare=bare,
    messages=messages,
    temperature=lambda value: model_object("gpt-4.1", temperature=value),
    raises=raises,
    error_classes=error_classes,
    streaming={"stream": True},
    fields={"instructions": "messages", "output type": "options"},  # as the SDK hands them to a model
    unlimited={"config": {"recursion_limit": 10_000}},
    golden=Path(__file__).parent / "golden",
    capabilities={
        Capability.MODELS: "names, every chat model, fallbacks, middleware",
        Capability.AGENTS: "`create_agent`, deep agents, any graph",
        Capability.STREAMS: "with `stream=True`",
        Capability.OUTPUT: "types, strategies",
        Capability.TASK_TOOLS: "yes",
        Capability.INLINE_TOOLS: "functions, `BaseTool`",
        Capability.MEMORY: "`memory_key`",
        Capability.LIMITS: "yes",
        Capability.APPROVALS: "`requires_approval`, `interrupt()`, `HumanInTheLoopMiddleware`",
    },
)


class TestConformance(ConformanceSuite):
    adapter = LANGCHAIN
