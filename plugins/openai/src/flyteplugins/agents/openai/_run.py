"""`run_agent`: the SDK's own runner, inside an agent run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from flyteplugins.agents.core import with_pending

if TYPE_CHECKING:
    from agents import (
        Agent,
        Model,
        RunConfig,
        RunErrorHandlers,
        RunHooks,
        RunResult,
        RunResultStreaming,
        RunState,
        Session,
        TResponseInputItem,
    )

    from flyteplugins.agents.core import AgentResult, Approval, Budget, EventSink, OnToolError, Retention

    from ._options import AgentOptions, RunOptions

__all__ = ["run_agent", "run_agent_sync"]

OutputT = TypeVar("OutputT")

DEFAULT_MAX_TURNS = 10


@overload
async def run_agent(
    input: str | list[TResponseInputItem], *, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> str: ...
@overload
async def run_agent(
    input: str | list[TResponseInputItem], *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
async def run_agent(
    input: str | list[TResponseInputItem],
    *,
    output_type: type[OutputT],
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> OutputT: ...
@overload
async def run_agent(
    input: str | list[TResponseInputItem],
    *,
    output_type: type[OutputT],
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[OutputT]: ...
@overload
async def run_agent(
    input: str | list[TResponseInputItem],
    *,
    agent: Agent[Any],
    full_result: Literal[False] = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
async def run_agent(
    input: str | list[TResponseInputItem],
    *,
    agent: Agent[Any],
    full_result: Literal[True],
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
@with_pending
async def run_agent(
    input: str | list[TResponseInputItem],
    *,
    agent: Agent[Any] | None = None,
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
    max_turns: int | None = DEFAULT_MAX_TURNS,
    context: Any = None,
    run_config: RunConfig | None = None,
    hooks: RunHooks[Any] | None = None,
    error_handlers: RunErrorHandlers[Any] | None = None,
    session: Session | None = None,
    previous_response_id: str | None = None,
    auto_previous_response_id: bool = False,
    conversation_id: str | None = None,
) -> Any:
    """Run an agent of the OpenAI Agents SDK, durably where a Flyte task runs.

    Inside an `@env.task` every model turn and every tool call is recorded. On a retry, after a crash and in another process,
    what is on record is not asked or run again. Outside of a task the SDK runs as it would by itself.

    Args:
        input: What the user says: text, or a list of the SDK's input items.
        agent: A pre-built agent. Excludes `model`, `instructions`, `name` and `output_type`; `tools` are added to a copy.
        tools: `tool`s, `@env.task` functions, plain callables, the SDK's own tools, MCP servers.
        model: A model's name, or a model; `gpt-4.1` by default.
        instructions: The system text, or a function that makes it.
        name: The agent's name, which is part of the agent run's identity; `flyte-agent` by default.
        output_type: The type of the answer; text by default.
        durable: Whether turns, inline tools and memory reads are recorded. Task tools are, in any case.
        observability: Whether there is a report; with `"structure"`, without contents.
        memory_key: One path segment; continues the conversation of that key, and adds this run's messages to it.
        memory_required: Whether it is an error if there is no place for the memory; else the run goes on without.
        memory_retention: What the memory does not keep: runs over a number or an age. It is removed for good.
        budget: What the run may use: turns, tool calls, tokens, seconds, cost, equal calls. No limit by default.
        on_event: Called with each event as it happens, the pieces of the text among them; a plain or a coroutine function.
            The SDK's loop is streamed then.
        on_tool_error: `"model"` tells a tool's exception to the model, `"raise"` fails the run.
        max_concurrent_tools: How many tool calls may run at once; no limit by default.
        approval: How a person is asked by the SDK's `needs_approval`: prompt, deadline and its outcome, reminder. For
            ever by default. A tool's `requires_approval` has its own.
        full_result: Whether to return an `AgentResult` with usage, turns, tool calls and the SDK's own result.
        max_turns: How many turns the SDK's loop may take; `None` for no limit.
        context: The SDK's context object.
        run_config: The SDK's run configuration. Without one, the SDK's tracing is off unless the program added a processor.
        hooks: The SDK's run hooks.
        error_handlers: The SDK's error handlers.
        session: A session of the caller's; excludes `memory_key`. In a durable run it gets the run's messages when the run has
            its answer.
        previous_response_id: The response on the server that the run continues.
        auto_previous_response_id: Whether the first turn starts a chain of responses on the server.
        conversation_id: The conversation on the server that the run continues.

    Returns:
        The final text, an instance of `output_type`, or an `AgentResult`.

    Raises:
        BudgetExceededError: The run went over its budget; it carries the messages so far.
        AgentError: In a task: the run failed in a way that no retry would change (a `flyte.errors.NonRecoverableError`).
            The SDK's exception is its `__cause__`. Other exceptions of the SDK pass, and Flyte's retries apply.
        ValueError: Arguments exclude each other, or `memory_key` is not one path segment.
        TypeError: A tool is neither a task, a callable nor one of the SDK's.
    """
    from flyteplugins.agents.core import RunMemory, agent_run, check_arguments, check_sdk_approval, import_v0_list

    from ._agent import build_agent, configuration
    from ._approvals import run_with_approvals
    from ._codec import OpenAIErrorCodec
    from ._errors import classify
    from ._hooks import EventHooks, watched_hooks
    from ._repair import repair_items
    from ._seams import install
    from ._session import SDK, RunSession
    from ._tracing import default_run_config, spans_told
    from ._user_session import hold

    check_arguments(
        input=input,
        model=model,
        instructions=instructions,
        name=name,
        max_turns=max_turns,
        durable=durable,
        full_result=full_result,
        memory_required=memory_required,
        memory_retention=memory_retention,
    )
    if session is not None and memory_key is not None:
        raise ValueError(
            "run_agent was given session= and memory_key=, which both hold the conversation. Give one of them."
        )
    built = build_agent(
        agent=agent, tools=tools, model=model, instructions=instructions, name=name, output_type=output_type
    )
    install()
    async with agent_run(
        framework="openai",
        name=built.name,
        input=input,
        memory_key=memory_key,
        configuration=configuration(built),
        classify=classify,
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        max_concurrent_tools=max_concurrent_tools,
        approval=check_sdk_approval(approval),
        errors=OpenAIErrorCodec(),
    ) as run:
        memory = await RunMemory.open(
            run,
            memory_key,
            sdk=SDK,
            required=memory_required,
            repair=repair_items,
            import_v0=import_v0_list,
            retention=memory_retention,
        )
        kept = RunSession(f"flyte:{memory_key}", memory.history) if memory_key is not None else None
        held = hold(run, session) if session is not None else None
        result = await run_with_approvals(
            run,
            built,
            input,
            _loop,
            streamed=on_event is not None,
            context=context,
            max_turns=max_turns,
            hooks=EventHooks(run, watched_hooks(run, hooks)),
            run_config=run_config if run_config is not None else default_run_config(),
            error_handlers=error_handlers,
            session=next((one for one in (kept, held) if one is not None), session),
            previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id,
            conversation_id=conversation_id,
        )
        if kept is not None:
            await memory.commit(kept.added())
        if held is not None:
            await held.commit()
        text = _final_text(result)
        await spans_told(run)
        await run.finish(text)
        return run.result(result.final_output, text, result) if full_result else result.final_output


@overload
def run_agent_sync(
    input: str | list[TResponseInputItem], *, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> str: ...
@overload
def run_agent_sync(
    input: str | list[TResponseInputItem], *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
def run_agent_sync(
    input: str | list[TResponseInputItem],
    *,
    output_type: type[OutputT],
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> OutputT: ...
@overload
def run_agent_sync(
    input: str | list[TResponseInputItem],
    *,
    output_type: type[OutputT],
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[OutputT]: ...
@overload
def run_agent_sync(
    input: str | list[TResponseInputItem],
    *,
    agent: Agent[Any],
    full_result: Literal[False] = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
def run_agent_sync(
    input: str | list[TResponseInputItem],
    *,
    agent: Agent[Any],
    full_result: Literal[True],
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
def run_agent_sync(input: str | list[TResponseInputItem], **options: Any) -> Any:
    """Run an agent from a sync task: `run_agent` with the same arguments, and the same result.

    Args:
        input: What the user says: text, or a list of the SDK's input items.
        options: The keywords of `run_agent`.

    Returns:
        What `run_agent` returns.

    Raises:
        RuntimeError: This thread runs an event loop, which the wait would block. Use `await run_agent(...)` there.
    """
    from flyteplugins.agents.core import run_coro_sync

    return run_coro_sync(run_agent(input, **options))


run_agent_sync.__signature__ = inspect.signature(run_agent)  # type: ignore[attr-defined]


async def _loop(
    agent: Agent[Any], input: str | list[TResponseInputItem] | RunState[Any], *, streamed: bool, **options: Any
) -> RunResult | RunResultStreaming:
    """Run the SDK's loop; streamed where somebody listens, so that text arrives as it is made."""
    from agents import Runner

    if not streamed:
        return await Runner.run(agent, input, **options)
    result = Runner.run_streamed(agent, input, **options)
    try:
        async for _ in result.stream_events():
            pass
    except BaseException:
        result.cancel()
        if result.run_loop_task is not None:
            await asyncio.wait([result.run_loop_task])  # nothing of the run goes on after it has failed
        raise
    if result.run_loop_exception is not None:
        raise result.run_loop_exception
    return result


def _final_text(result: RunResult | RunResultStreaming) -> str:
    """The last message's text; the answer itself where there is no message."""
    from agents import ItemHelpers, MessageOutputItem

    if isinstance(result.final_output, str):
        return result.final_output
    for item in reversed(result.new_items):
        if isinstance(item, MessageOutputItem):
            return ItemHelpers.text_message_output(item)
    return str(result.final_output)
