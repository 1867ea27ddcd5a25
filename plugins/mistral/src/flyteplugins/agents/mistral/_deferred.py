"""Answers of the caller's to calls that an earlier run of the SDK's left waiting for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from mistralai.extra.exceptions import (
    DeferralReason,
    DeferredToolCallConfirmation,
    DeferredToolCallRejection,
    DeferredToolCallResponse,
)

from flyteplugins.agents.core import JSON

from ._entries import Entry, plain

__all__ = ["answer_values", "confirmed_calls", "split_answers"]


def split_answers(input: object) -> tuple[object, list[DeferredToolCallResponse]]:
    """Take answers out of what `run_agent` was given as the user's words.

    Args:
        input: Text, or a list.

    Returns:
        The rest, and the answers: the SDK's `DeferredToolCallConfirmation`s and `DeferredToolCallRejection`s.
    """
    if not isinstance(input, (list, tuple)):
        return input, []
    kinds = (DeferredToolCallConfirmation, DeferredToolCallRejection)
    answers = [entry for entry in input if isinstance(entry, kinds)]
    return ([entry for entry in input if not isinstance(entry, kinds)] if answers else input), answers


def answer_values(answer: DeferredToolCallResponse) -> Entry:
    """An answer as JSON values, for the identity of the run that is given it."""
    reason = answer.deferral_reason.value if answer.deferral_reason is not None else None
    values: Entry = {"type": "deferred.answer", "tool_call_id": answer.tool_call_id, "reason": reason}
    if isinstance(answer, DeferredToolCallRejection):
        return values | {"rejected": answer.message}
    return values | {"confirmed": plain(answer.function_call), "override_args": cast(JSON, answer.override_args)}


def confirmed_calls(answers: Sequence[DeferredToolCallResponse]) -> frozenset[str]:
    """The ids of the calls that the caller confirmed, and that run here: nobody else is asked about them."""
    return frozenset(
        answer.tool_call_id
        for answer in answers
        if isinstance(answer, DeferredToolCallConfirmation)
        and answer.deferral_reason is not DeferralReason.SERVER_SIDE_CONFIRMATION_REQUIRED
    )
