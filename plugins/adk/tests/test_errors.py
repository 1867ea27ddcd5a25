"""What each exception means for the attempt."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import google.adk.errors
import google.genai.errors
import httpx
import pytest
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.workflow import _errors as workflow

from flyteplugins.agents.adk import ModelResponseError
from flyteplugins.agents.adk._errors import ERROR_CLASSES, NAMED_CLASSES, classify
from flyteplugins.agents.core import DefaultErrorCodec, ErrorClass


def sdk_errors() -> list[type[Exception]]:
    modules = [google.genai.errors, workflow]
    for found in pkgutil.iter_modules(google.adk.errors.__path__, "google.adk.errors."):
        modules.append(importlib.import_module(found.name))
    classes = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    return sorted(
        (
            one
            for one in classes
            if issubclass(one, Exception) and not issubclass(one, Warning) and one.__module__.startswith("google.")
        ),
        key=lambda one: one.__name__,
    )


@pytest.mark.parametrize("kind", sdk_errors(), ids=lambda kind: kind.__name__)
def test_every_exception_of_the_sdk_has_a_class_of_its_own(kind: type[Exception]) -> None:
    """A new one fails here, until somebody has thought about what it means."""
    assert kind in ERROR_CLASSES


@pytest.mark.parametrize(
    ("status", "expected"),
    [(400, ErrorClass.FAIL_NOW), (401, ErrorClass.FAIL_NOW), (404, ErrorClass.FAIL_NOW)]
    + [(status, ErrorClass.RETRY_ATTEMPT) for status in (408, 429, 500, 503)],
)
def test_the_status_of_a_providers_error_counts(status: int, expected: ErrorClass) -> None:
    """Whichever client raised it."""

    class Other(Exception):
        status_code = status

    assert classify(google.genai.errors.APIError(status, {"error": {"message": "no"}})) is expected
    assert classify(Other()) is expected
    response = httpx.Response(status, request=httpx.Request("GET", "http://localhost"))
    assert classify(httpx.HTTPStatusError("no", request=response.request, response=response)) is expected


@pytest.mark.parametrize("name", NAMED_CLASSES)
def test_a_class_that_is_known_by_its_name_means_what_is_declared(name: str) -> None:
    """The SDK has it, and its status, where the class has one, says nothing else."""
    module, _, attribute = name.rpartition(".")
    kind = getattr(importlib.import_module(module), attribute)
    assert classify(kind.__new__(kind)) is NAMED_CLASSES[name]


def test_the_code_of_a_response_without_an_answer_counts() -> None:
    assert classify(ModelResponseError("SAFETY", "", [])) is ErrorClass.FAIL_NOW
    assert classify(ModelResponseError("MALFORMED_FUNCTION_CALL", "", [])) is ErrorClass.RETRY_ATTEMPT
    assert classify(LlmCallsLimitExceededError("no")) is ErrorClass.FAIL_NOW
    wrapped = RuntimeError("a node failed")
    wrapped.__cause__ = ModelResponseError("SAFETY", "", [])
    assert classify(wrapped) is ErrorClass.FAIL_NOW


def test_a_response_without_an_answer_survives_its_record() -> None:
    """It may be passed over, and then it replays as it was."""
    error = ModelResponseError("SAFETY", "stopped", [{"error_code": "SAFETY"}])
    codec = DefaultErrorCodec()
    again = codec.decode(codec.encode(error))
    assert isinstance(again, ModelResponseError)
    assert (again.code, again.message, again.responses) == ("SAFETY", "stopped", [{"error_code": "SAFETY"}])
    assert str(again) == str(error) == "The model gave no answer (SAFETY): stopped"
