"""The conformance kit, on this adapter."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter, Capability, ConformanceSuite, Options
from flyteplugins.agents.core import ErrorClass

MODEL = "mistral-large-latest"
MADE_UP = {"id", "created_at", "completed_at"}
ELSEWHERE = {
    # of speech, which no agent run has
    "RealtimeTranscriptionException",
    "RealtimeTranscriptionWSError",
    "RealtimeSpeechException",
    "RealtimeSpeechWSError",
}


def client() -> Any:
    from mistralai.client import Mistral

    return Mistral(api_key=os.environ["MISTRAL_API_KEY"], server_url=os.environ["MISTRAL_SERVER_URL"])


def model_object(name: str) -> Options:
    """The SDK has no model objects: a model is a name, which a client is asked for."""
    return {"model": name, "client": client()}


def agent(instructions: str, tools: Sequence[Any]) -> Options:
    from mistralai.extra.run.context import RunContext

    context = RunContext(model=MODEL)
    for tool in tools:
        context.register_func(tool)
    return {"agent": context, "instructions": instructions}


async def bare(options: Options, question: str) -> Any:
    async with client() as mistral:
        return await mistral.beta.conversations.run_async(
            run_ctx=options["agent"], inputs=question, instructions=options["instructions"]
        )


def messages(result: Any) -> list[Any]:
    return [entry.model_dump(mode="json", exclude=MADE_UP) for entry in result.entries]


def raises() -> set[type[BaseException]]:
    from mistralai.client import errors
    from mistralai.extra import exceptions as extra

    found = [*(getattr(errors, name) for name in errors.__all__), *vars(extra).values()]
    kinds = {one for one in found if isinstance(one, type) and issubclass(one, BaseException)}
    return {one for one in kinds if one.__name__ not in ELSEWHERE}


def error_classes() -> Mapping[type[BaseException], ErrorClass]:
    from flyteplugins.agents.mistral._errors import ERROR_CLASSES

    return ERROR_CLASSES


MISTRAL = Adapter(
    title="Mistral Agents",
    module="flyteplugins.agents.mistral",
    sdk=("mistralai",),
    distribution="mistralai",
    model=MODEL,
    model_object=model_object,
    agent=agent,
    bare=bare,
    messages=messages,
    temperature=lambda value: {"completion_args": {"temperature": value}},
    raises=raises,
    error_classes=error_classes,
    fields={"output type": "settings"},
    unlimited={"max_turns": None},
    golden=Path(__file__).parent / "golden",
    capabilities={
        Capability.MODELS: "names, clients, hand-offs",
        Capability.AGENTS: "agents on the server, `RunContext`",
        Capability.STREAMS: "with `on_event`",
        Capability.OUTPUT: "types",
        Capability.TASK_TOOLS: "yes",
        Capability.INLINE_TOOLS: "functions, MCP clients",
        Capability.MEMORY: "`memory_key`, with or without server state",
        Capability.LIMITS: "yes",
        Capability.APPROVALS: "`requires_approval`, `requires_confirmation`",
    },
)


class TestConformance(ConformanceSuite):
    adapter = MISTRAL
