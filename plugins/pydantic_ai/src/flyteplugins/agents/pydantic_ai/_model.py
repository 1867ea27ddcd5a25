"""Model operations as leaves: each request of a model is a turn."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
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
from pydantic_ai.tools import RunContext

from ._codec import dump_messages
from ._request import model_name

__all__ = ["record_turn", "response_facts", "tell_deltas"]


async def record_turn(
    run: AgentRun,
    fields: dict[str, object],
    call: Callable[[], Awaitable[ModelResponse]],
    *,
    codec: Codec[ModelResponse],
    model: Model,
    agent: str,
    streamed: bool = False,
) -> Recorded[ModelResponse]:
    """Make a model request, or answer it from its record.

    Args:
        run: The agent run.
        fields: The whole semantic request, by field.
        call: Asks the model.
        codec: How the response is kept.
        model: The model.
        agent: The agent that asks.
        streamed: Whether the text of a replayed response is told as it would have been live.
    """
    name = model_name(model)
    recorded = await run.turn(fields, call, codec=codec, facts=response_facts, model=name, agent=agent)
    if streamed and recorded.replayed:
        for part in recorded.value.parts:
            if isinstance(part, TextPart) and part.content:
                await run.emit(TextDelta(run=run.id, agent=agent, text=part.content, replayed=True))
    return recorded


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
    agent = (context.agent.name or "") if context.agent is not None else ""
    async for event in events:
        if run is not None and (text := _delta(event)):
            await run.emit(TextDelta(run=run.id, agent=agent or run.name, text=text))


def _delta(event: ModelResponseStreamEvent) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            return text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
    return ""
