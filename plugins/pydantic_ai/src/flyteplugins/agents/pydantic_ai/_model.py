"""Model operations as leaves: each request of a model is a turn."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from flyteplugins.agents.core import AgentRun, Codec, Recorded, TextDelta, TurnFacts, Usage, current_run
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import RunContext

from ._codec import dump_messages
from ._request import model_name

__all__ = ["LISTENED", "PIECES", "can_stream", "record_turn", "response_facts", "tell_deltas"]

LISTENED: ContextVar[bool] = ContextVar("flyteplugins.agents.pydantic_ai.listened", default=False)
"""Whether the agent run has an `on_event`, for which turns are streamed where the model can do that."""

PIECES: ContextVar[list[str] | None] = ContextVar("flyteplugins.agents.pydantic_ai.pieces", default=None)
"""The pieces of text of the turn that is being made, for its record."""


def can_stream(model: Model) -> bool:
    """Whether a model may be asked to stream a request that the SDK did not want streamed.

    A fallback model may not: the SDK falls back from a request that fails in the middle, and from a stream only while it opens.
    """
    if isinstance(model, FallbackModel):
        return False
    if isinstance(model, WrapperModel):
        return can_stream(model.wrapped)
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


async def record_turn(
    run: AgentRun,
    fields: dict[str, object],
    call: Callable[[], Awaitable[ModelResponse]],
    *,
    codec: Codec[ModelResponse],
    model: Model,
    agent: str,
    pieces: Sequence[str] = (),
) -> Recorded[ModelResponse]:
    """Make a model request, or answer it from its record.

    Args:
        run: The agent run.
        fields: The whole semantic request, by field.
        call: Asks the model.
        codec: How the response is kept.
        model: The model.
        agent: The agent that asks.
        pieces: The pieces in which the text of a replayed response arrived; known when the response is decoded.
    """
    name = model_name(model)
    return await run.turn(fields, call, codec=codec, facts=response_facts, model=name, agent=agent, pieces=pieces)


def response_facts(response: ModelResponse) -> TurnFacts:
    """What people and budgets want to know of a response."""
    usage = response.usage
    return TurnFacts(
        text="".join(part.content for part in response.parts if isinstance(part, TextPart)),
        tool_calls=tuple(part.tool_name for part in response.parts if isinstance(part, ToolCallPart)),
        usage=Usage(
            requests=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cache_read_tokens,
            reasoning_tokens=usage.output_reasoning_tokens or usage.details.get("reasoning_tokens", 0),
        ),
        messages=dump_messages([response]),
        provider=response.provider_name or "",
    )


async def tell_deltas(context: RunContext[Any], events: AsyncIterable[ModelResponseStreamEvent]) -> None:
    """Tell the event stream of text as it arrives from the model."""
    run = current_run()
    pieces = PIECES.get()
    agent = (context.agent.name or "") if context.agent is not None else ""
    async for event in events:
        if run is not None and (text := _delta(event)):
            if pieces is not None:
                pieces.append(text)
            await run.emit(TextDelta(run=run.id, agent=agent or run.name, text=text))


def _delta(event: ModelResponseStreamEvent) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
    return ""
