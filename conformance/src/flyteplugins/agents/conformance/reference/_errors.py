"""What each exception of the SDK means for the attempt."""

from __future__ import annotations

from flyteplugins.agents.core import ErrorClass

from . import sdk

__all__ = ["ERROR_CLASSES", "classify"]

ERROR_CLASSES: dict[type[BaseException], ErrorClass] = {
    sdk.ParrotError: ErrorClass.RETRY_ATTEMPT,
    sdk.ProviderError: ErrorClass.RETRY_IN_PLACE,
    sdk.AuthenticationError: ErrorClass.FAIL_NOW,
    sdk.BadRequestError: ErrorClass.FAIL_NOW,
    sdk.TooManyTurnsError: ErrorClass.FAIL_NOW,
}


def classify(error: BaseException) -> ErrorClass:
    """Say what is to be done about an exception."""
    return ERROR_CLASSES.get(type(error), ErrorClass.RETRY_ATTEMPT)
