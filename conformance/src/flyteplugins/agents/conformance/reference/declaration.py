"""What the adapter says of itself to the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.kit import Adapter, Capability, Options
from flyteplugins.agents.core import ErrorClass

__all__ = ["PARROT"]

MODULE = "flyteplugins.agents.conformance.reference"


def model_object(name: str) -> Options:
    """A model of the SDK's own."""
    from flyteplugins.agents.conformance.reference import sdk

    return {"model": sdk.Model(name)}


def native(tool: Any) -> Any:
    """A tool of the SDK's own."""
    from flyteplugins.agents.conformance.reference import sdk
    from flyteplugins.agents.core import render_result, tool_schema

    if isinstance(tool, sdk.Tool):
        return tool
    schema = tool_schema(tool)

    async def call(arguments: str, call_id: str) -> str:  # noqa: ARG001
        return render_result(tool(**schema.validate(arguments)))

    return sdk.Tool(schema.name, schema.description, schema.parameters, call)


def agent(instructions: str, tools: Sequence[Any]) -> Options:
    """A pre-built agent."""
    from flyteplugins.agents.conformance.reference import sdk

    return {"agent": sdk.Agent("built", "gpt-4.1", instructions, [native(one) for one in tools])}


async def bare(options: Options, question: str) -> Any:
    """Run the agent with the SDK alone."""
    from flyteplugins.agents.conformance.reference import sdk

    said = [{"role": "user", "content": question}]
    return await sdk.run(options["agent"], said, max_turns=options.get("max_turns", 50))


def error_classes() -> Mapping[type[BaseException], ErrorClass]:
    """What the adapter declares."""
    from flyteplugins.agents.conformance.reference._errors import ERROR_CLASSES

    return ERROR_CLASSES


def raises() -> set[type[BaseException]]:
    """Every exception of the SDK."""
    from flyteplugins.agents.conformance.reference import sdk

    return {one for one in vars(sdk).values() if isinstance(one, type) and issubclass(one, sdk.ParrotError)}


PARROT = Adapter(
    title="Parrot",
    module=MODULE,
    sdk=(f"{MODULE}.sdk",),
    distribution="flyteplugins-agents-conformance",
    model="gpt-4.1",
    model_object=model_object,
    agent=agent,
    bare=bare,
    messages=lambda result: result.messages,
    temperature=lambda value: {"temperature": value},
    raises=raises,
    error_classes=error_classes,
    unlimited={"max_turns": 10_000},
    golden=Path(__file__).parent / "golden",
    capabilities={
        Capability.MODELS: "names, `Model`",
        Capability.AGENTS: "`Agent`",
        Capability.STREAMS: "with `on_event`",
        Capability.OUTPUT: "JSON schema",
        Capability.TASK_TOOLS: "yes",
        Capability.INLINE_TOOLS: "functions, `Tool`",
        Capability.MEMORY: "yes",
        Capability.LIMITS: "yes",
        Capability.APPROVALS: "`requires_approval`",
    },
)
