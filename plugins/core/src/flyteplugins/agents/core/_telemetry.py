"""OpenTelemetry spans of an agent run, after the semantic conventions for generative AI: a consumer of the event stream.

They go to the `TracerProvider` that the program has configured; without one there are none, and nothing here sets one up. Of
what was replayed there is no span: an earlier attempt exported it. A turn's span is made when the turn has ended, since only
then it is known whether it was replayed; spans of a tool call and of the run are current while their bodies run, so that spans
of the program's own and of agent runs within are inside of them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from ._canonical import UnserializableError, jsonable
from ._events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    HandOff,
    MemoryNotice,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFinished,
)
from ._report._texts import error_class
from ._structure import without_contents

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from ._scope import TaskScope

__all__ = ["CONTENT_VARIABLE", "Telemetry"]

logger = logging.getLogger("flyteplugins.agents")

CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's own switch for contents: `true`, or one of its modes that puts them into spans."""

_PROVIDER_VARIABLE = "OTEL_PYTHON_TRACER_PROVIDER"
"""Names a provider that the API loads by itself when it is first asked for one."""

_PROVIDERS = {"openai": "openai", "claude": "anthropic", "mistral": "mistral_ai", "adk": "gcp.gen_ai"}
"""Who answers, as the conventions name it. Frameworks that speak to many are told by their own name."""


class Telemetry:
    """Makes the spans of one agent run.

    Args:
        tracer: Makes spans.
        framework: The SDK's short name.
        name: The agent run's name.
        scope: The Flyte task that runs, or `None` outside of one.
        contents: Whether spans hold what was said.
    """

    def __init__(self, tracer: Tracer, framework: str, name: str, scope: TaskScope | None, *, contents: bool) -> None:
        self._tracer = tracer
        self._provider = _PROVIDERS.get(framework, framework)
        self._contents = contents
        self._calls: dict[str, Span] = {}
        attributes = self._attributes("invoke_agent", name) | {"flyte.agents.framework": framework}
        if scope is not None:
            place = {"org": scope.org, "project": scope.project, "domain": scope.domain}
            place |= {"run": scope.run, "action": scope.action}
            attributes |= {f"flyte.{key}": value for key, value in place.items() if value}
        self._root = tracer.start_span(f"invoke_agent {name}", attributes=attributes)

    @classmethod
    def begin(
        cls, framework: str, name: str, scope: TaskScope | None, observability: bool | Literal["structure"]
    ) -> Telemetry | None:
        """Begin an agent run's span, or `None` where nobody has asked for any: neither the program nor the caller.

        Args:
            framework: The SDK's short name.
            name: The agent run's name.
            scope: The Flyte task that runs, or `None` outside of one.
            observability: What the caller of `run_agent` said.
        """
        if not observability or ("opentelemetry.trace" not in sys.modules and _PROVIDER_VARIABLE not in os.environ):
            return None  # who has configured a provider has imported the API
        try:
            from opentelemetry import trace
        except ImportError:  # the variable is set where it is not installed
            return None
        provider = trace.get_tracer_provider()
        if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
            return None
        asked = os.environ.get(CONTENT_VARIABLE, "").lower() in ("true", "1", "span_only", "span_and_event")
        try:
            tracer = provider.get_tracer("flyteplugins.agents")
            return cls(tracer, framework, name, scope, contents=asked and observability is True)
        except Exception:  # the program's own processors run here, and are no reason for its agent to stop
            logger.exception("The spans of agent run %r could not be begun", name)
            return None

    @contextlib.contextmanager
    def within(self, call: str) -> Iterator[None]:
        """Have the span of a tool call be the current one in the body.

        Args:
            call: The call's id in its events; empty for the agent run itself.
        """
        from opentelemetry import context, trace

        token = context.attach(trace.set_span_in_context(self._calls.get(call, self._root)))
        try:
            yield
        finally:
            context.detach(token)

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case RunStarted():
                self._root.set_attribute("flyte.agents.resumed", event.resumed)
                self._content(self._root, "gen_ai.input.messages", _message("user", event.input))
            case TurnFinished():
                self._turn(event)
            case ToolCallStarted():
                self._call(event)
            case ToolCallRepeated():
                if event.call in self._calls:
                    self._calls[event.call].set_attribute("flyte.agents.run_again", True)
            case ToolCallFinished():
                self._result(event)
            case HandOff() | ApprovalAsked() | ApprovalAnswered() | MemoryNotice():
                if not event.replayed:
                    told = (event if self._contents else without_contents(event)).as_dict()
                    known = {"type", "run", "replayed", "parent"}
                    self._parent(event).add_event(event.type, {key: told[key] for key in told if key not in known})
            case RunFinished():
                self._end(event)

    def close(self) -> None:
        """End the agent run's span. What has no outcome by then has ended with it."""
        spans = [*self._calls.values(), self._root]
        self._calls.clear()
        try:
            for span in spans:
                span.end()
        except Exception:  # as above
            logger.exception("The spans of an agent run could not be ended")

    def _turn(self, event: TurnFinished) -> None:
        if event.replayed:
            return
        end = time.time_ns()
        usage = event.usage
        attributes = self._attributes("chat", event.agent) | {"gen_ai.request.model": event.model}
        if event.error is None and usage.total_tokens:
            attributes |= {
                "gen_ai.usage.input_tokens": usage.input_tokens,
                "gen_ai.usage.output_tokens": usage.output_tokens,
            }
            details = {
                "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
                "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
                "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            }
            attributes |= {key: value for key, value in details.items() if value}
        if event.cost is not None:
            attributes["flyte.agents.cost_usd"] = event.cost
        span = self._span(f"chat {event.model}", event, attributes, end - int(event.seconds * 1e9), client=True)
        calls = [{"type": "tool_call", "name": name} for name in event.tool_calls]
        self._content(span, "gen_ai.output.messages", _message("assistant", event.text, *calls))
        self._fail(span, event.error)
        span.end(end)

    def _call(self, event: ToolCallStarted) -> None:
        attributes = self._attributes("execute_tool", event.agent) | {
            "gen_ai.tool.name": event.name,
            "gen_ai.tool.call.id": event.call,
            "gen_ai.tool.type": "function",
        }
        span = self._span(f"execute_tool {event.name}", event, attributes, time.time_ns())
        self._content(span, "gen_ai.tool.call.arguments", event.arguments)
        self._calls[event.call] = span

    def _result(self, event: ToolCallFinished) -> None:
        span = self._calls.pop(event.call, None)
        if span is None or event.replayed:
            return  # a span that does not end is not exported
        self._content(span, "gen_ai.tool.call.result", event.result)
        self._fail(span, event.error)
        span.end()

    def _end(self, event: RunFinished) -> None:
        if event.error is None:
            self._content(self._root, "gen_ai.output.messages", _message("assistant", event.text))
        self._fail(self._root, event.error)

    def _attributes(self, operation: str, agent: str) -> dict[str, Any]:
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": self._provider,
            **({"gen_ai.agent.name": agent} if agent else {}),
        }

    def _parent(self, event: Event) -> Span:
        return self._calls.get(event.parent, self._root)

    def _span(self, name: str, event: Event, attributes: dict[str, Any], start: int, *, client: bool = False) -> Span:
        from opentelemetry import trace

        kind = trace.SpanKind.CLIENT if client else trace.SpanKind.INTERNAL
        context = trace.set_span_in_context(self._parent(event))
        return self._tracer.start_span(name, context, kind=kind, attributes=attributes, start_time=start)

    def _content(self, span: Span, key: str, value: Any) -> None:
        if not self._contents:
            return
        try:
            span.set_attribute(key, json.dumps(jsonable(value), ensure_ascii=False))
        except UnserializableError:
            span.set_attribute(key, str(value))

    def _fail(self, span: Span, error: str | None) -> None:
        """Mark a span as failed. The message of an exception is contents."""
        if error is None:
            return
        from opentelemetry import trace

        name = error_class(error) or "_OTHER"
        span.set_attribute("error.type", name)
        span.set_status(trace.Status(trace.StatusCode.ERROR, error if self._contents else name))


def _message(role: str, text: str, *parts: dict[str, str]) -> list[dict[str, Any]]:
    said = [{"type": "text", "content": text}] if text else []
    return [{"role": role, "parts": [*said, *parts]}]
