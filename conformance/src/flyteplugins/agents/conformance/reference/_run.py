"""`run_agent`: the SDK's own loop, inside an agent run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from flyteplugins.agents.core import (
    Budget,
    EventSink,
    OnToolError,
    Retention,
    RunMemory,
    agent_run,
    sync_variant,
    tool_list,
    with_pending,
)

if TYPE_CHECKING:
    from .sdk import Agent, Model

__all__ = ["run_agent", "run_agent_sync"]


@with_pending
async def run_agent(
    input: str,
    *,
    agent: Agent | None = None,
    tools: Sequence[Any] = (),
    model: str | Model | None = None,
    instructions: str | None = None,
    name: str | None = None,
    output_type: Any = None,
    durable: bool = True,
    observability: bool | Literal["structure"] = True,
    memory_key: str | None = None,
    memory_required: bool = False,
    memory_retention: Retention | None = None,
    budget: Budget | None = None,
    on_event: EventSink | None = None,
    on_tool_error: OnToolError = "model",
    max_concurrent_tools: int | None = None,
    full_result: bool = False,
    temperature: float | None = None,
    max_turns: int = 50,
) -> Any:
    """Run an agent, durably where a Flyte task runs.

    Args:
        input: What the user says.
        agent: A pre-built agent. Excludes `model`, `instructions`, `name` and `output_type`; `tools` are added to a copy.
        tools: `tool`s, `@env.task` functions, plain callables, the SDK's own tools.
        model: The model, or its name.
        instructions: The system text.
        name: The agent's name.
        output_type: The type of the answer; text by default.
        durable: Whether turns, inline tools and memory reads are recorded.
        observability: Whether there is a report; with `"structure"`, without contents.
        memory_key: Continues the conversation of that key.
        memory_required: Whether it is an error if there is no place for the memory.
        memory_retention: What the memory does not keep.
        budget: What the run may use.
        on_event: Called with each event.
        on_tool_error: `"model"` tells a tool's exception to the model, `"raise"` fails the run.
        max_concurrent_tools: How many tool calls may run at once.
        full_result: Whether to return an `AgentResult`.
        temperature: The SDK's own setting.
        max_turns: The SDK's own limit.

    Returns:
        The text of the answer, an instance of `output_type`, or an `AgentResult`.

    Raises:
        ValueError: Arguments exclude each other.
    """
    from pydantic import TypeAdapter

    from . import sdk
    from ._errors import classify
    from ._function_tools import record_tool
    from ._model import DurableModel

    given = {"model": model, "instructions": instructions, "name": name, "output_type": output_type}
    if agent is not None and (excluded := [key for key, value in given.items() if value is not None]):
        raise ValueError(
            f"run_agent was given agent= and {', '.join(excluded)}=, which the agent has itself. Drop one."
        )
    added = [_native(one) for one in tool_list(tools)]
    answer = TypeAdapter(output_type) if output_type not in (None, str) else None
    built = agent or sdk.Agent(name or "flyte-agent", model or "gpt-4.1", instructions or "")
    built = dataclasses.replace(built, tools=[*built.tools, *added])
    if answer is not None:
        built = dataclasses.replace(built, output_schema=answer.json_schema())
    if temperature is not None:
        built = dataclasses.replace(built, temperature=temperature)
    asked = sdk.Model(built.model) if isinstance(built.model, str) else built.model
    async with agent_run(
        framework="parrot",
        name=built.name,
        input=input,
        memory_key=memory_key,
        configuration={"model": asked.name, "tools": sorted(one.name for one in built.tools)},
        classify=classify,
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        max_concurrent_tools=max_concurrent_tools,
    ) as run:
        memory = await RunMemory.open(
            run, memory_key, sdk="parrot", required=memory_required, retention=memory_retention
        )
        history: list[Any] = [*memory.history, {"role": "user", "content": input}]
        seam = DurableModel(asked, run, streaming=on_event is not None)
        recorded = [record_tool(run, one) for one in built.tools]
        result = await sdk.run(dataclasses.replace(built, model=seam, tools=recorded), history, max_turns=max_turns)
        output = result.text if answer is None else answer.validate_json(result.text)
        await memory.commit(result.messages[len(memory.history) :])
        await run.finish(result.text)
        return run.result(output, result.text, result) if full_result else output


def _native(one: Any) -> Any:
    from ._tool import tool
    from .sdk import Tool

    return one if isinstance(one, Tool) else tool(one)


run_agent_sync = sync_variant(run_agent)
