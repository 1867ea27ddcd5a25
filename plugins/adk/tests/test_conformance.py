"""The conformance kit, on this adapter."""

from __future__ import annotations

import functools
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter, Capability, ConformanceSuite, Options
from flyteplugins.agents.core import ErrorClass

MODEL = "gemini-2.5-flash"
MADE_UP = {"id", "timestamp", "invocation_id"}
CALL_ID = re.compile(r"adk-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


def model_object(name: str) -> Options:
    from google.adk.models import Gemini

    return {"model": Gemini(model=name)}


def agent(instructions: str, tools: Sequence[Any]) -> Options:
    from google.adk.agents import LlmAgent

    return {"agent": LlmAgent(name="built", model=MODEL, instruction=instructions, tools=list(tools))}


async def bare(options: Options, question: str) -> Any:
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    async with InMemoryRunner(options["agent"]) as runner:
        session = await runner.session_service.create_session(app_name=runner.app_name, user_id="somebody")
        said = types.Content(role="user", parts=[types.Part(text=question)])
        events = runner.run_async(user_id="somebody", session_id=session.id, new_message=said)
        return [event async for event in events]


def messages(events: Any) -> list[Any]:
    dumped = [event.model_dump(mode="json", exclude_none=True, exclude=MADE_UP) for event in events]
    return list(json.loads(CALL_ID.sub("made up", json.dumps(dumped))))


def temperature(value: float) -> Options:
    from google.genai import types

    return {"generate_content_config": types.GenerateContentConfig(temperature=value)}


DEFINES_ERRORS = re.compile(r"^class \w+\([^)]*(Error|Exception)", re.MULTILINE)
NOT_OF_A_RUN = (
    # agents on other machines, which a durable run refuses; the SDK's own commands; what needs packages that are not here
    "google.adk.a2a.",
    "google.adk.cli.",
    "google.adk.labs.",
    "google.adk.plugins.bigquery_agent_analytics_plugin",
)


@functools.cache
def raises() -> frozenset[type[BaseException]]:
    """Every exception class in the SDK's source. A name with an underscore before it means what its base means."""
    import google.adk
    import google.genai

    kinds: set[type[BaseException]] = set()
    for package in (google.adk, google.genai):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            name = ".".join((package.__name__, *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
            if name.startswith(NOT_OF_A_RUN) or not DEFINES_ERRORS.search(file.read_text()):
                continue
            for kind in vars(importlib.import_module(name)).values():
                mine = isinstance(kind, type) and kind.__module__ == name and not kind.__name__.startswith("_")
                if mine and issubclass(kind, Exception) and not issubclass(kind, Warning):
                    kinds.add(kind)
    return frozenset(kinds)


def error_classes() -> Mapping[type[BaseException], ErrorClass]:
    from flyteplugins.agents.adk._errors import ERROR_CLASSES, NAMED_CLASSES

    return ERROR_CLASSES | {_load(name): meaning for name, meaning in NAMED_CLASSES.items()}


def _load(name: str) -> type[BaseException]:
    module, _, attribute = name.rpartition(".")
    found: type[BaseException] = getattr(importlib.import_module(module), attribute)
    return found


ADK = Adapter(
    title="Google ADK",
    module="flyteplugins.agents.adk",
    sdk=("google.adk", "google.genai"),
    distribution="google-adk",
    model=MODEL,
    model_object=model_object,
    agent=agent,
    bare=bare,
    messages=messages,
    temperature=temperature,
    raises=raises,
    error_classes=error_classes,
    fields={"output type": "tools"},  # the SDK asks for it with a tool, beside tools
    unlimited={"max_llm_calls": 10_000},
    golden=Path(__file__).parent / "golden",
    capabilities={
        Capability.MODELS: "names, every `BaseLlm`, fallbacks, transfers, agents as tools",
        Capability.AGENTS: "agents with their trees, workflows, `App`",
        Capability.STREAMS: "with `on_event`",
        Capability.OUTPUT: "types",
        Capability.TASK_TOOLS: "yes",
        Capability.INLINE_TOOLS: "functions, `FunctionTool`, MCP toolsets",
        Capability.MEMORY: "`memory_key`",
        Capability.LIMITS: "yes",
        Capability.APPROVALS: "`requires_approval`, `require_confirmation`",
    },
    absent={Capability.LIVE_MODE: "bidirectional streaming is no request, and cannot be recorded"},
)


class TestConformance(ConformanceSuite):
    adapter = ADK
