"""What each exception of the SDK means for the attempt."""

from __future__ import annotations

import agents.exceptions as sdk

import openai
from flyteplugins.agents.core import ErrorClass
from openai import _exceptions as openai_errors

__all__ = ["ERROR_CLASSES", "classify"]

ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    # the client retries these by itself (max_retries), inside the leaf
    openai.RateLimitError: ErrorClass.RETRY_IN_PLACE,
    openai.InternalServerError: ErrorClass.RETRY_IN_PLACE,
    openai.ConflictError: ErrorClass.RETRY_IN_PLACE,
    openai.APIConnectionError: ErrorClass.RETRY_IN_PLACE,
    openai.APITimeoutError: ErrorClass.RETRY_IN_PLACE,
    # another attempt may go better
    openai.APIError: ErrorClass.RETRY_ATTEMPT,
    openai.APIStatusError: ErrorClass.RETRY_ATTEMPT,
    openai.APIResponseValidationError: ErrorClass.RETRY_ATTEMPT,
    openai.WebSocketConnectionClosedError: ErrorClass.RETRY_ATTEMPT,
    openai.WebSocketQueueFullError: ErrorClass.RETRY_ATTEMPT,
    sdk.ModelTimeoutError: ErrorClass.RETRY_ATTEMPT,
    sdk.ToolTimeoutError: ErrorClass.RETRY_ATTEMPT,
    sdk.MCPToolCancellationError: ErrorClass.RETRY_ATTEMPT,
    # no attempt can go better: a wrong key or request, a limit, a refusal, or an answer that is on record
    openai.OpenAIError: ErrorClass.FAIL_NOW,  # by itself: no key is configured
    openai.AuthenticationError: ErrorClass.FAIL_NOW,
    openai.OAuthError: ErrorClass.FAIL_NOW,
    openai_errors.SubjectTokenProviderError: ErrorClass.FAIL_NOW,
    openai.PermissionDeniedError: ErrorClass.FAIL_NOW,
    openai.BadRequestError: ErrorClass.FAIL_NOW,
    openai.NotFoundError: ErrorClass.FAIL_NOW,
    openai.UnprocessableEntityError: ErrorClass.FAIL_NOW,
    openai.LengthFinishReasonError: ErrorClass.FAIL_NOW,
    openai.ContentFilterFinishReasonError: ErrorClass.FAIL_NOW,
    openai.InvalidWebhookSignatureError: ErrorClass.FAIL_NOW,
    sdk.AgentsException: ErrorClass.FAIL_NOW,
    sdk.MaxTurnsExceeded: ErrorClass.FAIL_NOW,
    sdk.ModelBehaviorError: ErrorClass.FAIL_NOW,
    sdk.ModelRefusalError: ErrorClass.FAIL_NOW,
    sdk.UserError: ErrorClass.FAIL_NOW,
    sdk.InputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
    sdk.OutputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
    sdk.ToolInputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
    sdk.ToolOutputGuardrailTripwireTriggered: ErrorClass.FAIL_NOW,
}
"""Every exception class of `openai` and `agents`, and what it means. A class not listed here means what its base means."""


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception.

    Args:
        error: What the agent run raised. Where it is none of the SDK's, or only says which tool raised, what it was raised
            from counts.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, openai.RateLimitError) and current.code == "insufficient_quota":
            return ErrorClass.FAIL_NOW  # the account has no credit: waiting does not help
        if not (isinstance(current, sdk.UserError) and current.__cause__ is not None):
            for base in type(current).__mro__:
                if base in ERROR_CLASSES:
                    return ERROR_CLASSES[base]
        current = current.__cause__
    return ErrorClass.RETRY_ATTEMPT
