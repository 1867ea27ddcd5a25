"""Tools that run in the agent's process: recorded as inline leaves, with what their sub-agents used.

A tool's body may run agents, whose turns are leaves of their own. Once the call itself is on record its body does not run
again, so its record holds what those agents used and which turns they took: a replayed run counts what an unbroken one counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar, cast

import flyte

from flyteplugins.agents.core import (
    JSON,
    AgentError,
    AgentRun,
    Event,
    EventSink,
    JsonCodec,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    UnserializableError,
    Usage,
    describe_error,
    render_result,
)
from pydantic_ai.exceptions import AgentRunError, ToolFailed, UserError
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RunUsage

from ._codec import dump_usage, load_usage
from ._errors import CONTROL_FLOW
from ._request import json_values

__all__ = ["Listener", "record_call", "told_to_the_model"]

logger = logging.getLogger("flyteplugins.agents")

T = TypeVar("T")

_EVENTS: ContextVar[list[JSON] | None] = ContextVar("flyteplugins.agents.pydantic_ai.events", default=None)
"""What happens inside of the tool call that runs now."""

_KEPT: dict[str, type[TurnFinished | ToolCallStarted | ToolCallFinished]] = {
    kind.type: kind for kind in (TurnFinished, ToolCallStarted, ToolCallFinished)
}


_PASS: tuple[type[BaseException], ...] = (*CONTROL_FLOW, AgentError, AgentRunError, UserError, UnserializableError)
"""What a tool may raise that is nothing to tell the model: steering, and what ended a sub-agent."""


class Listener:
    """Notes what happens inside of a tool call for the call's record, and tells the caller's own listener.

    Args:
        on_event: The caller's listener. If it raises it is told nothing more, and the agent goes on.
    """

    def __init__(self, on_event: EventSink | None) -> None:
        self._on_event = on_event

    async def __call__(self, event: Event) -> None:
        """Take an event."""
        events = _EVENTS.get()
        if events is not None and event.type in _KEPT:
            events.append(json_values(event.as_dict(), event.type))
        if self._on_event is None:
            return
        try:
            done = self._on_event(event)
            if inspect.isawaitable(done):
                await done
        except Exception:  # nobody loses a paid turn to a broken display
            logger.exception("A listener of agent events raised, and is told nothing more: %r", self._on_event)
            self._on_event = None


async def _tell_again(run: AgentRun, events: list[dict[str, Any]]) -> None:
    """Tell of what happened inside of a call that is answered from its record."""
    for kept in events:
        values = dict(kept)
        kind = _KEPT[values.pop("type")]
        values |= {"run": run.id, "replayed": True}
        if kind is TurnFinished:
            values |= {"tool_calls": tuple(values["tool_calls"]), "usage": Usage.from_dict(values["usage"])}
        await run.emit(kind(**values))


async def record_call(
    run: AgentRun,
    name: str,
    arguments: JSON,
    call: Callable[[RunContext[Any]], Awaitable[JSON]],
    *,
    context: RunContext[Any],
    agent: str,
) -> tuple[JSON, bool]:
    """Make a tool call, or answer it from its record.

    Args:
        run: The agent run.
        name: The tool's name, as the model knows it.
        arguments: Its arguments, as JSON values.
        call: Makes it, with a context whose usage is its own, and returns the SDK's payload: a result, or control flow.
        context: The SDK's context of the call.
        agent: The agent that calls.

    Returns:
        The payload, and whether it came from a record.

    Raises:
        AgentError: The tool raised, and the run is to fail on that.
        Exception: An agent inside of the tool failed, or what `Recorder.record` raises.
    """

    async def make() -> JSON:
        before = dataclasses.replace(context.usage, details=dict(context.usage.details))
        own = dataclasses.replace(before, details=dict(before.details))
        events: list[JSON] = []
        token = _EVENTS.set(events)
        try:
            with _group(run):
                payload = await _with_policy(run, name, call, dataclasses.replace(context, usage=own))
        finally:
            _EVENTS.reset(token)
        return {"result": payload, "usage": dump_usage(own - before), "events": events}

    recorded = await run.inline_tool(
        name,
        arguments,
        make,
        codec=JsonCodec(),
        shown=_shown,
        error=_error,
        call_id=context.tool_call_id or "",
        agent=agent,
    )
    kept = cast("dict[str, Any]", recorded.value)
    used: RunUsage = load_usage(kept["usage"])
    context.usage.incr(used)
    if recorded.replayed:
        await _tell_again(run, kept["events"])
    elif (outer := _EVENTS.get()) is not None:
        outer += kept["events"]
    return cast(JSON, kept["result"]), recorded.replayed


async def _with_policy(
    run: AgentRun, name: str, call: Callable[[RunContext[Any]], Awaitable[JSON]], context: RunContext[Any]
) -> JSON:
    try:
        return await told_to_the_model(run, name, lambda: call(context))
    except ToolFailed as failure:
        return {"kind": "tool_failed", "message": failure.message}


async def told_to_the_model(run: AgentRun, name: str, call: Callable[[], Awaitable[T]]) -> T:
    """Make a call, and turn what it raises into what the run's `on_tool_error` says.

    Args:
        run: The agent run.
        name: The tool's name.
        call: Makes it.

    Raises:
        ToolFailed: It raised, and the model is to be told.
        AgentError: It raised, and the run is to fail on that.
        Exception: The SDK's own control flow and errors: what ended a sub-agent is not for the model to mend.
    """
    try:
        return await call()
    except _PASS:
        raise
    except Exception as error:
        problem = describe_error(error)
        if run.on_tool_error == "raise":
            raise AgentError(f"The tool {name} failed: {problem}") from error
        raise ToolFailed(f"Error: the tool {name} failed. {problem}") from error


@contextlib.contextmanager
def _group(run: AgentRun) -> Iterator[None]:
    """Child actions of a call have a group of their own, so that equal ones are told apart on every attempt alike."""
    if run.scope is None:
        yield
        return
    with flyte.group(run.recorder.group(run.name)):
        yield


def _shown(value: JSON) -> str:
    payload = cast("dict[str, Any]", value)["result"]
    shown = payload.get("result", payload.get("message", payload))
    if isinstance(shown, dict) and shown.get("kind") == "tool-return":
        shown = shown.get("return_value")
    return render_result(shown)


def _error(value: JSON) -> str | None:
    payload = cast("dict[str, Any]", value)["result"]
    match payload.get("kind"):
        case "tool_failed" | "model_retry" | "run_cancelled":
            return f"{payload['kind']}: {payload['message']}"
        case "validation_error":
            return f"validation_error: {'; '.join(item['msg'] for item in payload['errors'])}"
        case "approval_required" | "call_deferred":
            return str(payload["kind"])
    return None
