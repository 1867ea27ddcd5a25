"""How the SDK's values are kept in records, and come back as the SDK would have seen them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import httpx2
from agents import ModelResponse, Usage
from agents.items import TResponseStreamEvent
from agents.models.fake_id import FAKE_RESPONSES_ID
from pydantic import BaseModel, TypeAdapter

import openai
from flyteplugins.agents.core import JSON, DefaultErrorCodec, jsonable
from openai._models import add_request_id, construct_type
from openai.types.responses import ResponseCompletedEvent, ResponseOutputItem, ResponseStreamEvent

from ._events import attach_usage, event_values, response_of

__all__ = ["ModelResponseCodec", "OpenAIErrorCodec", "StreamCodec", "dump_model", "load_event"]

_USAGE = TypeAdapter(Usage)


class ModelResponseCodec:
    """A model's response.

    Items are kept with the fields that were set, by alias, and rebuilt without validation, as the client builds them from the
    provider's JSON: a field that was not sent stays unset in the next request, and a type that this SDK does not know survives.

    It reads what `StreamCodec` writes as well.
    """

    def encode(self, value: ModelResponse) -> JSON:
        """Turn a response into JSON values."""
        return {
            "output": [dump_model(item) for item in value.output],
            "usage": cast(JSON, _USAGE.dump_python(value.usage, mode="json")),
            "response_id": value.response_id,
            "request_id": value.request_id,
            "raw_usage": cast(JSON, value.raw_usage),
        }

    def decode(self, payload: JSON) -> ModelResponse:
        """Build a response."""
        kept = cast("dict[str, Any]", payload)
        return ModelResponse(
            output=[cast(Any, construct_type(type_=ResponseOutputItem, value=item)) for item in kept["output"]],
            usage=_USAGE.validate_python(kept["usage"]),
            # what the SDK's Chat Completions model puts into the events that it makes up is no id
            response_id=None if kept["response_id"] == FAKE_RESPONSES_ID else kept["response_id"],
            request_id=kept["request_id"],
            raw_usage=kept["raw_usage"],
        )


class StreamCodec:
    """The events of a streamed response, and the response itself, so that a turn that is not streamed reads the record as well.

    A record that such a turn made has no events: they are made up from the response, one delta per text.

    Args:
        model: The model's name, for events that are made up.
        raw_usage: Whether the run asked for the provider's own usage.
        failed: The runner's own list of how many requests of this turn failed before the one that was answered, as its one
            element: it counts them into the usage.
    """

    def __init__(self, model: str, *, raw_usage: bool, failed: list[int]) -> None:
        self._model = model
        self._raw_usage = raw_usage
        self._failed = failed

    def encode(self, value: list[TResponseStreamEvent]) -> JSON:
        """Turn events into JSON values."""
        response = response_of(value, raw_usage=self._raw_usage, failed=self._failed[0])
        return {
            **cast("dict[str, JSON]", ModelResponseCodec().encode(response)),
            "events": [dump_model(event) for event in value],
        }

    def decode(self, payload: JSON) -> list[TResponseStreamEvent]:
        """Build events."""
        kept = cast("dict[str, Any]", payload)
        events = [load_event(event) for event in kept.get("events") or event_values(kept, self._model)]
        for event in events:
            if isinstance(event, ResponseCompletedEvent):
                attach_usage(event.response, _USAGE.validate_python(kept["usage"]), kept["raw_usage"])
                if kept["request_id"] is not None:
                    add_request_id(event.response, kept["request_id"])
        return events


def dump_model(item: Any) -> JSON:
    """Write one of the SDK's values as the JSON that the provider sent."""
    if isinstance(item, BaseModel):
        return cast(JSON, item.model_dump(mode="json", exclude_unset=True, by_alias=True, warnings=False))
    return cast(JSON, item)


def load_event(value: Any) -> TResponseStreamEvent:
    """Build an event as the client builds it from the provider's JSON."""
    return cast(TResponseStreamEvent, construct_type(type_=ResponseStreamEvent, value=value))


class OpenAIErrorCodec(DefaultErrorCodec):
    """Failures; those of the API keep their response, so that status, headers and body read the same on a replay."""

    def encode(self, error: Exception) -> JSON:
        """Turn an exception into JSON values. Request headers, which carry the key, are left out."""
        if not isinstance(error, openai.APIError):
            return super().encode(error)
        response = getattr(error, "response", None)
        return {
            "module": type(error).__module__,
            "class": type(error).__qualname__,
            "message": error.message,
            "body": jsonable(error.body),
            "request": {
                "method": error.request.method,
                "url": str(error.request.url.copy_with(username=None, password=None)),
            },
            "response": {
                "status": response.status_code,
                "headers": {name: value for name, value in response.headers.items() if name.lower() != "set-cookie"},
                "text": response.text,
            }
            if response is not None
            else None,
        }

    def decode(self, payload: JSON) -> Exception:
        """Build an equal exception."""
        kept = cast("dict[str, Any]", payload)
        if "request" not in kept:
            return super().decode(payload)
        kind = getattr(openai, kept["class"].rpartition(".")[2], None)
        if not (isinstance(kind, type) and issubclass(kind, openai.APIError)):
            raise TypeError(f"{kept['class']} is not an exception class of the openai package")
        request = httpx2.Request(kept["request"]["method"], kept["request"]["url"])
        if kept["response"] is not None:
            headers = {
                name: value
                for name, value in kept["response"]["headers"].items()
                if name not in ("content-encoding", "content-length", "transfer-encoding")
            }
            response = httpx2.Response(
                kept["response"]["status"], headers=headers, text=kept["response"]["text"], request=request
            )
            return cast(Callable[..., Exception], kind)(kept["message"], response=response, body=kept["body"])
        if issubclass(kind, openai.APITimeoutError):
            return kind(request=request)
        if issubclass(kind, openai.APIConnectionError):
            return kind(message=kept["message"], request=request)
        return kind(kept["message"], request, body=kept["body"])
