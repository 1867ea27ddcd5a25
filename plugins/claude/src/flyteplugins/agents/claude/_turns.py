"""One run of Claude Code: how it is started, what it tells, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

import claude_agent_sdk as sdk
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    Message,
    ResultMessage,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from flyteplugins.agents.core import JSON, AgentError, AgentRun, ToolCallFinished, ToolCallStarted

from ._agent import BuiltAgent, allowed_tools
from ._approvals import Permissions
from ._context import RunContext
from ._errors import result_error
from ._fallback import GO_ON, EagerSession
from ._function_tools import tool_server
from ._mcp import McpConnection, recorded_server
from ._process import Surroundings, fixed_upstream, surroundings, upstream_url
from ._proxy import RecordingProxy
from ._session import MemorySession
from ._upstream import Upstream

__all__ = ["Turns", "take_turns"]

_GRACE = 5.0
"""How long Claude Code may take to end when it is told to, in seconds. Its calls get no answer meanwhile."""

_PATIENCE = 30.0
"""How long Claude Code may take to end, in seconds."""


@dataclass(frozen=True)
class Turns:
    """What came of a run.

    Attributes:
        output: The answer: text, or an instance of the output type.
        text: The answer as text.
        native: The SDK's own result.
    """

    output: Any
    text: str
    native: ResultMessage


class _Failure:
    """What ends the run from outside of Claude Code's own loop; the first counts."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.happened = asyncio.Event()

    def __call__(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error
        self.happened.set()


async def take_turns(
    run: AgentRun,
    built: BuiltAgent,
    prompt: str | Sequence[Mapping[str, Any]],
    *,
    session: MemorySession | None,
) -> Turns:
    """Run Claude Code to its end.

    Args:
        run: The agent run.
        built: What it is made of.
        prompt: What the user says: text, or the SDK's own messages.
        session: The run's memory; `None` for a run without one.

    Returns:
        What came of it.

    Raises:
        Exception: What ended it.
    """
    failure = _Failure()
    if isinstance(session, EagerSession):
        if (result := session.finished()) is not None:
            await session.fill()  # the memory may not have it yet
            await session.tell(prefix=built.tool_prefix)
            return _read(built, result)
        if session.is_interrupted:
            prompt = GO_ON
    async with AsyncExitStack() as stack:
        options, proxy, prepared = await _options(run, built, stack, failure, session)
        told = _BuiltinTools(run, [f"mcp__{name}__" for name in (built.server_name, *built.servers)])
        loop = asyncio.create_task(_consume(run, prompt, options, told))
        watch = asyncio.create_task(failure.happened.wait())
        try:
            await asyncio.wait([loop, watch], return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            if proxy is not None:
                proxy.stop()
            if not loop.done():
                prepared.end()
            await _end(loop, grace=_GRACE)
        if failure.error is not None:
            raise failure.error
        result = loop.result()
    if isinstance(session, EagerSession):
        await session.tell(prefix=built.tool_prefix)
    error = result_error(result)
    if error is not None:
        raise error from (proxy.last_error if proxy is not None else None)
    return _read(built, _spent(run, result))


async def _options(
    run: AgentRun, built: BuiltAgent, stack: AsyncExitStack, failure: _Failure, session: MemorySession | None
) -> tuple[ClaudeAgentOptions, RecordingProxy | None, Surroundings]:
    given = built.options
    servers: dict[str, Any] = {}
    context = RunContext(failure)
    permissions = Permissions(run, built, context)
    if built.tools:
        servers[built.server_name] = tool_server(
            run, built.server_name, built.tools, context=context, check=permissions.check
        )
    for name, config in built.servers.items():
        connection = McpConnection(name, config)
        stack.push_async_callback(connection.close)
        servers[name] = recorded_server(run, connection, config, context=context, check=permissions.check)
    proxy: RecordingProxy | None = None
    if not fixed_upstream(given.env):
        upstream = Upstream(
            upstream_url(given.env),
            retries=_retries(given.env),
            # after some of these Claude Code goes on with the other model
            passed_on=frozenset({529}) if given.fallback_model else frozenset(),
        )
        proxy = RecordingProxy(run, upstream, fail=failure, tool_prefix=built.tool_prefix)
        await stack.enter_async_context(proxy.serving())
    prepared = stack.enter_context(
        surroundings(
            given.env,
            proxy_url=proxy.url if proxy is not None else None,
            program=given.cli_path,
            own_configuration="user" not in (given.setting_sources or ()) and not _has_own_session(given),
            own_caches=not given.tools,
            bypasses_permissions=given.permission_mode == "bypassPermissions",
        )
    )
    changes: dict[str, Any] = {
        "mcp_servers": servers,
        "allowed_tools": list(allowed_tools(built)),
        "env": prepared.env,
        "cli_path": prepared.cli_path,
        **permissions.options(given),
    }
    if session is not None:
        changes["session_store"] = session
        if isinstance(session, EagerSession):
            changes["session_store_flush"] = "eager"
        if session.is_continued:
            await session.fill()
            changes["resume"] = session.session_id
    return run.instrumented(replace(given, **changes)), proxy, prepared


def _has_own_session(options: ClaudeAgentOptions) -> bool:
    """Whether the caller goes on with a session, which is where the caller's Claude Code keeps it."""
    return options.session_store is None and bool(options.resume or options.continue_conversation)


def _retries(env: Mapping[str, str]) -> int:
    name = "CLAUDE_CODE_MAX_RETRIES"
    told = env.get(name) or os.environ.get(name) or ""
    return int(told) if told.isdecimal() else 10


async def _consume(
    run: AgentRun, prompt: str | Sequence[Mapping[str, Any]], options: ClaudeAgentOptions, told: _BuiltinTools
) -> ResultMessage:
    result: ResultMessage | None = None
    query = run.wrapped_call(sdk.query)
    said = prompt if isinstance(prompt, str) else _stream(prompt)
    try:
        messages = cast("Any", query(prompt=said, options=options))
        async with aclosing(messages):
            async for message in messages:
                if isinstance(message, ResultMessage):
                    result = message
                else:
                    await told.message(message)
    except sdk.ProcessError:
        if result is None:  # else it said why before it ended
            raise
    if result is None:
        raise sdk.CLIConnectionError("Claude Code ended without a result.")
    return result


async def _stream(messages: Sequence[Mapping[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for message in messages:
        yield dict(message)


async def _end(task: asyncio.Task[Any], *, grace: float) -> None:
    """Have a task end, and wait for that, also when we are cancelled meanwhile: it has a process to end.

    Args:
        task: The task.
        grace: How long it may take to end by itself before it is cancelled, in seconds.
    """
    begun = time.monotonic()
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and (left := begun + _PATIENCE - time.monotonic()) > 0:
        if time.monotonic() >= begun + grace:
            grace = _PATIENCE
            task.cancel()
        try:
            await asyncio.wait([task], timeout=min(left, max(begun + grace - time.monotonic(), 0.01)))
        except asyncio.CancelledError as error:
            cancelled = error
    if task.done() and not task.cancelled():
        task.exception()  # whoever wants its outcome asks for it; that it was ended is none
    if cancelled is not None:
        raise cancelled


class _BuiltinTools:
    """Tells of the calls of Claude Code's own tools, which it runs by itself.

    Args:
        run: The agent run.
        recorded: How the names of tools begin that are told of elsewhere.
    """

    def __init__(self, run: AgentRun, recorded: Sequence[str]) -> None:
        self._run = run
        self._recorded = tuple(recorded)
        self._open: dict[str, tuple[ToolUseBlock, float]] = {}

    async def message(self, message: Message) -> None:
        """Look at a message that Claude Code sent."""
        if not isinstance(message, (AssistantMessage, UserMessage)) or isinstance(message.content, str):
            return
        for block in message.content:
            if isinstance(block, ToolUseBlock) and not block.name.startswith(self._recorded):
                self._open[block.id] = block, time.perf_counter()
                self._run.meter.begin_call(block.name, cast(JSON, block.input))
                event = self._run.call_event(block.name, block.id, "")
                await self._run.emit(ToolCallStarted(**event, arguments=cast(JSON, block.input)))
            elif isinstance(block, ToolResultBlock) and block.tool_use_id in self._open:
                call, began = self._open.pop(block.tool_use_id)
                text = block.content if isinstance(block.content, str) else json.dumps(block.content)
                seconds = time.perf_counter() - began
                await self._run.emit(
                    ToolCallFinished(
                        **self._run.call_event(call.name, call.id, ""),
                        arguments=cast(JSON, call.input),
                        result=text,
                        error=text if block.is_error else None,
                        seconds=seconds,
                    )
                )
                self._run.meter.end_call(seconds, None)


def _spent(run: AgentRun, result: ResultMessage) -> ResultMessage:
    """Claude Code counts what was answered from records as paid for again."""
    usage = run.usage
    if usage.replayed.requests == 0:
        return result
    return replace(result, total_cost_usd=usage.fresh_cost if usage.fresh.requests else 0.0)


def _read(built: BuiltAgent, result: ResultMessage) -> Turns:
    text = result.result or ""
    if built.output is None:
        return Turns(text, text, result)
    if result.structured_output is None:
        raise AgentError(f"The agent ended without an answer of the output type. It said: {text[:500]!r}")
    value = built.output.read(result.structured_output)
    shown = text
    with contextlib.suppress(TypeError, ValueError):
        shown = text or json.dumps(result.structured_output, ensure_ascii=False)
    return Turns(value, shown, result)
