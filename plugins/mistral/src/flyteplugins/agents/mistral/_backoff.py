"""Asking again, in place, what the provider did not answer: rate limits, server errors, lost connections.

The SDK retries only where it is told to, does not take a dropped connection for a lost one, and would send an append again that
was applied. So requests are sent with its retries off, and repeated here by its own backoff, which looks before it repeats.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import httpx2
from mistralai.client import errors
from mistralai.client.types import UNSET
from mistralai.client.utils import BackoffStrategy, RetryConfig
from mistralai.client.utils.retries import PermanentError, TemporaryError, retry_with_backoff_async

from flyteplugins.agents.core import ErrorClass

from ._errors import classify

logger = logging.getLogger("flyteplugins.agents")

__all__ = ["DEFAULT_RETRIES", "NO_RETRIES", "Unsettled", "ask_again"]

DEFAULT_RETRIES = RetryConfig(
    "backoff", BackoffStrategy(500, 30_000, 1.5, 120_000, jitter_ms=250), retry_connection_errors=True
)
"""For two minutes, from half a second on. A `Retry-After` of the provider's counts more."""

NO_RETRIES = RetryConfig("none", BackoffStrategy(0, 0, 1, 0), retry_connection_errors=False)

T = TypeVar("T")


class Unsettled(Exception):
    """It is not known yet what became of a request that was sent."""


async def ask_again(ask: Callable[[], Awaitable[T]], retries: RetryConfig | object | None) -> T:
    """Ask until there is an answer, or an error that asking again does not change.

    Args:
        ask: Asks once.
        retries: The caller's choice; without one, `DEFAULT_RETRIES`.

    Raises:
        Exception: What the last request raised.
    """
    config = retries if isinstance(retries, RetryConfig) else DEFAULT_RETRIES
    if retries is not None and retries is not UNSET and not isinstance(retries, RetryConfig):
        raise TypeError(f"retries is a {type(retries).__qualname__}; give a mistralai.client.utils.RetryConfig.")
    if config.strategy != "backoff":
        return await ask()
    last: list[Exception] = []
    repeats = 0

    async def once() -> T:
        nonlocal repeats
        if last:
            repeats += 1
            logger.warning("Mistral is asked again, for the %s time: %s", _ordinal(repeats), _reason(last[0]))
        try:
            return await ask()
        except Unsettled as error:
            last[:] = [error]
            raise
        except Exception as error:
            last[:] = [error]
            if not _worth_repeating(error, config):
                raise PermanentError(error) from error
            if isinstance(error, errors.MistralError):
                raise TemporaryError(error.raw_response) from error
            raise

    backoff = config.backoff
    outcome = await retry_with_backoff_async(  # type: ignore[no-untyped-call]
        once,
        backoff.initial_interval,
        backoff.max_interval,
        backoff.exponent,
        backoff.max_elapsed_time,
        backoff.jitter_ms,
    )
    if isinstance(outcome, httpx2.Response):  # the time is up: the SDK returns the response of the last failure
        raise last[0]
    return cast(T, outcome)


def _worth_repeating(error: Exception, config: RetryConfig) -> bool:
    if isinstance(error, errors.MistralError):
        if config.status_codes_override:
            return any(_matches(code, error.status_code) for code in config.status_codes_override)
        return classify(error) is ErrorClass.RETRY_IN_PLACE
    return config.retry_connection_errors and isinstance(error, (httpx2.TransportError, errors.NoResponseError))


def _reason(error: Exception) -> str:
    if isinstance(error, errors.MistralError):
        return f"it answered with status {error.status_code}."
    return f"{type(error).__name__}: {error}"


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def _matches(code: str, status: int) -> bool:
    return str(status) == code or (code.upper().endswith("XX") and code[0] == str(status)[0])
