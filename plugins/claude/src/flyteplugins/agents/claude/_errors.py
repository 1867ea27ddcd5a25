"""What each exception means for the attempt, and those that are made of what Claude Code reports."""

from __future__ import annotations

import claude_agent_sdk as sdk
import httpx2
import pydantic
from claude_agent_sdk import ResultMessage
from claude_agent_sdk._errors import MessageParseError

from flyteplugins.agents.core import AgentError, ErrorClass

__all__ = [
    "ERROR_CLASSES",
    "STATUS_CLASSES",
    "AgentLimitError",
    "IncompleteAnswerError",
    "UpstreamError",
    "classify",
    "result_error",
]


class UpstreamError(Exception):
    """The model's API did not answer a request.

    Attributes:
        status: The HTTP status; 0 where there was no response.
        headers: Response headers that say what to do about it.
        body: The response's text.
    """

    def __init__(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.body = body
        self.headers = headers or {}
        what = f"answered {status}" if status else "did not answer"
        super().__init__(f"The model's API {what}: {body[:500]}")


class IncompleteAnswerError(Exception):
    """The stream of an answer ended before the answer did.

    Attributes:
        body: The error that the API put into the stream; empty where it just ended.
    """

    def __init__(self, body: str = "") -> None:
        self.body = body
        super().__init__(f"The model's answer broke off{': ' + body[:500] if body else ' in mid-stream'}.")


class AgentLimitError(AgentError):
    """The agent reached a limit of `ClaudeAgentOptions`: `max_turns`, `max_budget_usd`, or its tries at structured output.

    Attributes:
        limit: Which one, in Claude Code's words.
    """

    def __init__(self, message: str, limit: str = "") -> None:
        self.limit = limit
        super().__init__(message)


ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    # repeated in place, inside the leaf
    httpx2.TransportError: ErrorClass.RETRY_IN_PLACE,
    # another attempt may go better; of the first, the status says more
    UpstreamError: ErrorClass.RETRY_ATTEMPT,
    IncompleteAnswerError: ErrorClass.RETRY_ATTEMPT,
    httpx2.HTTPError: ErrorClass.RETRY_ATTEMPT,
    sdk.ClaudeSDKError: ErrorClass.RETRY_ATTEMPT,
    sdk.CLIConnectionError: ErrorClass.RETRY_ATTEMPT,
    sdk.ProcessError: ErrorClass.RETRY_ATTEMPT,
    sdk.ResultError: ErrorClass.RETRY_ATTEMPT,
    # no attempt can go better: no program, output that this SDK cannot read, an answer that is on record
    sdk.CLINotFoundError: ErrorClass.FAIL_NOW,
    sdk.CLIJSONDecodeError: ErrorClass.FAIL_NOW,
    MessageParseError: ErrorClass.FAIL_NOW,
    pydantic.ValidationError: ErrorClass.FAIL_NOW,
    NotImplementedError: ErrorClass.FAIL_NOW,
}
"""Every exception class that an agent run may meet, and what it means. A class not listed means what its base means."""

STATUS_CLASSES: dict[int, ErrorClass] = {
    **dict.fromkeys((400, 401, 402, 403, 404, 405, 413, 422), ErrorClass.FAIL_NOW),
    **dict.fromkeys((408, 409, 425, 429), ErrorClass.RETRY_IN_PLACE),
}
"""What the status of an API error means. Not listed: below 500 the attempt is retried, from 500 on the request is, in place."""

_LIMITS = {
    "error_max_turns": "It reached max_turns. Raise it, or have the agent do less.",
    "error_max_budget_usd": "It reached max_budget_usd. Raise it, or have the agent do less.",
    "error_max_structured_output_retries": "Its answers did not fit the output's schema.",
}


def status_class(status: int) -> ErrorClass:
    """Say what an HTTP status means.

    Args:
        status: The status; 0 for no response.
    """
    repeated = status == 0 or status >= 500
    return STATUS_CLASSES.get(status, ErrorClass.RETRY_IN_PLACE if repeated else ErrorClass.RETRY_ATTEMPT)


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception.

    Args:
        error: What the agent run raised. Where it is none of the SDK's, what it was raised from counts.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, UpstreamError):
            return status_class(current.status)
        if isinstance(current, sdk.ResultError):
            if current.api_error_status is not None:
                return status_class(current.api_error_status)
            if isinstance(current.__cause__, UpstreamError):
                return status_class(current.__cause__.status)
        for base in type(current).__mro__:
            if base in ERROR_CLASSES:
                return ERROR_CLASSES[base]
        current = current.__cause__
    return ErrorClass.RETRY_ATTEMPT


def result_error(result: ResultMessage) -> Exception | None:
    """Make an exception of a result that is none; `None` for one that is.

    Args:
        result: What Claude Code ended with.
    """
    if result.deferred_tool_use is not None:
        return NotImplementedError(
            f"A hook deferred the call of {result.deferred_tool_use.name}. Deferred calls are not supported yet: the run "
            "could not be gone on with, and the call would be lost. Have the hook allow or deny it."
        )
    if result.subtype in _LIMITS:
        said = "; ".join(result.errors or ())
        return AgentLimitError(
            f"The agent ended without an answer ({result.subtype}). {_LIMITS[result.subtype]}{' ' + said if said else ''}",
            result.subtype,
        )
    if not result.is_error:
        return None
    said = "; ".join(result.errors or ()) or result.result or result.subtype
    values = {
        "subtype": result.subtype,
        "errors": result.errors,
        "result": result.result,
        "api_error_status": result.api_error_status,
        "terminal_reason": result.terminal_reason,
        "session_id": result.session_id,
    }
    return sdk.ResultError(f"Claude Code ended with an error: {said}", values)
