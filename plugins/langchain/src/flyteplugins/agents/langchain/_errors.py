"""What each exception of the SDK means for the attempt."""

from __future__ import annotations

import langchain_core.exceptions as core_errors
import langgraph.errors as graph_errors
from langchain_core.tools.base import SchemaAnnotationError, ToolException
from langgraph.checkpoint.base import EmptyChannelError
from langgraph.checkpoint.serde.jsonplus import InvalidModuleError
from langgraph.prebuilt.tool_node import ToolInvocationError
from langgraph.pregel.remote import RemoteException
from langgraph.store.base import InvalidNamespaceError

from flyteplugins.agents.core import ErrorClass, error_chain
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.agents.middleware.pii import PIIDetectionError
from langchain.agents.middleware.tool_call_limit import ToolCallLimitExceededError
from langchain.agents.structured_output import (
    MultipleStructuredOutputsError,
    StructuredOutputError,
    StructuredOutputValidationError,
)

__all__ = ["CONTROL_FLOW", "ERROR_CLASSES", "classify"]

CONTROL_FLOW: tuple[type[BaseException], ...] = (graph_errors.GraphBubbleUp,)
"""By these the SDK steers its loop: interrupts, commands to a parent graph, the draining of a graph."""

ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    # the providers' clients retry these by themselves (max_retries), inside the leaf
    core_errors.ModelRateLimitError: ErrorClass.RETRY_IN_PLACE,
    core_errors.ModelAPIError: ErrorClass.RETRY_IN_PLACE,
    core_errors.ModelConnectionError: ErrorClass.RETRY_IN_PLACE,
    core_errors.ModelTimeoutError: ErrorClass.RETRY_IN_PLACE,
    # another attempt may go better
    core_errors.LangChainException: ErrorClass.RETRY_ATTEMPT,
    core_errors.ModelError: ErrorClass.RETRY_ATTEMPT,
    core_errors.TracerException: ErrorClass.RETRY_ATTEMPT,
    graph_errors.NodeCancelledError: ErrorClass.RETRY_ATTEMPT,
    graph_errors.NodeTimeoutError: ErrorClass.RETRY_ATTEMPT,
    graph_errors.GraphDrained: ErrorClass.RETRY_ATTEMPT,
    ToolException: ErrorClass.RETRY_ATTEMPT,
    RemoteException: ErrorClass.RETRY_ATTEMPT,
    # no attempt can go better: a wrong key or request, a limit, a refusal, a mistake in the graph, or an answer that is on record
    core_errors.ModelAuthenticationError: ErrorClass.FAIL_NOW,
    core_errors.ModelPermissionDeniedError: ErrorClass.FAIL_NOW,
    core_errors.ModelInvalidRequestError: ErrorClass.FAIL_NOW,
    core_errors.ModelNotFoundError: ErrorClass.FAIL_NOW,
    core_errors.ContextOverflowError: ErrorClass.FAIL_NOW,
    core_errors.ModelRefusalError: ErrorClass.FAIL_NOW,
    core_errors.OutputParserException: ErrorClass.FAIL_NOW,
    StructuredOutputError: ErrorClass.FAIL_NOW,
    StructuredOutputValidationError: ErrorClass.FAIL_NOW,
    MultipleStructuredOutputsError: ErrorClass.FAIL_NOW,
    ModelCallLimitExceededError: ErrorClass.FAIL_NOW,
    ToolCallLimitExceededError: ErrorClass.FAIL_NOW,
    PIIDetectionError: ErrorClass.FAIL_NOW,
    ToolInvocationError: ErrorClass.FAIL_NOW,
    SchemaAnnotationError: ErrorClass.FAIL_NOW,
    graph_errors.GraphBubbleUp: ErrorClass.FAIL_NOW,
    graph_errors.GraphInterrupt: ErrorClass.FAIL_NOW,
    graph_errors.NodeInterrupt: ErrorClass.FAIL_NOW,
    graph_errors.ParentCommand: ErrorClass.FAIL_NOW,
    graph_errors.GraphRecursionError: ErrorClass.FAIL_NOW,
    graph_errors.InvalidUpdateError: ErrorClass.FAIL_NOW,
    graph_errors.EmptyInputError: ErrorClass.FAIL_NOW,
    graph_errors.TaskNotFound: ErrorClass.FAIL_NOW,
    EmptyChannelError: ErrorClass.FAIL_NOW,
    InvalidModuleError: ErrorClass.FAIL_NOW,
    InvalidNamespaceError: ErrorClass.FAIL_NOW,
}
"""Every exception class of `langchain`, `langchain_core` and `langgraph` that an agent run can raise, and what it means. A
class not listed here means what its base means."""

if hasattr(graph_errors, "UnknownInterruptError"):  # the oldest langgraph that is taken has none
    ERROR_CLASSES[graph_errors.UnknownInterruptError] = ErrorClass.FAIL_NOW

_ATTEMPT_MAY_HELP = frozenset({408, 409, 425, 429})


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception.

    Args:
        error: What the agent run raised. Where it is none of the SDK's and tells no HTTP status, what it was raised from
            counts.
    """
    for current in error_chain(error):
        if getattr(current, "code", None) == "insufficient_quota":
            return ErrorClass.FAIL_NOW  # the account has no credit: waiting does not help
        for base in type(current).__mro__:
            if base in ERROR_CLASSES and base not in (core_errors.LangChainException, core_errors.ModelError):
                return ERROR_CLASSES[base]
        status = _http_status(current)
        if status is not None:
            if status in _ATTEMPT_MAY_HELP or status >= 500:
                return ErrorClass.RETRY_IN_PLACE
            return ErrorClass.FAIL_NOW
    return ErrorClass.RETRY_ATTEMPT


def _http_status(error: BaseException) -> int | None:
    """The status of a provider's own exception. Clients without one of the SDK's classes tell it like this."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "code"):
            status = getattr(holder, name, None)
            if isinstance(status, int) and 400 <= status < 600:
                return status
    return None
