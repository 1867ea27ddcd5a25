"""What becomes of each exception, and how those that were passed over come back."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import openai
import pytest

from flyteplugins.agents.core import ErrorClass
from flyteplugins.agents.langchain._codec import LangChainErrorCodec
from flyteplugins.agents.langchain._errors import classify


def status_error(kind: Any, status: int) -> Exception:
    request = httpx.Request("POST", "https://api.example/v1")
    return kind("No.", response=httpx.Response(status, request=request), body=None)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (status_error(openai.AuthenticationError, 401), ErrorClass.FAIL_NOW),
        (status_error(openai.RateLimitError, 429), ErrorClass.RETRY_IN_PLACE),
        (status_error(openai.InternalServerError, 503), ErrorClass.RETRY_IN_PLACE),
        (status_error(openai.UnprocessableEntityError, 422), ErrorClass.FAIL_NOW),
        (status_error(anthropic.BadRequestError, 400), ErrorClass.FAIL_NOW),
        (status_error(anthropic.APIStatusError, 529), ErrorClass.RETRY_IN_PLACE),
        (
            httpx.HTTPStatusError("No.", request=httpx.Request("GET", "http://x"), response=httpx.Response(403)),
            ErrorClass.FAIL_NOW,
        ),
        (ConnectionError("lost"), ErrorClass.RETRY_ATTEMPT),
    ],
    ids=lambda value: type(value).__qualname__ if isinstance(value, Exception) else value.name,
)
def test_errors_of_providers_are_known_by_their_status(error: Exception, meaning: ErrorClass) -> None:
    assert classify(error) is meaning


def test_an_account_without_credit_fails_now() -> None:
    error = status_error(openai.RateLimitError, 429)
    error.code = "insufficient_quota"  # type: ignore[attr-defined]
    assert classify(error) is ErrorClass.FAIL_NOW


def test_a_failure_comes_back_with_its_response_and_without_the_key() -> None:
    headers = {"authorization": "Bearer sk-secret"}
    request = httpx.Request("POST", "https://api.example/v1?key=sk-secret", headers=headers)
    response: Any = httpx.Response(
        429, headers={"retry-after": "3", "set-cookie": "sk-secret"}, text='{"error":"slow"}', request=request
    )
    error = openai.RateLimitError("Slow down.", response=response, body={"error": "slow"})
    codec = LangChainErrorCodec()
    payload = codec.encode(error)
    assert "sk-secret" not in str(payload)
    again: Any = codec.decode(payload)
    assert type(again) is openai.RateLimitError
    assert str(again) == str(error)
    assert (again.status_code, again.body, again.message) == (429, {"error": "slow"}, "Slow down.")
    assert again.response.status_code == 429
    assert again.response.headers["retry-after"] == "3"
    assert again.response.json() == {"error": "slow"}
    assert again.request.url == "https://api.example/v1"
