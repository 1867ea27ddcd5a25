"""The events of a streamed response: what response they add up to, and what events a response would have had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agents import ModelResponse, Usage
from agents.items import TResponseStreamEvent
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.run_internal.model_retry import apply_retry_attempt_usage
from agents.usage import (
    _attach_normalized_usage,
    _attach_raw_usage_snapshot,
    _extract_raw_usage_snapshot,
    _mark_requests_completed_without_usage,
    _requests_for_response_without_usage,
    _response_usage_to_usage,
)

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseOutputItemDoneEvent,
    ResponseRefusalDeltaEvent,
    ResponseTextDeltaEvent,
)

__all__ = ["FAILURES", "attach_usage", "event_values", "is_last", "response_of", "text_of"]

FAILURES = frozenset({"response.failed", "response.incomplete", "response.error", "error"})
"""Events by which a provider says that there will be no answer. The SDK's runner raises on them."""


def is_last(event: TResponseStreamEvent) -> bool:
    """Whether an event completes the answer."""
    return isinstance(event, ResponseCompletedEvent)


def text_of(event: TResponseStreamEvent) -> str:
    """The text that an event adds to the answer, without reasoning."""
    return event.delta if isinstance(event, ResponseTextDeltaEvent | ResponseRefusalDeltaEvent) else ""


def response_of(events: list[TResponseStreamEvent], *, raw_usage: bool, failed: int) -> ModelResponse:
    """Build the response that the SDK's runner builds from events.

    Args:
        events: All of them; one completes the answer.
        raw_usage: Whether the provider's own usage is kept.
        failed: How many requests of this turn failed before.

    Raises:
        ValueError: None of them completes the answer.
    """
    completed = next((event for event in reversed(events) if isinstance(event, ResponseCompletedEvent)), None)
    if completed is None:
        raise ValueError(f"None of the {len(events)} events of the stream completes the answer.")
    response = completed.response
    usage = (
        _response_usage_to_usage(response.usage)
        if response.usage
        else Usage(requests=_requests_for_response_without_usage(response))
    )
    return ModelResponse(
        output=response.output
        or [event.item for event in events if isinstance(event, ResponseOutputItemDoneEvent)],  # as the runner does
        usage=apply_retry_attempt_usage(usage, failed),
        response_id=response.id,
        request_id=getattr(response, "_request_id", None),
        raw_usage=_extract_raw_usage_snapshot(response) if raw_usage else None,
    )


def attach_usage(response: Response, usage: Usage, raw_usage: Mapping[str, Any] | None) -> None:
    """Have the SDK's runner find what a turn cost, the requests that failed before the answer included.

    Args:
        response: The response of the event that completes the answer.
        usage: What the turn cost.
        raw_usage: The provider's own usage, where the run asked for it.
    """
    if response.usage:
        _attach_normalized_usage(response.usage, usage)
    elif usage.requests:
        _mark_requests_completed_without_usage(response, usage.requests)
    if raw_usage is not None:
        _attach_raw_usage_snapshot(response, raw_usage)


def event_values(kept: Mapping[str, Any], model: str) -> Iterator[dict[str, Any]]:
    """Make up the events of a response that was not streamed, as JSON values.

    Args:
        kept: The response, as its codec writes it.
        model: The model's name.
    """
    response: dict[str, Any] = {
        "id": kept["response_id"] or FAKE_RESPONSES_ID,
        "created_at": 0.0,
        "model": model,
        "object": "response",
        "output": [],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }
    bodies: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
    for index, item in enumerate(kept["output"]):
        place = {"output_index": index}
        bodies.append({"type": "response.output_item.added", **place, "item": item})
        parts = item.get("content") if item.get("type") == "message" else None
        for number, part in enumerate(parts or []):
            where = {**place, "content_index": number, "item_id": item.get("id", "")}
            bodies.append({"type": "response.content_part.added", **where, "part": part})
            if isinstance(text := part.get("text"), str):
                bodies.append({"type": "response.output_text.delta", **where, "delta": text, "logprobs": []})
                bodies.append({"type": "response.output_text.done", **where, "text": text, "logprobs": []})
            elif isinstance(refusal := part.get("refusal"), str):
                bodies.append({"type": "response.refusal.delta", **where, "delta": refusal})
                bodies.append({"type": "response.refusal.done", **where, "refusal": refusal})
            bodies.append({"type": "response.content_part.done", **where, "part": part})
        bodies.append({"type": "response.output_item.done", **place, "item": item})
    full = {**response, "output": kept["output"], "usage": _usage_value(kept["usage"])}
    bodies.append({"type": "response.completed", "response": full})
    for number, body in enumerate(bodies):
        yield {**body, "sequence_number": number}


def _usage_value(usage: Mapping[str, Any]) -> dict[str, Any]:
    names = ("input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens")
    return {name: usage[name] for name in names}
