"""How the SDK's values are kept in records, and come back as the SDK would have seen them.

A turn is one leaf whether it is streamed or not, so either codec reads what the other wrote.
"""

from __future__ import annotations

from typing import Any, cast

import httpx2
from mistralai.client import errors
from mistralai.client.models import ConversationEvents, ConversationResponse

from flyteplugins.agents.core import JSON, DefaultErrorCodec

from ._entries import event_values, events_of, response_of

__all__ = ["EventsCodec", "MistralErrorCodec", "ResponseCodec"]


class ResponseCodec:
    """A response, with the fields that were sent."""

    def encode(self, value: ConversationResponse) -> JSON:
        """Turn a response into JSON values."""
        return {"response": cast(JSON, value.model_dump(mode="json", by_alias=True, exclude_unset=True))}

    def decode(self, payload: JSON) -> ConversationResponse:
        """Build a response."""
        kept = cast("dict[str, Any]", payload)
        if "events" in kept:
            return response_of(EventsCodec().decode(payload))
        return ConversationResponse.model_validate(kept["response"])


class EventsCodec:
    """The events of a streamed turn, with the fields that were sent."""

    def encode(self, value: list[ConversationEvents]) -> JSON:
        """Turn events into JSON values."""
        return {"events": [event_values(event) for event in value]}

    def decode(self, payload: JSON) -> list[ConversationEvents]:
        """Build events."""
        kept = cast("dict[str, Any]", payload)
        if "response" in kept:
            return events_of(ResponseCodec().decode(payload))
        return [ConversationEvents.model_validate(event) for event in kept["events"]]


class MistralErrorCodec(DefaultErrorCodec):
    """Failures; those of the API keep their response, so that status, headers and body read the same on a replay."""

    def encode(self, error: Exception) -> JSON:
        """Turn an exception into JSON values. Request headers, which carry the key, are left out."""
        if not isinstance(error, errors.MistralError):
            return super().encode(error)
        response = error.raw_response
        return {
            "module": type(error).__module__,
            "class": type(error).__qualname__,
            "message": error.message,
            "body": error.body,
            "response": {
                "status": response.status_code,
                "headers": {name: value for name, value in response.headers.items() if name.lower() != "set-cookie"},
            },
        }

    def decode(self, payload: JSON) -> Exception:
        """Build an equal exception."""
        kept = cast("dict[str, Any]", payload)
        if "response" not in kept:
            return super().decode(payload)
        kind = getattr(errors, kept["class"], None)
        if not (isinstance(kind, type) and issubclass(kind, errors.MistralError)):
            raise TypeError(f"{kept['class']} is not an exception class of mistralai")
        headers = {
            name: value
            for name, value in kept["response"]["headers"].items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        }
        response = httpx2.Response(kept["response"]["status"], headers=headers, text=kept["body"])
        error = kind.__new__(kind)
        errors.MistralError.__init__(error, kept["message"], response, kept["body"])
        if isinstance(error, errors.HTTPValidationError):
            object.__setattr__(error, "data", errors.HTTPValidationErrorData.model_validate_json(kept["body"]))
        return error
