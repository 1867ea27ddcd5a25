"""What each exception of the SDK means for the attempt."""

from __future__ import annotations

import httpx2
import pydantic
from mistralai.client import errors
from mistralai.extra import exceptions as extra

from flyteplugins.agents.core import ErrorClass

__all__ = ["ERROR_CLASSES", "STATUS_CLASSES", "classify"]

ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    # asked again by itself, inside the leaf
    httpx2.TransportError: ErrorClass.RETRY_IN_PLACE,
    errors.NoResponseError: ErrorClass.RETRY_IN_PLACE,
    # another attempt may go better; of these, the status says more
    errors.MistralError: ErrorClass.RETRY_ATTEMPT,
    errors.SDKError: ErrorClass.RETRY_ATTEMPT,
    errors.ObservabilityError: ErrorClass.RETRY_ATTEMPT,
    httpx2.HTTPError: ErrorClass.RETRY_ATTEMPT,
    extra.StreamDisconnectedError: ErrorClass.RETRY_ATTEMPT,
    extra.MCPException: ErrorClass.RETRY_ATTEMPT,
    # no attempt can go better: a wrong key or request, an answer that this SDK cannot read, or one that is on record
    errors.HTTPValidationError: ErrorClass.FAIL_NOW,
    errors.ResponseValidationError: ErrorClass.FAIL_NOW,
    extra.MistralClientException: ErrorClass.FAIL_NOW,
    extra.MCPAuthException: ErrorClass.FAIL_NOW,
    extra.RunException: ErrorClass.FAIL_NOW,
    extra.DeferredToolCallsException: ErrorClass.FAIL_NOW,
    extra.WorkflowPayloadCompressionException: ErrorClass.FAIL_NOW,
    extra.WorkflowPayloadEncryptionException: ErrorClass.FAIL_NOW,
    extra.WorkflowPayloadOffloadingException: ErrorClass.FAIL_NOW,
    pydantic.ValidationError: ErrorClass.FAIL_NOW,
    NotImplementedError: ErrorClass.FAIL_NOW,
}
"""Every exception class that an agent run may meet, and what it means. A class not listed means what its base means."""

STATUS_CLASSES: dict[int, ErrorClass] = {
    400: ErrorClass.FAIL_NOW,
    401: ErrorClass.FAIL_NOW,
    402: ErrorClass.FAIL_NOW,
    403: ErrorClass.FAIL_NOW,
    404: ErrorClass.FAIL_NOW,
    405: ErrorClass.FAIL_NOW,
    408: ErrorClass.RETRY_IN_PLACE,
    409: ErrorClass.RETRY_IN_PLACE,
    413: ErrorClass.FAIL_NOW,
    422: ErrorClass.FAIL_NOW,
    425: ErrorClass.RETRY_IN_PLACE,
    429: ErrorClass.RETRY_IN_PLACE,
}
"""What the status of an API error means. Not listed: below 500 the attempt is retried, from 500 on the request is, in place."""


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception.

    Args:
        error: What the agent run raised. Where it is none of the SDK's, what it was raised from counts.
    """
    current: BaseException | None = error
    while current is not None:
        if type(current) in (errors.SDKError, errors.MistralError):
            status = current.status_code  # type: ignore[attr-defined]  # both have it
            return STATUS_CLASSES.get(status, ErrorClass.RETRY_IN_PLACE if status >= 500 else ErrorClass.RETRY_ATTEMPT)
        for base in type(current).__mro__:
            if base in ERROR_CLASSES:
                return ERROR_CLASSES[base]
        current = current.__cause__
    return ErrorClass.RETRY_ATTEMPT
