"""Every exception of the SDK has a class, and one that was passed over comes back as it was."""

from __future__ import annotations

import json

import pydantic_ai.exceptions as sdk
import pytest

from flyteplugins.agents.core import ErrorClass
from flyteplugins.agents.pydantic_ai._errors import PydanticAIErrorCodec, classify


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ErrorClass.FAIL_NOW),
        (401, ErrorClass.FAIL_NOW),
        (429, ErrorClass.RETRY_IN_PLACE),
        (500, ErrorClass.RETRY_IN_PLACE),
    ],
)
def test_an_http_error_without_a_category_is_classed_by_its_status(status: int, expected: ErrorClass) -> None:
    assert classify(sdk.ModelHTTPError(status, "m")) is expected


def test_a_category_counts_more_than_the_status() -> None:
    error = sdk.ModelHTTPError.for_category(sdk.ModelQuotaExceededError, status_code=429, model_name="m")
    assert classify(error) is ErrorClass.FAIL_NOW


def test_what_an_exception_was_raised_from_counts_where_it_is_none_of_the_sdks() -> None:
    error = RuntimeError("wrapped")
    error.__cause__ = sdk.UsageLimitExceeded("too much")
    assert classify(error) is ErrorClass.FAIL_NOW
    assert classify(RuntimeError("something else")) is ErrorClass.RETRY_ATTEMPT


def test_failures_of_all_fallbacks_are_final_if_each_is() -> None:
    bad, busy = sdk.ModelHTTPError(400, "m"), sdk.ModelHTTPError(503, "m")
    assert classify(sdk.FallbackExceptionGroup("all", [bad, bad])) is ErrorClass.FAIL_NOW
    assert classify(sdk.FallbackExceptionGroup("all", [bad, busy])) is ErrorClass.RETRY_ATTEMPT


HEADERS = {"retry-after": "3", "set-cookie": "secret"}


@pytest.mark.parametrize(
    "error",
    [
        sdk.ModelHTTPError(418, "m", {"a": [1]}, headers={"x": "y"}, hint="Try tea."),
        sdk.ModelHTTPError.for_category(sdk.ModelRateLimitError, status_code=429, model_name="m", headers=HEADERS),
        sdk.ModelHTTPError.for_category(sdk.ModelAuthenticationError, status_code=401, model_name="m", body={"x": 1}),
        sdk.ModelConnectionError("m", "no route", phase="connect"),
        sdk.ModelRetry("again"),
        sdk.ToolFailed("gone"),
        sdk.UnexpectedModelBehavior("odd", "body"),
        sdk.UsageLimitExceeded("too much"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_that_was_passed_over_comes_back_as_it_was(error: Exception) -> None:
    codec = PydanticAIErrorCodec()
    again = codec.decode(json.loads(json.dumps(codec.encode(error))))
    assert type(again) is type(error)
    assert str(again) == str(error)
    for name, value in vars(error).items():
        kept = getattr(again, name)
        if name == "headers" and value:
            kept, value = dict(kept), {key: item for key, item in value.items() if key != "set-cookie"}
        assert kept == value, name
