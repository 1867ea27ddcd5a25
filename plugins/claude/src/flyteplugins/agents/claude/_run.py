"""`run_agent`: Claude Code's own loop, inside an agent run."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from flyteplugins.agents.core import (
    AgentResult,
    Budget,
    EventSink,
    OnToolError,
    Retention,
    RunMemory,
    agent_run,
    check_arguments,
    run_coro_sync,
    with_pending,
)

from ._options import AgentOptions, RunOptions

if TYPE_CHECKING:
    from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions

    Input = str | Sequence[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]

__all__ = ["run_agent", "run_agent_sync"]

OutputT = TypeVar("OutputT")


@overload
async def run_agent(input: Input, *, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]) -> str: ...
@overload
async def run_agent(
    input: Input, *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
async def run_agent(
    input: Input, *, output_type: type[OutputT], full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> OutputT: ...
@overload
async def run_agent(
    input: Input, *, output_type: type[OutputT], full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[OutputT]: ...
@overload
async def run_agent(
    input: Input, *, agent: AgentDefinition, full_result: Literal[False] = ..., **options: Unpack[RunOptions]
) -> str: ...
@overload
async def run_agent(
    input: Input, *, agent: AgentDefinition, full_result: Literal[True], **options: Unpack[RunOptions]
) -> AgentResult[str]: ...
@with_pending
async def run_agent(
    input: Input,
    *,
    agent: AgentDefinition | None = None,
    tools: Sequence[Any] = (),
    model: str | None = None,
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
    options: ClaudeAgentOptions | None = None,
    subagents: Mapping[str, AgentDefinition] | None = None,
    max_turns: int | None = None,
    server_name: str = "flyte_tools",
) -> Any:
    """Run an agent of the Claude Agent SDK, durably where a Flyte task runs.

    Inside an `@env.task` every model turn and every call of the run's tools is recorded. On a retry, after a crash and in another
    process, what is on record is not asked or run again. Outside of a task the SDK runs as it would by itself.

    The loop is Claude Code's own, in a process of its own. Its built-in tools are off unless `options` turns them on; what they
    do is not recorded.

    Args:
        input: What the user says: text, or the SDK's own user messages, as a list or an async iterable, which is read to its end
            before the agent starts.
        agent: A definition that the main agent is made of. Excludes `model`, `instructions`, `name` and `output_type`.
        tools: `tool`s, `@env.task` functions, plain callables, the SDK's own tools, SDK MCP servers.
        model: The model's name; `claude-sonnet-5-5` by default.
        instructions: The system text.
        name: The agent's name, which is part of the agent run's identity; `claude-agent` by default.
        output_type: The type of the answer; text by default.
        durable: Whether turns, inline tools and memory reads are recorded. Task tools are, in any case.
        observability: Whether there is a report; with `"structure"`, without contents.
        memory_key: One path segment; continues the conversation of that key, and adds this run's messages to it.
        memory_required: Whether it is an error if there is no place for the memory; else the run goes on without.
        memory_retention: What the memory does not keep: runs over a number or an age. It is removed for good.
        budget: What the run may use: turns, tool calls, tokens, seconds, cost, equal calls. No limit by default.
        on_event: Called with each event as it happens; a plain or a coroutine function.
        on_tool_error: `"model"` tells a tool's exception to the model, `"raise"` fails the run.
        max_concurrent_tools: How many tool calls may run at once; no limit by default.
        full_result: Whether to return an `AgentResult` with usage, turns, tool calls and the SDK's own `ResultMessage`.
        options: The SDK's options. They are copied, and never changed.
        subagents: Sub-agents by name, besides those of `options`.
        max_turns: How many turns Claude Code may take; no limit by default.
        server_name: The name of the MCP server of the run's tools: the model knows them as `mcp__<server_name>__<tool>`.

    Returns:
        The final text, an instance of `output_type`, or an `AgentResult`.

    Raises:
        AgentError: The run failed in a way that another attempt would not change: a wrong key, a refused request, `max_turns`,
            `max_budget_usd`.
        BudgetExceededError: It went over a limit of its budget.
        TypeError: An argument is of another type.
        ValueError: An argument is out of range, or two say the same thing.
        NotImplementedError: Turns cannot be recorded with these options.
    """
    from ._agent import build_agent, session_options
    from ._errors import classify
    from ._fallback import EagerSession
    from ._process import fixed_upstream
    from ._session import SDK, SUBAGENTS, MemorySession, import_v0, repair_messages
    from ._turns import take_turns

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
    built = build_agent(
        agent=agent,
        tools=tools,
        model=model,
        instructions=instructions,
        name=name,
        output_type=output_type,
        options=options,
        subagents=subagents,
        max_turns=max_turns,
        server_name=server_name,
        durable=durable,
        remembers=memory_key is not None,
        budgeted=budget is not None,
    )
    prompt = await _prompt(input)
    async with agent_run(
        framework=SDK,
        name=built.name,
        input=prompt if isinstance(prompt, str) else [dict(message) for message in prompt],
        memory_key=memory_key,
        configuration=built.configuration(),
        classify=classify,
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        max_concurrent_tools=max_concurrent_tools,
    ) as run:
        memory = await RunMemory.open(
            run,
            memory_key,
            sdk=SDK,
            required=memory_required,
            repair=repair_messages,
            import_v0=import_v0,
            files=SUBAGENTS,
            retention=memory_retention,
        )
        session: MemorySession | None = None
        cwd = str(built.options.cwd) if built.options.cwd is not None else None
        if (elsewhere := fixed_upstream(built.options.env)) and run.recorder.durable:
            if own := session_options(built.options):
                raise NotImplementedError(
                    f"run_agent was given options= with {', '.join(own)}, and {elsewhere} is set: there the run keeps a session "
                    "of its own, to go on from after a crash. Give memory_key= for a conversation that lasts, or durable=False."
                )
            session = EagerSession(run, memory.history, await memory.read_files(), cwd)
            await session.read()
        elif memory.store is not None:
            session = MemorySession(memory.history, await memory.read_files(), cwd)
        turns = await take_turns(run, built, prompt, session=session)
        if session is not None and memory.store is not None:
            await memory.commit(session.new_messages(), files=session.new_files())
        await run.finish(turns.text)
        return run.result(turns.output, turns.text, turns.native) if full_result else turns.output


async def _prompt(given: Any) -> str | list[Mapping[str, Any]]:
    """Read the input to its end: what a run is asked is part of its identity."""
    if isinstance(given, str):
        if not given.strip():
            raise ValueError("input is empty; give a question, or a list of user messages.")
        return given
    if isinstance(given, AsyncIterable):
        messages = [message async for message in given]
    elif isinstance(given, Sequence):
        messages = list(given)
    else:
        raise TypeError(f"input is {type(given).__name__}; give text, or a list of the SDK's user messages.")
    for place, message in enumerate(messages):
        if not (isinstance(message, Mapping) and "message" in message):
            raise TypeError(
                f"input[{place}] is no user message of the SDK's: "
                "{'type': 'user', 'message': {'role': 'user', 'content': ...}, 'parent_tool_use_id': None}."
            )
    if not messages:
        raise ValueError("input has no messages; give a question, or a list of user messages.")
    return messages


@overload
def run_agent_sync(input: Input, *, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]) -> str: ...
@overload
def run_agent_sync(
    input: Input, *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
def run_agent_sync(
    input: Input, *, output_type: type[OutputT], full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> OutputT: ...
@overload
def run_agent_sync(
    input: Input, *, output_type: type[OutputT], full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[OutputT]: ...
@overload
def run_agent_sync(
    input: Input, *, agent: AgentDefinition, full_result: Literal[False] = ..., **options: Unpack[RunOptions]
) -> str: ...
@overload
def run_agent_sync(
    input: Input, *, agent: AgentDefinition, full_result: Literal[True], **options: Unpack[RunOptions]
) -> AgentResult[str]: ...
def run_agent_sync(input: Input, **options: Any) -> Any:
    """Run an agent from a sync task: `run_agent` with the same arguments, and the same result.

    Args:
        input: As for `run_agent`.
        options: The keywords of `run_agent`.

    Returns:
        What `run_agent` returns.

    Raises:
        RuntimeError: This thread runs an event loop, which the wait would block. Use `await run_agent(...)` there.
    """
    return run_coro_sync(run_agent(input, **options))


run_agent_sync.__signature__ = inspect.signature(run_agent)  # type: ignore[attr-defined]
