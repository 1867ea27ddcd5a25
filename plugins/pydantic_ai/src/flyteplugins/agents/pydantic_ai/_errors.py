"""What each exception of the SDK means for the attempt, and how one that was passed over is kept."""

from __future__ import annotations

from typing import Any, cast

import pydantic_ai.exceptions as sdk
from flyteplugins.agents.core import JSON, DefaultErrorCodec, ErrorClass, UnserializableError, jsonable

__all__ = ["CONTROL_FLOW", "ERROR_CLASSES", "OUTCOMES", "PydanticAIErrorCodec", "classify"]

CONTROL_FLOW: tuple[type[Exception], ...] = (
    sdk.ModelRetry,
    sdk.ToolFailed,
    sdk.ApprovalRequired,
    sdk.CallDeferred,
    sdk.SkipToolExecution,
    sdk.SkipToolValidation,
    sdk.RunCancelled,
)
"""By these a tool steers the agent: they are never told to the model as a failure of the tool."""

OUTCOMES: tuple[type[Exception], ...] = (sdk.ModelRetry, sdk.ToolFailed, sdk.ApprovalRequired, sdk.CallDeferred)
"""Those of them that answer the call, so that it is not made again on a resume."""

ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    # the provider's client retries these by itself, inside the leaf
    sdk.ModelRateLimitError: ErrorClass.RETRY_IN_PLACE,
    sdk.ModelUnavailableError: ErrorClass.RETRY_IN_PLACE,
    sdk.ModelOverloadedError: ErrorClass.RETRY_IN_PLACE,
    sdk.ModelServerError: ErrorClass.RETRY_IN_PLACE,
    sdk.ModelConnectionError: ErrorClass.RETRY_IN_PLACE,
    sdk.ModelTimeoutError: ErrorClass.RETRY_IN_PLACE,
    # another attempt may go better
    sdk.AgentRunError: ErrorClass.RETRY_ATTEMPT,
    sdk.ModelAPIError: ErrorClass.RETRY_ATTEMPT,
    sdk.ModelHTTPError: ErrorClass.RETRY_ATTEMPT,  # by its status where it has no category
    sdk.ModelRequestTimeout: ErrorClass.RETRY_ATTEMPT,
    sdk.ConcurrencyLimitExceeded: ErrorClass.RETRY_ATTEMPT,
    sdk.SuspendedResponseExpired: ErrorClass.RETRY_ATTEMPT,
    sdk.RunTimedOut: ErrorClass.RETRY_ATTEMPT,
    sdk.FallbackExceptionGroup: ErrorClass.RETRY_ATTEMPT,
    # no attempt can go better: a wrong key or request, a limit, or an answer that is on record
    sdk.ModelRequestRejectedError: ErrorClass.FAIL_NOW,
    sdk.ModelAuthenticationError: ErrorClass.FAIL_NOW,
    sdk.ModelNotFoundError: ErrorClass.FAIL_NOW,
    sdk.ModelContextWindowExceededError: ErrorClass.FAIL_NOW,
    sdk.ModelQuotaExceededError: ErrorClass.FAIL_NOW,
    sdk.UserError: ErrorClass.FAIL_NOW,
    sdk.UndrainedPendingMessagesError: ErrorClass.FAIL_NOW,
    sdk.UsageLimitExceeded: ErrorClass.FAIL_NOW,
    sdk.UnexpectedModelBehavior: ErrorClass.FAIL_NOW,
    sdk.ContentFilterError: ErrorClass.FAIL_NOW,
    sdk.OutputTokenLimitExceeded: ErrorClass.FAIL_NOW,
    sdk.IncompleteToolCall: ErrorClass.FAIL_NOW,
    sdk.RunCancelled: ErrorClass.FAIL_NOW,
    # steering that got out of the agent's loop: the program raised it where the SDK does not look for it
    sdk.ModelRetry: ErrorClass.FAIL_NOW,
    sdk.ToolFailed: ErrorClass.FAIL_NOW,
    sdk.ApprovalRequired: ErrorClass.FAIL_NOW,
    sdk.CallDeferred: ErrorClass.FAIL_NOW,
    sdk.SkipModelRequest: ErrorClass.FAIL_NOW,
    sdk.RetryModelRequest: ErrorClass.FAIL_NOW,
    sdk.SkipToolValidation: ErrorClass.FAIL_NOW,
    sdk.SkipToolExecution: ErrorClass.FAIL_NOW,
    sdk.ToolRetryError: ErrorClass.FAIL_NOW,
    sdk.ToolFailedError: ErrorClass.FAIL_NOW,
}
"""Every public exception class of `pydantic_ai.exceptions`, and what it means. A class not listed means what its base means."""

_RETRIED_STATUS = frozenset({408, 409, 425, 429})


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception.

    Args:
        error: What the agent run raised. Where it is none of the SDK's, what it was raised from counts.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, sdk.FallbackExceptionGroup):
            classes = {classify(member) for member in current.exceptions}
            return ErrorClass.FAIL_NOW if classes == {ErrorClass.FAIL_NOW} else ErrorClass.RETRY_ATTEMPT
        if isinstance(current, sdk.ModelHTTPError) and getattr(type(current), "category", None) is None:
            again = current.status_code >= 500 or current.status_code in _RETRIED_STATUS
            return ErrorClass.RETRY_IN_PLACE if again else ErrorClass.FAIL_NOW
        category = getattr(type(current), "category", type(current))
        for base in category.__mro__:
            if base in ERROR_CLASSES:
                return ERROR_CLASSES[base]
        current = current.__cause__
    return ErrorClass.RETRY_ATTEMPT


class PydanticAIErrorCodec(DefaultErrorCodec):
    """Failures; an HTTP error of a category comes back as one of the same category, status, headers and body."""

    def encode(self, error: Exception) -> JSON:
        """Turn an exception into JSON values. Cookies among the response's headers are left out."""
        if not isinstance(error, sdk.ModelHTTPError) or type(error).__module__ != sdk.__name__:
            return super().encode(error)
        category = getattr(type(error), "category", None)
        try:
            body = jsonable(error.body)
        except UnserializableError:
            body = str(error.body)
        headers = error.headers
        return {
            "http": category.__name__ if category is not None else None,
            "status_code": error.status_code,
            "model_name": error.model_name,
            "body": body,
            "headers": None
            if headers is None
            else {name: value for name, value in headers.items() if name != "set-cookie"},
            "suggested_model_id": error.suggested_model_id,
            "hint": error.hint,
            "provider_error_code": error.provider_error_code,
            "provider_error_type": error.provider_error_type,
            "retry_after": error.retry_after,
            "in_stream": error.in_stream,
        }

    def decode(self, payload: JSON) -> Exception:
        """Build an equal exception."""
        kept = cast("dict[str, Any]", payload)
        if "http" not in kept:
            return super().decode(payload)
        values = {name: value for name, value in kept.items() if name != "http"}
        return sdk.ModelHTTPError.for_category(getattr(sdk, kept["http"]) if kept["http"] else None, **values)
