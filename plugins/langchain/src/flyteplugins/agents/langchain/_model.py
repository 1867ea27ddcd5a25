"""The model seam: each turn is a leaf."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from flyteplugins.agents.core import (
    AgentRun,
    SubclassViews,
    TurnFacts,
    Usage,
    agent_run,
    current_run,
    current_scope,
)

from ._bridge import iterate_sync, wait_sync
from ._clients import on_this_loop
from ._codec import ChunksCodec, LangChainErrorCodec, ResultCodec, result_of
from ._errors import CONTROL_FLOW, classify
from ._nodes import agent_name, made_before, note_made, request_key
from ._request import answer_models, model_name, normal_messages, request_fields

__all__ = ["DurableChatModel", "durable_model", "inside_a_turn"]

T = TypeVar("T")

_SELLERS = {"google_genai": "google", "google_vertexai": "google", "mistralai": "mistral", "amazon_bedrock": "aws"}

_INSIDE: ContextVar[bool] = ContextVar("flyteplugins.agents.langchain.inside", default=False)


def inside_a_turn() -> bool:
    """Whether a model is being asked: what it calls for that is part of its turn."""
    return _INSIDE.get()


class _Meta(type(BaseChatModel)):  # type: ignore[misc]  # the metaclass of pydantic's models
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is DurableChatModel:
            return durable_model(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is DurableChatModel:  # the views' classes do not inherit from it: their fields are the model's own
            return isinstance(instance, BaseChatModel) and _VIEWS.original(instance) is not type(instance)
        return bool(super().__instancecheck__(instance))


class DurableChatModel(BaseChatModel, metaclass=_Meta):
    """A chat model whose turns are recorded while a Flyte task runs, and answered from their records on a resume.

    `DurableChatModel(model)` has the class, the fields and the private methods of the model that it is given, and shares its
    state: `isinstance`, `profile`, `bind_tools`, `with_structured_output`, callbacks and rate limiters are the model's own.

    `run_agent` does the same for every chat model that runs inside of it, so making one by hand is needed only in a graph that is
    run without `run_agent`. There, each turn is an agent run of its own.

    Args:
        inner: The model.

    Raises:
        TypeError: It is no chat model. Wrap the model before it is bound, and not the binding.
    """

    if TYPE_CHECKING:

        def __init__(self, inner: BaseChatModel) -> None: ...

        @property
        def _llm_type(self) -> str: ...

        def _generate(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: Any = None,
            **kwargs: Any,
        ) -> ChatResult: ...


def durable_model(inner: BaseChatModel) -> BaseChatModel:
    """A view of a model whose turns are recorded.

    Args:
        inner: The model. A durable one is returned as it is.

    Raises:
        TypeError: It is no chat model.
    """
    if not isinstance(inner, BaseChatModel):
        raise TypeError(
            f"A durable chat model is made of a chat model; {inner!r} is a {type(inner).__qualname__}. Wrap the model before "
            "bind_tools or with_config, or leave it to run_agent, which reaches every chat model."
        )
    return _VIEWS.view(inner)


def _overrides(kind: type[BaseChatModel]) -> Mapping[str, Any]:
    """The methods of a class's views."""

    def _generate(
        self: BaseChatModel,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = _call(kind._generate, self, messages, stop, run_manager, kwargs)
        if not _is_recorded():
            return call()
        return wait_sync(
            lambda in_caller: _answer(kind, self, messages, stop, kwargs, lambda: in_caller(_marked(call)))
        )

    async def _agenerate(
        self: BaseChatModel,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = _call(kind._agenerate, self, messages, stop, run_manager, kwargs, is_async=True)
        if not _is_recorded():
            return await call()

        async def ask() -> ChatResult:
            token = _INSIDE.set(True)
            try:
                return await call()
            finally:
                _INSIDE.reset(token)

        return await _answer(kind, self, messages, stop, kwargs, ask)

    def _stream(
        self: BaseChatModel,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = _call(kind._stream, self, messages, stop, run_manager, kwargs)
        if not _is_recorded():
            yield from call()
            return
        yield from iterate_sync(
            lambda: _marked_pieces(call), lambda source: _pieces(kind, self, messages, stop, kwargs, source)
        )

    async def _astream(
        self: BaseChatModel,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = _call(kind._astream, self, messages, stop, run_manager, kwargs, is_async=True)
        if not _is_recorded():
            async for piece in call():
                yield piece
            return

        async def source() -> AsyncIterator[ChatGenerationChunk]:
            _INSIDE.set(True)  # a stream is read in a task of its own
            async for piece in call():
                yield piece

        async for piece in _pieces(kind, self, messages, stop, kwargs, source):
            yield piece

    def __reduce_ex__(self: BaseChatModel, protocol: Any) -> Any:  # noqa: ARG001
        return durable_model, (_VIEWS.plain(self),)

    found: dict[str, Any] = {"_generate": _generate, "_agenerate": _agenerate, "__reduce_ex__": __reduce_ex__}
    streams = kind._stream is not BaseChatModel._stream
    if streams:
        found["_stream"] = _stream
    if streams or kind._astream is not BaseChatModel._astream:
        found["_astream"] = _astream
    for native in ("_stream_chat_model_events", "_astream_chat_model_events"):
        if getattr(kind, native, None) is not None:  # the SDK makes the same events of the pieces, which are recorded
            found[native] = None
    return found


_VIEWS: SubclassViews[BaseChatModel] = SubclassViews(_overrides)


def _is_recorded() -> bool:
    return not _INSIDE.get() and (current_run() is not None or current_scope() is not None)


def _call(
    method: Callable[..., T],
    model: BaseChatModel,
    messages: list[BaseMessage],
    stop: list[str] | None,
    run_manager: Any,
    options: Mapping[str, Any],
    *,
    is_async: bool = False,
) -> Callable[[], T]:
    """The model's own method, on the model without its view: what it calls on itself is part of the turn."""
    more = dict(options)
    if run_manager is not None and "run_manager" in inspect.signature(method).parameters:
        more["run_manager"] = run_manager
    plain = _VIEWS.plain(model)
    if not is_async:
        return lambda: method(plain, messages, stop=stop, **more)
    return lambda: method(on_this_loop(plain), messages, stop=stop, **more)


def _marked(call: Callable[[], T]) -> Callable[[], T]:
    def marked() -> T:
        token = _INSIDE.set(True)
        try:
            return call()
        finally:
            _INSIDE.reset(token)

    return marked


def _marked_pieces(call: Callable[[], Iterator[T]]) -> Iterator[T]:
    iterator = call()
    done = object()
    step = _marked(lambda: next(iterator, done))
    while (piece := step()) is not done:
        yield cast(T, piece)


@contextlib.asynccontextmanager
async def _run_of(
    model: BaseChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any]
) -> AsyncIterator[AgentRun]:
    """The agent run that a turn belongs to; its own where the graph is run without `run_agent`."""
    run = current_run()
    if run is not None:
        yield run
        return
    name = model_name(model, options)
    async with agent_run(
        framework="langchain",
        name=name,
        input=normal_messages(messages),
        memory_key=None,
        configuration={"model": name},
        classify=classify,
        control_flow=CONTROL_FLOW,
        errors=LangChainErrorCodec(),
    ) as own:
        yield own
        await own.finish(own.turns[-1].text if own.turns else "")


async def _answer(
    kind: type[BaseChatModel],
    model: BaseChatModel,
    messages: list[BaseMessage],
    stop: list[str] | None,
    options: Mapping[str, Any],
    call: Callable[[], Awaitable[ChatResult]],
) -> ChatResult:
    async with _run_of(model, messages, options) as run:
        fields = request_fields(kind, model, messages, stop, options)
        codec = ResultCodec(answer_models(options))
        key = request_key(run, fields)
        if (payload := made_before(run, key)) is not None:
            return codec.decode(payload)
        recorded = await run.turn(
            fields,
            call,
            codec=codec,
            facts=lambda result: _facts(model, result),
            model=model_name(model, options),
            agent=agent_name(run.name),
        )
        note_made(run, key, lambda: codec.encode(recorded.value))
        return recorded.value


async def _pieces(
    kind: type[BaseChatModel],
    model: BaseChatModel,
    messages: list[BaseMessage],
    stop: list[str] | None,
    options: Mapping[str, Any],
    source: Callable[[], AsyncIterator[ChatGenerationChunk]],
) -> AsyncIterator[ChatGenerationChunk]:
    if current_run() is None:  # a context manager is not held open over what the reader does between two pieces
        async with _run_of(model, messages, options) as own:
            pieces = [piece async for piece in _pieces_in(own, kind, model, messages, stop, options, source)]
        for piece in pieces:
            yield piece
        return
    run = cast(AgentRun, current_run())
    async with contextlib.aclosing(_pieces_in(run, kind, model, messages, stop, options, source)) as live:
        async for piece in live:
            yield piece


async def _pieces_in(
    run: AgentRun,
    kind: type[BaseChatModel],
    model: BaseChatModel,
    messages: list[BaseMessage],
    stop: list[str] | None,
    options: Mapping[str, Any],
    source: Callable[[], AsyncIterator[ChatGenerationChunk]],
) -> Any:
    fields = request_fields(kind, model, messages, stop, options)
    codec = ChunksCodec(answer_models(options))
    key = request_key(run, fields)
    if (payload := made_before(run, key)) is not None:
        for piece in codec.decode(payload):
            yield piece
        return
    arrived: list[ChatGenerationChunk] = []
    pieces = run.stream_turn(
        fields,
        source,
        codec=codec,
        facts=lambda chunks: _facts(model, result_of(chunks)),
        delta=lambda chunk: str(chunk.message.text),
        is_last=lambda chunk: getattr(chunk.message, "chunk_position", None) == "last",
        model=model_name(model, options),
        agent=agent_name(run.name),
    )
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            arrived.append(piece)
            yield piece.model_copy(deep=True)  # the SDK writes ids and metadata into it
    note_made(run, key, lambda: codec.encode(arrived))


def _facts(model: BaseChatModel, result: ChatResult) -> TurnFacts:
    message = result.generations[0].message
    calls, usage = ((), Usage(requests=1)) if not isinstance(message, AIMessage) else _calls_and_usage(message)
    return TurnFacts(str(message.text), calls, usage, messages=normal_messages([message]), provider=_provider(model))


def _calls_and_usage(message: AIMessage) -> tuple[tuple[str, ...], Usage]:
    return tuple(call["name"] for call in message.tool_calls), _usage(message)


def _provider(model: BaseChatModel) -> str:
    """Who sells the model, by the name that price lists have for it."""
    name = model._get_ls_params().get("ls_provider") or ""
    return _SELLERS.get(name, name)


def _usage(message: AIMessage) -> Usage:
    usage = message.usage_metadata
    if usage is None:
        return Usage(requests=1)
    return Usage(
        requests=1,
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cached_tokens=usage.get("input_token_details", {}).get("cache_read") or 0,
        cache_write_tokens=usage.get("input_token_details", {}).get("cache_creation") or 0,
        reasoning_tokens=usage.get("output_token_details", {}).get("reasoning") or 0,
    )
