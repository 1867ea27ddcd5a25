"""How the SDK's values are kept in records, and come back as the SDK would have seen them.

Messages, pydantic models and JSON values are kept as JSON that a person can read. Anything else that a graph's state may hold
(bytes, dates, `Command`, dataclasses, ...) is kept as LangGraph's own serializer writes it.
"""

from __future__ import annotations

import base64
import importlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from flyteplugins.agents.core import JSON, DefaultErrorCodec

__all__ = [
    "ChunksCodec",
    "LangChainErrorCodec",
    "ResultCodec",
    "ValueCodec",
    "chunks_of",
    "pack",
    "result_of",
    "unpack",
]

logger = logging.getLogger("flyteplugins.agents")

_MESSAGE, _MODEL, _TUPLE, _OTHER, _PLAIN = "$message", "$model", "$tuple", "$langgraph", "$mapping"
_SERIALIZER = JsonPlusSerializer(allowed_msgpack_modules=True)  # it reads what this program itself wrote


def pack(value: object) -> JSON:
    """Turn a value of the SDK into JSON values, losing nothing.

    Args:
        value: Messages, pydantic models, JSON values, and what LangGraph's serializer takes, nested in any way.

    Raises:
        TypeError: Part of it has no such form.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return cast(JSON, value)
    if kind is list:
        return [pack(item) for item in cast("list[object]", value)]
    if kind is tuple:  # the SDK's serializer makes a list of it
        return {_TUPLE: [pack(item) for item in cast("tuple[object, ...]", value)]}
    if kind is dict:
        mapping = cast("dict[object, object]", value)
        if all(type(key) is str for key in mapping):
            packed = {cast(str, key): pack(item) for key, item in mapping.items()}
            return {_PLAIN: packed} if len(packed) == 1 and next(iter(packed)).startswith("$") else packed
    if isinstance(value, str):  # a subclass, such as the text of a message
        return str.__str__(value)
    if isinstance(value, BaseMessage):
        return {_MESSAGE: pack(message_to_dict(value))}
    if isinstance(value, BaseModel):
        fields = {name: pack(item) for name, item in value}
        given: list[JSON] = [*sorted(value.model_fields_set)]
        return {_MODEL: {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": fields, "set": given}}
    name, content = _SERIALIZER.dumps_typed(value)
    return {_OTHER: {"type": name, "content": base64.b64encode(content).decode()}}


def unpack(value: JSON, models: Mapping[str, type[BaseModel]] | None = None) -> Any:
    """Build what `pack` was given.

    Args:
        value: What `pack` returned.
        models: Pydantic models that cannot be imported, by `module:qualified name`.

    Raises:
        Exception: A class of it cannot be found, or does not take its values any more.
    """
    if isinstance(value, list):
        return [unpack(item, models) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        tag, content = next(iter(value.items()))
        if tag.startswith("$"):
            if tag == _TUPLE:
                return tuple(unpack(item, models) for item in cast("list[JSON]", content))
            kept = cast("dict[str, Any]", content)
            if tag == _PLAIN:
                return {name: unpack(item, models) for name, item in kept.items()}
            if tag == _MESSAGE:
                return messages_from_dict([unpack(content, models)])[0]
            if tag == _MODEL:
                fields = {name: unpack(item, models) for name, item in kept["fields"].items()}
                return _find_model(kept["class"], models or {}).model_construct(set(kept["set"]), **fields)
            return _SERIALIZER.loads_typed((kept["type"], base64.b64decode(kept["content"])))
    return {name: unpack(item, models) for name, item in value.items()}


def _find_model(name: str, models: Mapping[str, type[BaseModel]]) -> type[BaseModel]:
    if name in models:
        return models[name]
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return cast("type[BaseModel]", found)


class ValueCodec:
    """What a tool of the SDK's returns.

    Args:
        tool: The tool's name.
    """

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def encode(self, value: object) -> JSON:
        """Turn an outcome into JSON values. An artifact that has no such form is left out, with a warning."""
        try:
            return pack(value)
        except Exception as error:
            artifact = getattr(value, "artifact", None)
            if artifact is None or not isinstance(value, BaseMessage):
                raise TypeError(
                    f"What the tool {self._tool} returned cannot be recorded ({type(error).__name__}: {error}). Return text, "
                    "JSON values, messages or a Command; or make it flyteplugins.agents.langchain.tool(function, durable=False)."
                ) from error
            logger.warning(
                "The artifact that the tool %s returned cannot be recorded (%s: %s); on a resume it is None.",
                self._tool, type(error).__name__, error,
            )  # fmt: skip
            return pack(value.model_copy(update={"artifact": None}))

    def decode(self, payload: JSON) -> Any:
        """Build the outcome."""
        return unpack(payload)


class ResultCodec:
    """A model's response. Reads a streamed one as well.

    Args:
        models: Pydantic models that the answer may be an instance of.
    """

    def __init__(self, models: Iterable[type[BaseModel]] = ()) -> None:
        self._models = {f"{model.__module__}:{model.__qualname__}": model for model in models}

    def encode(self, value: ChatResult) -> JSON:
        """Turn a response into JSON values."""
        return {
            "generations": [
                {"message": pack(message_to_dict(one.message)), "info": pack(one.generation_info)}
                for one in value.generations
            ],
            "llm_output": pack(value.llm_output),
        }

    def decode(self, payload: JSON) -> ChatResult:
        """Build a response."""
        kept = cast("dict[str, Any]", payload)
        if "chunks" in kept:
            return result_of(ChunksCodec(self._models.values()).decode(payload))
        return ChatResult(
            generations=[
                ChatGeneration(
                    message=messages_from_dict([unpack(one["message"], self._models)])[0],
                    generation_info=unpack(one["info"], self._models),
                )
                for one in kept["generations"]
            ],
            llm_output=unpack(kept["llm_output"], self._models),
        )


class ChunksCodec:
    """A model's streamed response. Reads one that was not streamed as well.

    Args:
        models: Pydantic models that the answer may be an instance of.
    """

    def __init__(self, models: Iterable[type[BaseModel]] = ()) -> None:
        self._models = {f"{model.__module__}:{model.__qualname__}": model for model in models}

    def encode(self, value: list[ChatGenerationChunk]) -> JSON:
        """Turn the pieces into JSON values."""
        return {
            "chunks": [
                {"message": pack(message_to_dict(one.message)), "info": pack(one.generation_info)} for one in value
            ]
        }

    def decode(self, payload: JSON) -> list[ChatGenerationChunk]:
        """Build the pieces."""
        kept = cast("dict[str, Any]", payload)
        if "chunks" not in kept:
            return chunks_of(ResultCodec(self._models.values()).decode(payload))
        return [
            ChatGenerationChunk(
                message=messages_from_dict([unpack(one["message"], self._models)])[0],
                generation_info=unpack(one["info"], self._models),
            )
            for one in kept["chunks"]
        ]


def result_of(chunks: list[ChatGenerationChunk]) -> ChatResult:
    """The response that pieces add up to, as the SDK adds them up."""
    return generate_from_stream(iter(chunks))


def chunks_of(result: ChatResult) -> list[ChatGenerationChunk]:
    """A response as the one piece of a stream."""
    generation = result.generations[0]
    message = generation.message
    values = message.model_dump()
    if isinstance(message, AIMessage):
        values |= {"content": message.content, "additional_kwargs": message.additional_kwargs}
        values["tool_call_chunks"] = [
            {
                "type": "tool_call_chunk",
                "name": call["name"],
                "args": _arguments_text(call["args"]),
                "id": call["id"],
                "index": index,
            }
            for index, call in enumerate(message.tool_calls)
        ]
    values |= {"type": "AIMessageChunk", "chunk_position": "last"}
    metadata = {**(result.llm_output or {}), **message.response_metadata}
    chunk = AIMessageChunk(**{**values, "response_metadata": metadata})
    return [ChatGenerationChunk(message=chunk, generation_info=generation.generation_info)]


def _arguments_text(arguments: Mapping[str, Any]) -> str:
    import json

    return json.dumps(arguments, ensure_ascii=False)


class LangChainErrorCodec(DefaultErrorCodec):
    """Failures; those that hold an HTTP response keep it, so that status, headers and body read the same on a replay.

    The providers' clients bring their own HTTP libraries, which are alike; the one that was used is used again.
    """

    def encode(self, error: Exception) -> JSON:
        """Turn an exception into JSON values. The request, whose headers carry the key, is kept without them."""
        kept = cast("dict[str, Any]", super().encode(error))
        response = getattr(error, "response", None)
        request = getattr(response, "request", None) or getattr(error, "request", None)
        for name in ("response", "request"):
            kept["state"].pop(name, None)
        if request is not None and hasattr(request, "url"):
            kept["http"] = {
                "library": type(request).__module__.partition(".")[0],
                "method": str(request.method),
                "url": str(request.url).partition("?")[0],
                "response": _response(response) if hasattr(response, "status_code") else None,
            }
        return cast(JSON, kept)

    def decode(self, payload: JSON) -> Exception:
        """Build an equal exception."""
        error: Any = super().decode(payload)
        http = cast("dict[str, Any]", payload).get("http")
        if http is not None:
            library = importlib.import_module(http["library"])
            request = library.Request(http["method"], http["url"])
            error.__dict__["request"] = request
            if http["response"] is not None:
                response = http["response"]
                error.__dict__["response"] = library.Response(
                    response["status"], headers=response["headers"], text=response["text"], request=request
                )
        return cast(Exception, error)


_SAFE_HEADERS = frozenset({"content-type", "date", "retry-after", "retry-after-ms", "x-request-id", "request-id"})


def _response(response: Any) -> JSON:
    headers = {name: value for name, value in response.headers.items() if name.lower() in _SAFE_HEADERS}
    try:
        text = response.text
    except Exception as error:  # noqa: BLE001 - the body of a stream that was not read
        text = f"{type(error).__name__}: {error}"
    return {"status": response.status_code, "headers": headers, "text": text}
