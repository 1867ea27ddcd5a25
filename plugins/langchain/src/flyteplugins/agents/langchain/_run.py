"""`run_agent`: a graph of the SDK's, inside an agent run."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from flyteplugins.agents.core import (
    AgentError,
    AgentResult,
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

from ._options import AgentOptions, RunOptions

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import SystemMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.store.base import BaseStore
    from langgraph.types import Checkpointer, Command

    from langchain.agents.middleware import AgentMiddleware

__all__ = ["run_agent", "run_agent_sync"]

OutputT = TypeVar("OutputT")


@overload
async def run_agent(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> str: ...
@overload
async def run_agent(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[str]: ...
@overload
async def run_agent(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    output_type: type[OutputT],
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> OutputT: ...
@overload
async def run_agent(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    output_type: type[OutputT],
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[OutputT]: ...
@overload
async def run_agent(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    agent: Any,
    full_result: Literal[False] = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
async def run_agent(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    agent: Any,
    full_result: Literal[True],
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
@with_pending
async def run_agent(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    agent: Any = None,
    tools: Sequence[Any] = (),
    model: str | BaseChatModel | None = None,
    instructions: str | SystemMessage | None = None,
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
    stream: bool = False,
    config: RunnableConfig | None = None,
    context: Any = None,
    middleware: Sequence[AgentMiddleware[Any, Any]] | None = None,
    response_format: Any = None,
    checkpointer: Checkpointer = None,
    store: BaseStore | None = None,
    **agent_options: Any,
) -> Any:
    """Run a LangChain agent, a deep agent or a LangGraph graph, durably where a Flyte task runs.

    Inside an `@env.task` every turn of every chat model and every tool call is recorded, in whatever node, middleware or
    graph inside the graph. On a retry, after a crash and in another process, what is on record is not asked or run again.
    Outside of a task the SDK runs as it would by itself.

    Args:
        input: What the user says: text, a list of the SDK's messages, a state (a mapping), or a `Command` that goes on with a
            thread.
        agent: A graph: what `create_agent` or `create_deep_agent` returns, or a `StateGraph`, compiled or not. Excludes what an
            agent is built from.
        tools: `tool`s, `@env.task` functions, plain callables, the SDK's own tools.
        model: A model's name as `provider:model`, or a chat model. Needed unless `agent` is given.
        instructions: The system text, or a system message.
        name: The agent's name, which is part of the agent run's identity; `flyte-agent` by default.
        output_type: The type of the answer; text by default.
        durable: Whether turns, inline tools and memory reads are recorded. Task tools are, in any case.
        observability: Whether there is a report; with `"structure"`, without contents.
        memory_key: One path segment; continues the conversation of that key, and adds this run's messages to it.
        memory_required: Whether it is an error if there is no place for the memory; else the run goes on without.
        memory_retention: What the memory does not keep: runs over a number or an age. It is removed for good.
        budget: What the run may use: turns, tool calls, tokens, seconds, cost, equal calls. No limit by default.
        on_event: Called with each event as it happens; a plain or a coroutine function.
        on_tool_error: `"model"` tells a tool's exception to the model, `"raise"` fails the run. The SDK's own tools and
            `ToolNode` decide about their exceptions by themselves, unless it is `"raise"`.
        max_concurrent_tools: How many tool calls may run at once; no limit by default.
        approval: How a person is asked by interrupts: prompt, deadline and its outcome, reminder. For
            ever by default. A tool's `requires_approval` has its own.
        full_result: Whether to return an `AgentResult` with usage, turns, tool calls and the graph's final state.
        stream: Whether models are asked to stream, so that `on_event` gets text as it arrives.
        config: The SDK's configuration: callbacks, tags, metadata, `configurable`, `recursion_limit`.
        context: The context object of the graph's `context_schema`.
        middleware: Middleware of `create_agent`.
        response_format: The SDK's response format, in place of `output_type`.
        checkpointer: The graph's checkpointer. Without a `thread_id` in `config`, each attempt has a thread of its own.
        store: The graph's store.
        agent_options: Further keywords of `create_agent`: `state_schema`, `context_schema`, `interrupt_before`, ... With one that
            only `create_deep_agent` has (`subagents`, `skills`, `memory`, `permissions`, `backend`, `interrupt_on`), also an
            empty one, a deep agent is built; it needs the extra `deepagents`.

    Returns:
        The final text, an instance of `output_type`, the final state of a graph without messages, or an `AgentResult`.

    Raises:
        AgentError: In a task: the run failed in a way that no retry would change (a `flyte.errors.NonRecoverableError`).
            The SDK's exception is its `__cause__`. Other exceptions of the SDK pass, and Flyte's retries apply. Also,
            anywhere: the graph was interrupted, and `full_result` is not given, by which the result would tell that.
        BudgetExceededError: The run went over its budget; it carries the messages so far.
        ValueError: Arguments exclude each other, two tools have one name, or `memory_key` is not one path segment.
        ImportError: A deep agent is asked for, and the extra is not installed.
        TypeError: A tool is neither a task, a callable nor one of the SDK's, or an option is unknown.
    """
    from langgraph.types import Command

    from ._agent import MESSAGES, build_graph, configuration, has_messages, identity_of, initial_state
    from ._approvals import answer_interrupts, resumable
    from ._bridge import RUN_LOOP
    from ._codec import LangChainErrorCodec
    from ._deep import FILES, FOLDER, has_files, kept_files, load_files
    from ._deep import SDK as DEEP
    from ._deep import import_v0 as import_deep
    from ._errors import CONTROL_FLOW, classify
    from ._graph import answer, final_text, run_config, run_graph
    from ._seams import install
    from ._session import SDK, import_v0, load_history, new_messages, repair_messages
    from ._thread import pin_thread

    check_arguments(
        input=input,
        model=model,
        instructions=instructions,
        name=name,
        durable=durable,
        full_result=full_result,
        memory_required=memory_required,
        memory_retention=memory_retention,
    )
    graph = build_graph(
        agent=agent,
        tools=tools,
        model=model,
        instructions=instructions,
        name=name,
        output_type=output_type,
        options={
            "middleware": middleware,
            "response_format": response_format,
            "checkpointer": checkpointer,
            "store": store,
            **agent_options,
        },
    )
    if memory_key is not None and not has_messages(graph):
        raise ValueError(
            f"The state of the graph {graph.name} has no {MESSAGES!r}, so it has nothing for memory_key= to keep."
        )
    if memory_key is not None and _names_thread(config):
        raise ValueError(
            "run_agent was given memory_key= and a thread_id, which both hold the conversation. Give one of them."
        )
    deep = has_files(graph)
    goes_on_itself = full_result and bool(graph.checkpointer) and _names_thread(config)
    graph = resumable(graph)
    install()
    async with agent_run(
        framework="langchain",
        name=name or (graph.name if agent is not None and graph.name != "LangGraph" else "") or "flyte-agent",
        input=identity_of(input),
        memory_key=memory_key,
        configuration=configuration(graph, model, tools),
        classify=classify,
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        control_flow=CONTROL_FLOW,
        max_concurrent_tools=max_concurrent_tools,
        approval=check_sdk_approval(approval),
        errors=LangChainErrorCodec(),
    ) as run:
        memory = await RunMemory.open(
            run,
            memory_key,
            sdk=DEEP if deep else SDK,
            required=memory_required,
            repair=repair_messages,
            import_v0=import_deep if deep else import_v0,
            files=FOLDER if deep else None,
            retention=memory_retention,
        )
        history = load_history(memory)
        files = load_files(await memory.read_files())
        state = initial_state(graph, input, history, files)
        graph = pin_thread(run, graph, config)
        token = RUN_LOOP.set(asyncio.get_running_loop())
        try:
            settings = run_config(graph, config, stream=stream)
            outcome = await run_graph(graph, state, settings, context)
            while outcome.interrupts and not goes_on_itself:
                answers = await answer_interrupts(run, outcome.interrupts)
                outcome = await run_graph(graph, Command(resume=answers), settings, context)
        finally:
            RUN_LOOP.reset(token)
        if outcome.paused:
            if not full_result:
                raise AgentError(
                    f"The graph {graph.name} waits for an answer to {outcome.question}. An interrupt is no answer: use "
                    "full_result=True, whose result says what is pending, and go on with Command(resume=...), a checkpointer and "
                    "the same thread_id."
                )
            await run.finish("")
            return dataclasses.replace(run.result(None, "", outcome.state), pending=tuple(outcome.questions))
        if memory.store is not None:
            changed = kept_files(files, outcome.state.get(FILES) or {}) if deep else None
            await memory.commit(new_messages(history, outcome.state[MESSAGES]), files=changed)
        text = final_text(outcome.state)
        await run.finish(text)
        output = answer(graph, outcome.state, text)
        return run.result(output, text, outcome.state) if full_result else output


def _names_thread(config: RunnableConfig | None) -> bool:
    """Whether the caller says which conversation of the checkpointer's it is, and so can go on with it."""
    return "thread_id" in ((config or {}).get("configurable") or {})


@overload
def run_agent_sync(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> str: ...
@overload
def run_agent_sync(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[str]: ...
@overload
def run_agent_sync(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    output_type: type[OutputT],
    full_result: Literal[False] = ...,
    **options: Unpack[AgentOptions],
) -> OutputT: ...
@overload
def run_agent_sync(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    output_type: type[OutputT],
    full_result: Literal[True],
    **options: Unpack[AgentOptions],
) -> AgentResult[OutputT]: ...
@overload
def run_agent_sync(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    agent: Any,
    full_result: Literal[False] = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
def run_agent_sync(
    input: str | Sequence[Any] | Mapping[str, Any] | Command[Any],
    *,
    agent: Any,
    full_result: Literal[True],
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
def run_agent_sync(input: str | Sequence[Any] | Mapping[str, Any] | Command[Any], **options: Any) -> Any:
    """Run an agent from a sync task: `run_agent` with the same arguments, and the same result.

    Args:
        input: What the user says: text, messages, a state, or a command.
        options: The keywords of `run_agent`.

    Returns:
        What `run_agent` returns.

    Raises:
        RuntimeError: This thread runs an event loop, which the wait would block. Use `await run_agent(...)` there.
    """
    return run_coro_sync(run_agent(input, **options))


run_agent_sync.__signature__ = inspect.signature(run_agent)  # type: ignore[attr-defined]
