"""Whether the SDK's own tracing is on."""

from __future__ import annotations

from agents import RunConfig
from agents.tracing import get_trace_provider
from agents.tracing.processors import default_processor

__all__ = ["default_run_config"]


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
