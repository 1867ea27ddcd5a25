"""How the SDK's values are kept in records, and come back as the SDK would have seen them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import httpx2
from agents import ModelResponse, Usage
from pydantic import BaseModel, TypeAdapter

import openai
from flyteplugins.agents.core import JSON, DefaultErrorCodec, jsonable
from openai._models import construct_type
from openai.types.responses import ResponseOutputItem

__all__ = ["ModelResponseCodec", "OpenAIErrorCodec"]

_USAGE = TypeAdapter(Usage)


class ModelResponseCodec:
    """A model's response.

    Items are kept with the fields that were set, by alias, and rebuilt without validation, as the client builds them from the
    provider's JSON: a field that was not sent stays unset in the next request, and a type that this SDK does not know survives.
    """

    def encode(self, value: ModelResponse) -> JSON:
        """Turn a response into JSON values."""
        return {
            "output": [_dump_item(item) for item in value.output],
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
            response_id=kept["response_id"],
            request_id=kept["request_id"],
            raw_usage=kept["raw_usage"],
        )


def _dump_item(item: Any) -> JSON:
    if isinstance(item, BaseModel):
        return cast(JSON, item.model_dump(mode="json", exclude_unset=True, by_alias=True, warnings=False))
    return cast(JSON, item)


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
