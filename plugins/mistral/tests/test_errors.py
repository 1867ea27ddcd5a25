"""What each exception means, and how it comes back from a record."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from mistralai.client import errors
from mistralai.client.models import ConversationResponse
from mistralai.extra import exceptions as extra

from flyteplugins.agents.core import ErrorClass
from flyteplugins.agents.mistral._codec import EventsCodec, MistralErrorCodec, ResponseCodec
from flyteplugins.agents.mistral._errors import classify


def api_error(status: int, body: str = '{"message": "no"}') -> errors.SDKError:
    response = httpx2.Response(status, headers={"content-type": "application/json", "retry-after": "3"}, text=body)
    return errors.SDKError("API error occurred", response, body)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, ErrorClass.FAIL_NOW) for status in (400, 401, 402, 403, 404, 413, 422)),
        *((status, ErrorClass.RETRY_IN_PLACE) for status in (408, 409, 425, 429, 500, 502, 503, 504, 520)),
        (418, ErrorClass.RETRY_ATTEMPT),
    ],
)
def test_a_status_says_what_is_to_be_done(status: int, expected: ErrorClass) -> None:
    assert classify(api_error(status)) is expected


def test_what_is_none_of_the_sdks_is_what_it_was_raised_from() -> None:
    error = RuntimeError("outer")
    error.__cause__ = api_error(401)
    assert classify(error) is ErrorClass.FAIL_NOW
    assert classify(RuntimeError("unknown")) is ErrorClass.RETRY_ATTEMPT
    assert classify(httpx2.ReadError("gone")) is ErrorClass.RETRY_IN_PLACE


def test_an_api_error_comes_back_as_it_was() -> None:
    codec = MistralErrorCodec()
    error = api_error(403)
    again = codec.decode(codec.encode(error))
    assert isinstance(again, errors.SDKError)
    assert (str(again), again.status_code, again.body) == (str(error), 403, error.body)
    assert again.headers["retry-after"] == "3"
    invalid = '{"detail": [{"loc": ["body", "inputs"], "msg": "empty", "type": "value_error"}]}'
    response = httpx2.Response(422, text=invalid)
    refused = errors.HTTPValidationError(errors.HTTPValidationErrorData.model_validate_json(invalid), response)
    again = codec.decode(codec.encode(refused))
    assert isinstance(again, errors.HTTPValidationError)
    assert again.data == refused.data
    other = codec.decode(codec.encode(extra.RunException("what")))
    assert (type(other), str(other)) == (extra.RunException, "what")


RESPONSE: dict[str, Any] = {
    "object": "conversation.response",
    "conversation_id": "conv_1",
    "outputs": [
        {
            "object": "entry", "type": "agent.handoff", "id": "h1", "created_at": "2026-01-01T00:00:00Z",
            "previous_agent_id": "a", "previous_agent_name": "A", "next_agent_id": "b", "next_agent_name": "B",
        },
        {"object": "entry", "type": "tool.execution", "id": "t1", "name": "web_search", "arguments": "{}", "info": {"n": 1}},
        {
            "object": "entry", "type": "message.output", "id": "m1", "role": "assistant", "model": "m", "agent_id": "b",
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "signature": "s", "closed": True},
                {"type": "text", "text": "so"},
                {"type": "tool_reference", "tool": "web_search", "title": "a page", "url": "https://example.com"},
            ],
        },
        {"object": "entry", "type": "message.output", "id": "m2", "role": "assistant", "content": "plain \ud83d\ude00"},
        {
            "object": "entry", "type": "function.call", "id": "f1", "tool_call_id": "c1", "name": "f",
            "arguments": '{"a":1}', "confirmation_status": "pending",
        },
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "connectors": {"web_search": 1}},
}  # fmt: skip


def test_a_response_comes_back_exactly_and_its_events_come_to_the_same() -> None:
    response = ConversationResponse.model_validate(RESPONSE)
    kept = ResponseCodec().encode(response)
    again = ResponseCodec().decode(kept)
    assert again == response
    assert again.model_dump(mode="json", exclude_unset=True) == RESPONSE
    events = EventsCodec().decode(kept)
    streamed = ResponseCodec().decode(EventsCodec().encode(events))
    assert [one.model_dump(mode="json", exclude_unset=True) for one in streamed.outputs] == RESPONSE["outputs"]
    assert streamed.usage == response.usage
