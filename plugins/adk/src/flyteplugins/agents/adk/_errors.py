"""What each exception of the SDK means for the attempt."""

from __future__ import annotations

import google.genai.errors as genai
import httpx
import pydantic
from google.adk import errors
from google.adk.agents.invocation_context import LlmCallsLimitExceededError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.not_found_error import NotFoundError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.errors.tool_execution_error import ToolExecutionError
from google.adk.sessions.state import StateSchemaError
from google.adk.workflow import _errors as workflow

from flyteplugins.agents.core import ErrorClass

from ._model_error import ModelResponseError

__all__ = ["CODE_CLASSES", "ERROR_CLASSES", "NAMED_CLASSES", "STATUS_CLASSES", "classify"]

ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    # another attempt may go better; of these, the status or the code says more
    genai.APIError: ErrorClass.RETRY_ATTEMPT,
    genai.ClientError: ErrorClass.RETRY_ATTEMPT,
    genai.ServerError: ErrorClass.RETRY_ATTEMPT,
    genai.UnknownApiResponseError: ErrorClass.RETRY_ATTEMPT,
    genai.ContinuationInterruptedError: ErrorClass.RETRY_ATTEMPT,
    httpx.HTTPError: ErrorClass.RETRY_ATTEMPT,
    ModelResponseError: ErrorClass.RETRY_ATTEMPT,
    ToolExecutionError: ErrorClass.RETRY_ATTEMPT,
    errors.StaleSessionError: ErrorClass.RETRY_ATTEMPT,
    workflow.NodeTimeoutError: ErrorClass.RETRY_ATTEMPT,
    workflow.DynamicNodeFailError: ErrorClass.RETRY_ATTEMPT,
    # no attempt can go better: a wrong agent or request, or an answer that is on record
    genai.UnknownFunctionCallArgumentError: ErrorClass.FAIL_NOW,
    genai.UnsupportedFunctionError: ErrorClass.FAIL_NOW,
    genai.FunctionInvocationError: ErrorClass.FAIL_NOW,
    LlmCallsLimitExceededError: ErrorClass.FAIL_NOW,
    AlreadyExistsError: ErrorClass.FAIL_NOW,
    InputValidationError: ErrorClass.FAIL_NOW,
    NotFoundError: ErrorClass.FAIL_NOW,
    SessionNotFoundError: ErrorClass.FAIL_NOW,
    errors.InvocationNotFoundError: ErrorClass.FAIL_NOW,
    StateSchemaError: ErrorClass.FAIL_NOW,
    workflow.GraphValidationError: ErrorClass.FAIL_NOW,
    workflow.WorkflowConfigurationError: ErrorClass.FAIL_NOW,
    workflow.WorkflowDataError: ErrorClass.FAIL_NOW,
    workflow.WorkflowInvariantError: ErrorClass.FAIL_NOW,
    pydantic.ValidationError: ErrorClass.FAIL_NOW,
    NotImplementedError: ErrorClass.FAIL_NOW,
}
"""Every exception class that an agent run may meet, and what it means. A class not listed means what its base means."""

_COMPAT = "google.genai._gaos.lib.compat_errors"
_INTERACTIONS = "google.genai._gaos.errors"
_CREDENTIALS = "google.adk.tools.openapi_tool.auth.credential_exchangers.base_credential_exchanger"

NAMED_CLASSES: dict[str, ErrorClass] = {
    **dict.fromkeys(
        (
            # the service of interactions, which `Gemini(use_interactions_api=True)` asks; of these, the status says more
            f"{_INTERACTIONS}.genaierror.GenAiError",
            f"{_INTERACTIONS}.genaidefaulterror.GenAiDefaultError",
            f"{_INTERACTIONS}.responsevalidationerror.ResponseValidationError",
            f"{_INTERACTIONS}.no_response_error.NoResponseError",
            f"{_INTERACTIONS}.cancelinteractionbyid.CancelInteractionByIDClientError",
            f"{_INTERACTIONS}.cancelinteractionbyid.CancelInteractionByIDServerError",
            f"{_INTERACTIONS}.createinteraction.CreateInteractionClientError",
            f"{_INTERACTIONS}.createinteraction.CreateInteractionServerError",
            f"{_INTERACTIONS}.deleteinteraction.DeleteInteractionClientError",
            f"{_INTERACTIONS}.deleteinteraction.DeleteInteractionServerError",
            f"{_INTERACTIONS}.getinteractionbyid.GetInteractionByIDClientError",
            f"{_INTERACTIONS}.getinteractionbyid.GetInteractionByIDServerError",
            f"{_COMPAT}.GeminiNextGenAPIClientError",
            f"{_COMPAT}.APIError",
            f"{_COMPAT}.APIStatusError",
            f"{_COMPAT}.APIResponseValidationError",
            f"{_COMPAT}.APIConnectionError",
            f"{_COMPAT}.APITimeoutError",
            f"{_COMPAT}.ConflictError",
            f"{_COMPAT}.RateLimitError",
            f"{_COMPAT}.InternalServerError",
            "google.genai._gaos.utils.retries.TemporaryError",
            "google.genai._gaos.utils.retries.PermanentError",
            "google.genai._interactions_continuation.ContinuationTimeoutError",
            # a credential that could not be renewed now, a model that a tool asks
            "google.adk.auth.refresher.base_credential_refresher.CredentialRefresherError",
            "google.adk.tools.model_consult._advisor.AdvisorError",
        ),
        ErrorClass.RETRY_ATTEMPT,
    ),
    **dict.fromkeys(
        (
            # a wrong request or key, a credential that is not there, a session that somebody changed
            f"{_COMPAT}.BadRequestError",
            f"{_COMPAT}.AuthenticationError",
            f"{_COMPAT}.PermissionDeniedError",
            f"{_COMPAT}.NotFoundError",
            f"{_COMPAT}.UnprocessableEntityError",
            "google.genai._api_client.EphemeralTokenAPIKeyError",
            "google.adk.auth.exchanger.base_credential_exchanger.CredentialExchangeError",
            f"{_CREDENTIALS}.AuthCredentialMissingError",
            "google.adk.plugins._tool_call_integrity_plugin.ToolCallIntegrityError",
        ),
        ErrorClass.FAIL_NOW,
    ),
}
"""The same of classes in modules that an agent run need not load, by module and name."""

STATUS_CLASSES: dict[int, ErrorClass] = {
    **dict.fromkeys((400, 401, 402, 403, 404, 405, 413, 422), ErrorClass.FAIL_NOW),
    **dict.fromkeys((408, 409, 425, 429), ErrorClass.RETRY_ATTEMPT),
}
"""What the status of a provider's error means, whichever client raised it. Not listed: another attempt."""

CODE_CLASSES: dict[str, ErrorClass] = dict.fromkeys(
    (
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "MAX_TOKENS",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "JAILBREAK",
        "MODEL_ARMOR",
    ),
    ErrorClass.FAIL_NOW,
)
"""What the code of a response without an answer means. Not listed: another attempt."""


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception.

    Args:
        error: What the agent run raised. Where nothing is known of it, what it was raised from counts.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, ModelResponseError):
            return CODE_CLASSES.get(current.code, ErrorClass.RETRY_ATTEMPT)
        status = _status(current)
        if status is not None:
            return STATUS_CLASSES.get(status, ErrorClass.RETRY_ATTEMPT)
        for base in type(current).__mro__:
            found = ERROR_CLASSES.get(base) or NAMED_CLASSES.get(f"{base.__module__}.{base.__qualname__}")
            if found is not None:
                return found
        current = current.__cause__
    return ErrorClass.RETRY_ATTEMPT


def _status(error: BaseException) -> int | None:
    """The HTTP status of a provider's error: google-genai calls it `code`, the clients of others `status_code`."""
    if isinstance(error, genai.APIError):
        return error.code
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and not isinstance(status, bool) else None
