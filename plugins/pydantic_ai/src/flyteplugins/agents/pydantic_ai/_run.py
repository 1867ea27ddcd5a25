"""`run_agent`: the SDK's own run, inside an agent run."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from flyteplugins.agents.core import (
    AgentResult,
    AgentRun,
    Approval,
    Budget,
    EventSink,
    OnToolError,
    Retention,
    RunMemory,
    agent_run,
    check_arguments,
    check_sdk_approval,
    run_coro_sync,
    with_pending,
)

from ._options import AgentOptions, RunOptions, SDKOptions

if TYPE_CHECKING:
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.messages import UserContent
    from pydantic_ai.models import Model
    from pydantic_ai.run import AgentRunResult

__all__ = ["durable_run", "run_agent", "run_agent_sync"]

OutputT = TypeVar("OutputT")

FRAMEWORK = "pydantic_ai"
"""The SDK's short name; also whose messages a transcript holds."""


@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ...,
    *,
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> str: ...
@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ..., *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: type[OutputT],
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> OutputT: ...
@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: type[OutputT],
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[OutputT]: ...
@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: Any,
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> Any: ...
@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: Any,
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[Any]: ...
@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ...,
    *,
    agent: AbstractAgent[Any, Any],
    full_result: Literal[False] = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
async def run_agent(
    input: str | Sequence[UserContent] | None = ...,
    *,
    agent: AbstractAgent[Any, Any],
    full_result: Literal[True],
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
@with_pending
async def run_agent(
    input: str | Sequence[UserContent] | None = None,
    *,
    agent: AbstractAgent[Any, Any] | None = None,
    tools: Sequence[Any] = (),
    model: str | Model | None = None,
    instructions: Any = None,
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
    approval: Approval | None = None,
    full_result: bool = False,
    **run_options: Unpack[SDKOptions],
) -> Any:
    """Run an agent of Pydantic AI, durably where a Flyte task runs.

    Inside an `@env.task` every model turn and every tool call is recorded, those of agents that tools run included. On a retry,
    after a crash and in another process, what is on record is not asked or run again. Outside of a task the SDK runs as it
    would by itself.

    Args:
        input: What the user says: text, or a list of the SDK's user contents. May be left out with `deferred_tool_results`.
        agent: A pre-built agent. Excludes `model`, `instructions`, `name` and `output_type`; it is not changed.
        tools: `tool`s, `@env.task` functions, plain callables, the SDK's own tools and toolsets, MCP servers; in addition to
            the agent's own.
        model: A model's name, or a model; `openai:gpt-4.1` by default.
        instructions: The instructions, or a function that makes them.
        name: The agent's name, which is part of the agent run's identity; `flyte-agent` by default.
        output_type: The type of the answer, in any form that the SDK takes; text by default.
        durable: Whether turns, inline tools and memory reads are recorded. Task tools are, in any case.
        observability: Whether there is a report; with `"structure"`, without contents.
        memory_key: One path segment; continues the conversation of that key, and adds this run's messages to it.
        memory_required: Whether it is an error if there is no place for the memory; else the run goes on without.
        memory_retention: What the memory does not keep: runs over a number or an age. It is removed for good.
        budget: What the run may use: turns, tool calls, tokens, seconds, cost, equal calls. No limit by default.
        on_event: Called with each event as it happens, the pieces of the text among them; a plain or a coroutine function.
            Requests are streamed then, where the model can do that.
        on_tool_error: `"model"` tells a tool's exception to the model, `"raise"` fails the run.
        max_concurrent_tools: How many tool calls may run at once; no limit by default.
        approval: How a person is asked by the SDK's deferred calls: prompt, deadline and its outcome, reminder, and
            with `edit` arguments may be changed. For ever by default. A tool's `requires_approval` has its own.
        full_result: Whether to return an `AgentResult` with usage, turns, tool calls and the SDK's own result.
        run_options: What `Agent.run` takes besides: `message_history` (instead of the memory's), `deferred_tool_results`,
            `deps`, `model_settings`, `usage_limits`, `usage`, `metadata`, `retries`, `toolsets`, `event_stream_handler`,
            `capabilities`, `timeout`, `cancellation_token`, `conversation_id`, `run_id`, `workspace`.

    Returns:
        The final text, an instance of `output_type`, or an `AgentResult`.

    Raises:
        BudgetExceededError: The run went over its budget; it carries the messages so far.
        AgentError: In a task: the run failed in a way that no retry would change (a `flyte.errors.NonRecoverableError`).
            The SDK's exception is its `__cause__`. Other exceptions of the SDK pass, and Flyte's retries apply.
        ValueError: Arguments exclude each other, or `memory_key` is not one path segment.
        TypeError: A tool is neither a task, a callable nor one of the SDK's, or `Agent.run` has no such keyword.
    """
    from ._agent import build_agent, configuration, sort_tools
    from ._codec import dump_messages, load_messages
    from ._repair import import_history, repair_for
    from ._request import input_identity

    check_arguments(
        input="" if input is None else input,
        model=model,
        instructions=instructions,
        name=name,
        durable=durable,
        full_result=full_result,
        memory_required=memory_required,
        memory_retention=memory_retention,
    )
    _check_options(run_options)
    built = build_agent(agent=agent, model=model, instructions=instructions, name=name, output_type=output_type)
    toolsets = [*sort_tools(tools), *(run_options.pop("toolsets", None) or ())]
    async with _open(
        name=built.name or "agent",
        input=input_identity(input),
        memory_key=memory_key,
        configuration=configuration(built, toolsets, output_type) | _given_history(run_options),
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        max_concurrent_tools=max_concurrent_tools,
        approval=check_sdk_approval(approval, edits=True),
    ) as run:
        memory = await RunMemory.open(
            run,
            memory_key,
            sdk=FRAMEWORK,
            required=memory_required,
            repair=repair_for(answered=run_options.get("deferred_tool_results") is not None),
            import_v0=import_history,
            retention=memory_retention,
        )
        if memory.history and run_options.get("message_history") is None:
            run_options["message_history"] = load_messages(memory.history)
        options: dict[str, Any] = {**run_options}
        # the SDK would name an agent that has no name after a variable of ours
        result = await built.run(input, toolsets=toolsets or None, infer_name=False, **options)
        if memory_key is not None:
            await memory.commit(dump_messages(result.new_messages()))
        text = _final_text(result)
        await run.finish(text)
        if not full_result:
            return result.output
        return _with_pending(run.result(result.output, text, result), result.output)


@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ...,
    *,
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> str: ...
@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ..., *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: type[OutputT],
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> OutputT: ...
@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: type[OutputT],
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[OutputT]: ...
@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: Any,
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> Any: ...
@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ...,
    *,
    output_type: Any,
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[Any]: ...
@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ...,
    *,
    agent: AbstractAgent[Any, Any],
    full_result: Literal[False] = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
def run_agent_sync(
    input: str | Sequence[UserContent] | None = ...,
    *,
    agent: AbstractAgent[Any, Any],
    full_result: Literal[True],
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
def run_agent_sync(input: str | Sequence[UserContent] | None = None, **options: Any) -> Any:
    """Run an agent from a sync task: `run_agent` with the same arguments, and the same result.

    Args:
        input: What the user says: text, or a list of the SDK's user contents.
        options: The keywords of `run_agent`.

    Returns:
        What `run_agent` returns.

    Raises:
        RuntimeError: This thread runs an event loop, which the wait would block. Use `await run_agent(...)` there.
    """
    return run_coro_sync(run_agent(input, **options))


run_agent_sync.__signature__ = inspect.signature(run_agent)  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def durable_run(
    input: object,
    *,
    name: str = "agent",
    durable: bool = True,
    observability: bool | Literal["structure"] = True,
    budget: Budget | None = None,
    on_event: EventSink | None = None,
    on_tool_error: OnToolError = "model",
    max_concurrent_tools: int | None = None,
    approval: Approval | None = None,
) -> AsyncIterator[AgentRun]:
    """Make every run of an agent in the body durable: for `run_stream`, `run_stream_events`, `iter` and several agents.

    ```python
    async with durable_run(message, name="writer"):
        async with agent.run_stream(message) as stream:
            async for text in stream.stream_text(): ...
    ```

    Args:
        input: What the body works on, as text or JSON values. With `name` it says which run a resume goes on with.
        name: The run's name.
        durable: See `run_agent`, as for the other arguments.
        observability: Whether there is a report; with `"structure"`, without contents.
        budget: What all runs in the body together may use. No limit by default.
        on_event: Called with each event as it happens.
        on_tool_error: `"model"` tells a tool's exception to the model, `"raise"` fails the run.
        max_concurrent_tools: How many tool calls may run at once; no limit by default.
        approval: How a person is asked by the SDK's deferred calls: prompt, deadline and its outcome, reminder, and
            with `edit` arguments may be changed. For ever by default. A tool's `requires_approval` has its own.

    Yields:
        The agent run, with its `usage`, `turns` and `tool_calls` so far.

    Raises:
        AgentError: In a task: the body failed in a way that no retry would change.
    """
    async with _open(
        name=name,
        input=input,
        memory_key=None,
        configuration={},
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        max_concurrent_tools=max_concurrent_tools,
        approval=check_sdk_approval(approval, edits=True),
    ) as run:
        yield run
        await run.finish(run.turns[-1].text if run.turns else "")


@contextlib.asynccontextmanager
async def _open(*, on_event: EventSink | None, **options: Any) -> AsyncIterator[AgentRun]:
    from ._errors import CONTROL_FLOW, OUTCOMES, PydanticAIErrorCodec, classify
    from ._function_tools import Listener
    from ._model import LISTENED
    from ._seams import install

    install()
    opened = agent_run(
        framework=FRAMEWORK,
        classify=classify,
        errors=PydanticAIErrorCodec(),
        control_flow=CONTROL_FLOW,
        outcomes=OUTCOMES,
        on_event=Listener(on_event),
        **options,
    )
    token = LISTENED.set(on_event is not None)
    try:
        async with opened as run:
            yield run
    finally:
        LISTENED.reset(token)


def _check_options(options: SDKOptions) -> None:
    unknown = sorted(set(options) - set(SDKOptions.__annotations__))
    if unknown:
        raise TypeError(
            f"run_agent() has no keyword {', '.join(unknown)}. Those of Agent.run that it hands on are "
            f"{', '.join(SDKOptions.__annotations__)}."
        )


def _given_history(options: SDKOptions) -> dict[str, object]:
    """What tells two runs of one input apart that go on from different conversations."""
    from ._request import json_values, message_identity

    given: dict[str, object] = {}
    if (history := options.get("message_history")) is not None:
        given["message_history"] = message_identity(history)
    if (results := options.get("deferred_tool_results")) is not None:
        given["deferred_tool_results"] = json_values(
            {"calls": results.calls, "approvals": results.approvals}, "deferred_tool_results"
        )
    return given


def _final_text(result: AgentRunResult[Any]) -> str:
    """The answer where it is text, else the text that came with it."""
    from pydantic_ai.messages import ModelResponse, TextPart

    if isinstance(result.output, str):
        return result.output
    for message in reversed(result.new_messages()):
        if isinstance(message, ModelResponse):
            text = "".join(part.content for part in message.parts if isinstance(part, TextPart))
            return text or str(result.output)
    return str(result.output)


def _with_pending(result: AgentResult[Any], output: Any) -> AgentResult[Any]:
    """Name the calls that wait for somebody, so that they are not taken for an answer."""
    import dataclasses

    from pydantic_ai import DeferredToolRequests

    if not isinstance(output, DeferredToolRequests):
        return result
    waiting = tuple(call.tool_name for call in (*output.approvals, *output.calls))
    return dataclasses.replace(result, pending=waiting)
