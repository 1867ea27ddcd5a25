"""`run_agent`: the SDK's own runner, inside an agent run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from flyteplugins.agents.core import (
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
    from mistralai.client import Mistral
    from mistralai.client.models import Agent, CompletionArgs, InputEntries
    from mistralai.client.utils import RetryConfig
    from mistralai.extra.exceptions import DeferredToolCallResponse
    from mistralai.extra.run.context import RunContext

    Input = str | Sequence[InputEntries | Mapping[str, Any] | DeferredToolCallResponse]

__all__ = ["run_agent", "run_agent_sync"]

OutputT = TypeVar("OutputT")

DEFAULT_MAX_TURNS = 10


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
    input: Input,
    *,
    agent: Agent | RunContext,
    full_result: Literal[False] = ...,
    instructions: str | None = ...,
    name: str | None = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
async def run_agent(
    input: Input,
    *,
    agent: Agent | RunContext,
    full_result: Literal[True],
    instructions: str | None = ...,
    name: str | None = ...,
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
@with_pending
async def run_agent(
    input: Input,
    *,
    agent: Agent | RunContext | None = None,
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
    approval: Approval | None = None,
    full_result: bool = False,
    max_turns: int | None = DEFAULT_MAX_TURNS,
    streaming: bool | None = None,
    server_state: bool = False,
    conversation_id: str | None = None,
    agent_id: str | None = None,
    agent_version: str | int | None = None,
    completion_args: CompletionArgs | Mapping[str, Any] | None = None,
    guardrails: Sequence[Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    client: Mistral | None = None,
    server_url: str | None = None,
    api_key_env_var: str = "MISTRAL_API_KEY",
    timeout_ms: int | None = None,
    retries: RetryConfig | None = None,
    http_headers: Mapping[str, str] | None = None,
) -> Any:
    """Run an agent of Mistral's Conversations API, durably where a Flyte task runs.

    Inside an `@env.task` every model turn and every tool call is recorded. On a retry, after a crash and in another process,
    what is on record is not asked or run again. Outside of a task the SDK runs as it would by itself.

    By default each turn is a request of its own, with the whole conversation, that the server is told not to keep: what a resume
    needs is on the run's own storage. `server_state=True` has the server keep the conversation instead, which built-in tools
    such as the code interpreter may need.

    Args:
        input: What the user says: text, or a list of the SDK's conversation entries.
        agent: An agent on the server, as the SDK returns it, or a `RunContext` with tools. Excludes what it has itself: of an
            agent `model`, `instructions`, `name` and `output_type`, of a context `model` and `output_type`.
        tools: `tool`s, `@env.task` functions, plain callables, the SDK's built-in tools and connectors, MCP clients.
        model: The model's name; `mistral-large-latest` by default.
        instructions: The system text.
        name: The agent's name, which is part of the agent run's identity; `flyte-agent` by default.
        output_type: The type of the answer; text by default.
        durable: Whether turns, inline tools and memory reads are recorded. Task tools are, in any case.
        observability: Whether there is a report; with `"structure"`, without contents.
        memory_key: One path segment; continues the conversation of that key, and adds this run's entries to it.
        memory_required: Whether it is an error if there is no place for the memory; else the run goes on without.
        memory_retention: What the memory does not keep: runs over a number or an age. It is removed for good.
        budget: What the run may use: turns, tool calls, tokens, seconds, cost, equal calls. No limit by default.
        on_event: Called with each event as it happens; a plain or a coroutine function.
        on_tool_error: `"model"` tells a tool's exception to the model, `"raise"` fails the run.
        max_concurrent_tools: How many tool calls may run at once; no limit by default.
        approval: How a person is asked by the SDK's confirmations: prompt, deadline and its outcome, reminder. For
            ever by default. A tool's `requires_approval` has its own.
        full_result: Whether to return an `AgentResult` with usage, turns, tool calls and the SDK's own `RunResult`.
        max_turns: How many turns the run may take; `None` for no limit.
        streaming: Whether turns are streamed, so that `on_event` gets the text as it arrives; if there is an `on_event`, by
            default.
        server_state: Whether the server keeps the conversation, and each turn appends to it.
        conversation_id: A conversation on the server that the run continues; implies `server_state`.
        agent_id: An agent on the server. It is read and never changed: tools that it does not have are sent with the request.
        agent_version: Which version of it; the current one by default.
        completion_args: The SDK's completion arguments, such as the temperature.
        guardrails: The SDK's guardrails.
        metadata: What the server notes on a conversation that it keeps.
        client: A client of the caller's, which is not changed; one made from the key in the environment by default.
        server_url: The server's address; the client's, that of `MISTRAL_SERVER_URL`, or the provider's by default.
        api_key_env_var: The environment variable with the key, where no client is given.
        timeout_ms: How long one request may take, in milliseconds; the SDK's own limit by default.
        retries: How requests that the provider did not answer are repeated, in place; for two minutes by default.
        http_headers: More headers for each request. They are not part of what a turn is recognized by.

    Returns:
        The text of the last message, an instance of `output_type`, or an `AgentResult`.

    Raises:
        BudgetExceededError: The run went over its budget; it carries the messages so far.
        AgentError: In a task: the run failed in a way that no retry would change (a `flyte.errors.NonRecoverableError`).
            The SDK's exception is its `__cause__`. Other exceptions of the SDK pass, and Flyte's retries apply.
        ValueError: Arguments exclude each other, or `memory_key` is not one path segment.
        TypeError: A tool is neither a task, a callable nor one of the SDK's.
    """
    from ._agent import build_agent
    from ._clients import client_configuration
    from ._codec import MistralErrorCodec
    from ._deferred import answer_values, split_answers
    from ._entries import input_entries
    from ._errors import classify
    from ._session import SDK, import_v0, repair_entries
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
    rest, answers = split_answers(input)
    entries = input_entries(rest)
    if conversation_id is not None and memory_key is not None:
        raise ValueError(
            "run_agent was given conversation_id= and memory_key=, which both hold the conversation. Give one of them."
        )
    if metadata is not None and not (server_state or conversation_id is not None):
        raise ValueError(
            "run_agent was given metadata= for a conversation that the server does not keep. Give server_state=True as well."
        )
    built = build_agent(
        agent=agent,
        tools=tools,
        model=model,
        instructions=instructions,
        name=name,
        output_type=output_type,
        agent_id=agent_id,
        agent_version=agent_version,
        conversation_id=conversation_id,
        completion_args=completion_args,
        guardrails=guardrails,
        approval=check_sdk_approval(approval),
    )
    if answers and built.conversation_id is None:
        raise ValueError(
            "input answers calls that wait in a conversation on the server, and run_agent was not told which. Give "
            "conversation_id=, which the SDK's DeferredToolCallsException has."
        )
    configuration, kept_alive = client_configuration(client, server_url=server_url, api_key_env_var=api_key_env_var)
    async with agent_run(
        framework=SDK,
        name=built.name,
        input=input if isinstance(input, str) else [*entries, *(answer_values(answer) for answer in answers)],
        memory_key=memory_key,
        configuration=built.configuration(),
        classify=classify,
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        max_concurrent_tools=max_concurrent_tools,
        approval=approval,
        errors=MistralErrorCodec(),
    ) as run:
        memory = await RunMemory.open(
            run,
            memory_key,
            sdk=SDK,
            required=memory_required,
            repair=repair_entries,
            import_v0=import_v0,
            retention=memory_retention,
        )
        turns = await take_turns(
            run,
            built,
            entries,
            answers=answers,
            configuration=configuration,
            kept_alive=kept_alive,
            remembered=memory.history,
            streaming=on_event is not None if streaming is None else streaming,
            server_state=server_state,
            max_turns=max_turns,
            metadata=metadata,
            timeout_ms=timeout_ms,
            retries=retries,
            http_headers=http_headers,
        )
        if memory_key is not None:
            await memory.commit(turns.to_remember)
        await run.finish(turns.text)
        return run.result(turns.output, turns.text, turns.native) if full_result else turns.output


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
    input: Input,
    *,
    agent: Agent | RunContext,
    full_result: Literal[False] = ...,
    instructions: str | None = ...,
    name: str | None = ...,
    **options: Unpack[RunOptions],
) -> Any: ...
@overload
def run_agent_sync(
    input: Input,
    *,
    agent: Agent | RunContext,
    full_result: Literal[True],
    instructions: str | None = ...,
    name: str | None = ...,
    **options: Unpack[RunOptions],
) -> AgentResult[Any]: ...
def run_agent_sync(input: Input, **options: Any) -> Any:
    """Run an agent from a sync task: `run_agent` with the same arguments, and the same result.

    Args:
        input: What the user says: text, or a list of the SDK's conversation entries.
        options: The keywords of `run_agent`.

    Returns:
        What `run_agent` returns.

    Raises:
        RuntimeError: This thread runs an event loop, which the wait would block. Use `await run_agent(...)` there.
    """
    return run_coro_sync(run_agent(input, **options))


run_agent_sync.__signature__ = inspect.signature(run_agent)  # type: ignore[attr-defined]
