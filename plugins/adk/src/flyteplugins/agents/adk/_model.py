"""Turns: what a model of the SDK is asked, as recorded leaves.

A model stays the very object that the caller gave. What is recorded is the call of its `generate_content_async`, by whoever makes
it: see `_seams`. The SDK's fallback model only asks others, so each of those that it asks has a turn of its own; a wrapper of the
caller's is one turn, whatever it asks.
"""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.adk.flows.llm_flows.core._finalizer import has_meaningful_content
from google.adk.models import BaseLlm
from google.adk.models._fallback_model import FallbackModel
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from opentelemetry import trace

from flyteplugins.agents.core import JSON, AgentRun, TurnFacts, Usage, current_run

from ._codec import ResponsesCodec
from ._model_error import ModelResponseError
from ._request import model_identity, request_fields
from ._telemetry import mark_replayed

__all__ = ["RunModels", "ask_recorded", "response_text", "use_models"]

NO_CONTENT = "MODEL_RETURNED_NO_CONTENT"
"""The SDK's code for an answer with nothing in it."""

_AGENT_LABEL = "adk_agent_name"
"""The label by which the SDK says in a request which agent asks."""

_ASKING: contextvars.ContextVar[bool] = contextvars.ContextVar("flyteplugins.agents.adk.asking", default=False)


@dataclass
class RunModels:
    """What an agent run knows of its models.

    Attributes:
        errors: The responses so far that were errors.
    """

    errors: list[ModelResponseError] = field(default_factory=list)


_IDENTITIES: dict[int, tuple[weakref.ref[BaseLlm], JSON]] = {}


def _identity(model: BaseLlm) -> JSON:
    """What a model was when it was first asked: some change as they are asked, and a retry may have the same object."""
    known = _IDENTITIES.get(id(model))
    if known is None or known[0]() is not model:
        number = id(model)
        known = (weakref.ref(model, lambda _: _IDENTITIES.pop(number, None)), model_identity(model))
        _IDENTITIES[number] = known
    return known[1]


_MODELS: contextvars.ContextVar[RunModels | None] = contextvars.ContextVar(
    "flyteplugins.agents.adk.models", default=None
)


@contextlib.contextmanager
def use_models(models: RunModels) -> Any:
    """Have the models that are asked in the body be those of an agent run."""
    token = _MODELS.set(models)
    try:
        yield
    finally:
        _MODELS.reset(token)


def ask_recorded(
    model: BaseLlm,
    ask: Callable[..., AsyncGenerator[LlmResponse, None]],
    request: LlmRequest,
    stream: bool = False,
) -> AsyncGenerator[LlmResponse, None]:
    """Ask a model, or answer from the record.

    Args:
        model: The model.
        ask: The model's own `generate_content_async`.
        request: What it is asked.
        stream: Whether the SDK wants the pieces of the answer.

    Returns:
        The responses. An error response is given to the SDK as the model gave it; it is no answer, so it is not recorded as one.
    """
    run, models = current_run(), _MODELS.get()
    if run is None or models is None or _ASKING.get() or isinstance(model, FallbackModel):
        return ask(request, stream=stream)
    return _ask(run, models, model, ask, request, stream)


async def _ask(
    run: AgentRun,
    models: RunModels,
    model: BaseLlm,
    ask: Callable[..., AsyncGenerator[LlmResponse, None]],
    request: LlmRequest,
    stream: bool,
) -> AsyncGenerator[LlmResponse, None]:
    span = trace.get_current_span()
    fields = request_fields(model, _identity(model), request)
    labels = request.config.labels or {}
    about: dict[str, Any] = {
        "codec": ResponsesCodec(),
        "facts": _facts,
        "model": str(fields["model"]),
        "agent": labels.get(_AGENT_LABEL, ""),
    }
    try:
        if stream:
            opened = marked = False

            def open_stream() -> AsyncIterator[LlmResponse]:
                nonlocal opened
                opened = True
                return _responses(ask, request, stream=True)

            pieces = run.stream_turn(
                fields,
                open_stream,
                delta=_Deltas(),
                is_last=lambda piece: not piece.partial,
                **about,
            )
            # The SDK calls the tools while it holds the answer, so that is handed on when the turn is over.
            held: list[LlmResponse] = []
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    if not opened and not marked:  # the SDK ends its span with the first piece
                        marked = True
                        mark_replayed(span)
                    if piece.partial and not held:
                        yield piece
                    else:
                        held.append(piece)
            for piece in held:
                yield piece
            return

        async def whole() -> list[LlmResponse]:
            return [response async for response in _responses(ask, request, stream=False)]

        recorded = await run.turn(fields, whole, **about)
        if recorded.replayed:
            mark_replayed(span)
    except ModelResponseError as error:
        models.errors.append(error)
        for response in ResponsesCodec().decode(error.responses):
            yield response
        return
    for response in recorded.value:
        if not response.partial:  # the turn may have been recorded in pieces
            yield response


async def _responses(
    ask: Callable[..., AsyncGenerator[LlmResponse, None]], request: LlmRequest, *, stream: bool
) -> AsyncIterator[LlmResponse]:
    """What the model says, up to an error.

    Raises:
        ModelResponseError: A response is an error, or says nothing.
    """
    token = _ASKING.set(True)
    try:
        last: LlmResponse | None = None
        answered = False
        async with contextlib.aclosing(ask(request, stream=stream)) as responses:
            async for response in responses:
                if response.error_code and not response.partial:
                    raise _error(response, str(response.error_code), response.error_message or "")
                if not response.partial:
                    last = response
                    answered = answered or has_meaningful_content(response)
                yield response
        if not answered:
            nothing = last if last is not None else LlmResponse()
            stopped = nothing.finish_reason not in (None, types.FinishReason.STOP)
            code = str(nothing.finish_reason.value) if nothing.finish_reason and stopped else NO_CONTENT
            raise _error(nothing, code, "it ended without saying anything")
    finally:
        _ASKING.reset(token)


def _error(response: LlmResponse, code: str, message: str) -> ModelResponseError:
    code = getattr(response.error_code, "value", None) or code
    shown = response.model_copy(update={"error_code": code, "error_message": response.error_message or message})
    return ModelResponseError(code, message, [shown.model_dump(mode="json", exclude_none=True)])


class _Deltas:
    """The text that each piece of one answer adds."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, piece: LlmResponse) -> str:
        text = response_text([piece])
        if piece.partial:
            self._said = self._said or bool(text)
            return text
        return "" if self._said else text  # the whole answer, of which there were no pieces


def response_text(responses: Sequence[LlmResponse]) -> str:
    """The text of responses, without thoughts.

    Args:
        responses: Responses or events.
    """
    return "".join(
        part.text
        for response in responses
        for part in (response.content.parts if response.content else None) or ()
        if part.text and not part.thought
    )


def _facts(responses: list[LlmResponse]) -> TurnFacts:
    whole = [response for response in responses if not response.partial]
    calls = [call.name or "" for response in whole for call in response.get_function_calls()]
    contents = [response.content for response in whole if response.content]
    return TurnFacts(
        text=response_text(whole),
        tool_calls=tuple(calls),
        usage=_usage(responses),
        messages=[content.model_dump(mode="json", exclude_none=True) for content in contents],
    )


def _usage(responses: list[LlmResponse]) -> Usage:
    for response in reversed(responses):
        if (found := response.usage_metadata) is not None:
            thoughts = found.thoughts_token_count or 0
            return Usage(
                requests=1,
                input_tokens=(found.prompt_token_count or 0) + (found.tool_use_prompt_token_count or 0),
                output_tokens=(found.candidates_token_count or 0) + thoughts,
                cached_tokens=found.cached_content_token_count or 0,
                reasoning_tokens=thoughts,
            )
    return Usage(requests=1)
