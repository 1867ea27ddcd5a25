"""The SDK's tracing in agent runs: whether it is on, and a processor that tells each agent run of its own spans."""

from __future__ import annotations

import asyncio
import datetime
import logging
import threading
import weakref
from typing import Any

from agents import RunConfig
from agents.tracing import CustomSpanData, GuardrailSpanData, Span, Trace, TracingProcessor, get_trace_provider
from agents.tracing.processors import default_processor

from flyteplugins.agents.core import AgentRun, current_run

from ._spans import SpanFinished

__all__ = ["FlyteTracingProcessor", "default_run_config", "install_flyte_tracing", "spans_told"]

logger = logging.getLogger("flyteplugins.agents")

_LOCK = threading.Lock()
_TOLD_OTHERWISE = frozenset({"agent", "task", "turn", "function", "generation", "response", "handoff", "mcp_tools"})
"""Spans of what events tell of already."""

_TELLING: weakref.WeakKeyDictionary[AgentRun, set[asyncio.Task[None]]] = weakref.WeakKeyDictionary()


class FlyteTracingProcessor(TracingProcessor):
    """Tells each agent run of what ends in it and is in no other event: guardrails, and spans of the program's own.

    One processor serves the whole process: the SDK calls it in the context of the run that a span belongs to, so that runs
    beside each other do not mix. Spans outside of agent runs are not its business.
    """

    def on_trace_start(self, trace: Trace) -> None:
        """Nothing: an agent run says itself that it began."""

    def on_trace_end(self, trace: Trace) -> None:
        """Nothing: an agent run says itself that it ended."""

    def on_span_start(self, span: Span[Any]) -> None:
        """Nothing: a span is told of when it has ended."""

    def on_span_end(self, span: Span[Any]) -> None:
        """Tell the agent run that the calling context is in, if any."""
        run = current_run()
        data = span.span_data
        if run is None or data.type in _TOLD_OTHERWISE:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a span of a sync tool's thread
            logger.debug("The span %s ended in a thread without an event loop, and is not told of.", data.type)
            return
        name = data.name if isinstance(data, GuardrailSpanData | CustomSpanData) else data.type
        event = SpanFinished(
            run=run.id, agent=run.name, kind=data.type, name=name, seconds=_seconds(span), error=_error(span)
        )
        telling = loop.create_task(run.emit(event))
        _TELLING.setdefault(run, set()).add(telling)
        telling.add_done_callback(lambda task: _TELLING.get(run, set()).discard(task))

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self) -> None:
        """Nothing is held."""


async def spans_told(run: AgentRun) -> None:
    """Wait until everything that ended in an agent run has been told.

    Args:
        run: The agent run.
    """
    if telling := _TELLING.get(run):
        await asyncio.wait(set(telling))


def install_flyte_tracing(*, upload: bool = False) -> None:
    """Have agent runs told of guardrails and of the program's own spans, in events and in the report.

    It adds one processor beside those that the program set, which stay as they are; calling it again does nothing. Runs whose
    caller gave no `run_config` are traced from then on.

    Args:
        upload: Whether the SDK goes on uploading traces to OpenAI. By default its uploading processor is taken out; a program
            that added an uploading processor of its own keeps that.

    Raises:
        TypeError: The program set a trace provider of its own, whose processors cannot be listed. Register a
            `FlyteTracingProcessor()` with it.
    """
    with _LOCK:
        provider = get_trace_provider()
        multi = getattr(provider, "_multi_processor", None)
        if multi is None:
            raise TypeError(
                f"The trace provider is a {type(provider).__qualname__}, whose processors cannot be listed. "
                "Register a FlyteTracingProcessor() with it instead."
            )
        processors = list(multi._processors)
        if not upload:
            processors = [processor for processor in processors if processor is not default_processor()]
        if not any(isinstance(processor, FlyteTracingProcessor) for processor in processors):
            processors.append(FlyteTracingProcessor())
        provider.set_processors(processors)


def default_run_config() -> RunConfig:
    """The run configuration of a caller who gave none.

    The SDK's default processor uploads what was said to OpenAI. A durable task does not do that by accident, so tracing is off
    unless the program set processors of its own.
    """
    return RunConfig(tracing_disabled=not _has_own_processors())


def _has_own_processors() -> bool:
    multi = getattr(get_trace_provider(), "_multi_processor", None)
    if multi is None:  # a provider of the program's own
        return True
    return any(processor is not default_processor() for processor in multi._processors)


def _seconds(span: Span[Any]) -> float:
    if span.started_at is None or span.ended_at is None:
        return 0.0
    began, ended = (datetime.datetime.fromisoformat(at) for at in (span.started_at, span.ended_at))
    return (ended - began).total_seconds()


def _error(span: Span[Any]) -> str | None:
    if isinstance(span.span_data, GuardrailSpanData) and span.span_data.triggered:
        return "The guardrail stopped the run."
    return span.error["message"] if span.error is not None else None
