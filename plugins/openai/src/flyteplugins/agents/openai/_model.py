"""The model seam: each turn is a leaf."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, cast

import wrapt
from agents import Model, ModelProvider, ModelResponse, MultiProvider
from agents.models.interface import ModelTracing

from flyteplugins.agents.core import TurnFacts, Usage, current_run

from ._codec import ModelResponseCodec, StreamCodec
from ._events import is_last, response_of, text_of
from ._request import model_name, request_fields
from ._retries import take_response_retry, take_stream_retry
from ._stream import answered, with_failure

if TYPE_CHECKING:
    from agents import AgentOutputSchemaBase, Handoff, ModelSettings, Tool, TResponseInputItem
    from agents.items import TResponseStreamEvent

    from openai.types.responses.response_prompt_param import ResponsePromptParam

__all__ = ["FlyteModel", "FlyteModelProvider", "durable_model"]


class FlyteModel(wrapt.ObjectProxy[Model]):
    """A model whose turns are recorded while an agent run is on, and answered from their records on a resume.

    To the SDK it is the model that it wraps, class and private methods included. `run_agent` puts it around every model that its
    agents reach, so wrapping one by hand is needed only in code that calls a model itself.

    Args:
        model: The model.
        agent: The name of the agent that asks; the agent run's by default.
    """

    def __init__(self, model: Model, agent: str = "") -> None:
        super().__init__(model)
        self._self_agent = agent

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: ResponsePromptParam | None = None,
    ) -> ModelResponse:
        """Answer a turn from its record, or ask the model and record its answer."""
        model: Model = self.__wrapped__
        retry = take_response_retry()

        async def ask() -> ModelResponse:
            return await model.get_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )

        async def call() -> ModelResponse:
            return await retry(ask)

        run = current_run()
        if run is None:
            return await call()
        fields = request_fields(
            model=model,
            instructions=system_instructions,
            messages=input,
            settings=model_settings,
            tools=tools,
            output_schema=output_schema,
            handoffs=handoffs,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        )
        recorded = await run.turn(
            fields, call, codec=ModelResponseCodec(), facts=_facts, model=model_name(model), agent=self._self_agent
        )
        return recorded.value

    def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: ResponsePromptParam | None = None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Stream a turn from its record, or from the model, and record it.

        A model that cannot stream answers at once, and its events are made up from the answer.
        """
        model: Model = self.__wrapped__
        retry, failed = take_stream_retry()
        arguments = (system_instructions, input, model_settings, tools, output_schema, handoffs, tracing)
        ids: Any = {
            "previous_response_id": previous_response_id,
            "conversation_id": conversation_id,
            "prompt": prompt,
        }

        def ask() -> AsyncIterator[TResponseStreamEvent]:
            return model.stream_response(*arguments, **ids)

        run = current_run()
        if run is None:
            return retry(ask)
        fields = request_fields(
            model=model,
            instructions=system_instructions,
            messages=input,
            settings=model_settings,
            tools=tools,
            output_schema=output_schema,
            handoffs=handoffs,
            **ids,
        )
        raw_usage = model_settings.preserve_raw_usage is True
        name = model_name(model)
        pieces = run.stream_turn(
            fields,
            lambda: answered(lambda: retry(ask), lambda: model.get_response(*arguments, **ids), name),
            codec=StreamCodec(name, raw_usage=raw_usage, failed=failed),
            facts=lambda events: _facts(response_of(events, raw_usage=False, failed=failed[0])),
            delta=text_of,
            is_last=is_last,
            model=name,
            agent=self._self_agent,
        )
        return with_failure(pieces)


class FlyteModelProvider(ModelProvider):
    """A provider whose models are `FlyteModel`s.

    Args:
        provider: Looks models up by name; the SDK's default provider by default.
    """

    def __init__(self, provider: ModelProvider | None = None) -> None:
        self._provider = provider if provider is not None else MultiProvider()

    def get_model(self, model_name: str | None) -> Model:
        """Look a model up."""
        return durable_model(self._provider.get_model(model_name))

    async def aclose(self) -> None:
        """Release the provider's resources."""
        await self._provider.aclose()


def durable_model(model: Model, agent: str = "") -> Model:
    """Wrap a model, unless it is wrapped."""
    if type(cast(object, model)) is FlyteModel:
        return model
    return cast(Model, FlyteModel(model, agent))


def _facts(response: ModelResponse) -> TurnFacts:
    return TurnFacts(_text(response), _tool_calls(response), _usage(response), messages=response.to_input_items())


def _usage(response: ModelResponse) -> Usage:
    usage = response.usage
    return Usage(
        requests=usage.requests,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens or 0,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens or 0,
    )


def _text(response: ModelResponse) -> str:
    """The answer's text, without reasoning."""
    parts = [
        part
        for item in response.output
        if getattr(item, "type", None) == "message"
        for content in getattr(item, "content", None) or []
        if isinstance(part := getattr(content, "text", None) or getattr(content, "refusal", None), str)
    ]
    return "".join(parts)


def _tool_calls(response: ModelResponse) -> tuple[str, ...]:
    return tuple(
        str(getattr(item, "name", item.type))
        for item in response.output
        if str(getattr(item, "type", "")).endswith("_call")
    )
