"""What every wire provides."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flyteplugins.agents.conformance.models._conversation import Conversation
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject, compact
from flyteplugins.agents.conformance.models._reply import Answer, Ids

CREATED_AT = 1_735_732_800
"""Every answer's creation time, in seconds since the epoch (2025-01-01T12:00:00Z): fixed, so that bodies are equal."""
CREATED_AT_ISO = "2025-01-01T12:00:00Z"


@dataclass(frozen=True)
class HttpCall:
    """One HTTP request to a wire.

    Args:
        path: Path template that matched, such as `/v1/responses`.
        params: Path parameters.
        query: Query parameters.
        headers: Headers, lower case.
        body: Parsed JSON body; empty when there is none.
    """

    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class SideRoute:
    """An endpoint beside the model's own: stored state, a model list, token counting.

    Args:
        method: HTTP method.
        path: Path template below the wire's prefix.
        answer: Returns the JSON body; raises `Refusal`.
    """

    method: str
    path: str
    answer: Callable[[HttpCall], object]


class Wire(ABC):
    """A provider's protocol, with the state that its servers keep.

    Args:
        strict: Whether to refuse what the provider would refuse.
    """

    name: ClassVar[str]
    prefix: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]
    auth_headers: ClassVar[tuple[str, ...]] = ("authorization",)

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict

    def call_id(self, ids: Ids, index: int) -> str:
        """Return the id of an answer's `index`-th call, in the provider's form."""
        return ids.call(index)

    @abstractmethod
    def decode(self, call: HttpCall) -> Conversation:
        """Read a request; raises `Refusal` for what cannot be read at all."""

    @abstractmethod
    def validate(self, call: HttpCall) -> None:
        """Refuse a body whose fields the SDK's types do not allow (strict mode)."""

    @abstractmethod
    def check(self, call: HttpCall, conversation: Conversation) -> None:
        """Refuse what the provider would refuse (strict mode)."""

    @abstractmethod
    def encode(self, conversation: Conversation, answer: Answer) -> JsonObject:
        """Return the response body."""

    @abstractmethod
    def events(self, conversation: Conversation, answer: Answer) -> Iterator[bytes]:
        """Yield the frames of a streamed response."""

    @abstractmethod
    def error(self, problem: Refusal) -> JsonObject:
        """Return an error body in the provider's format."""

    def admit(self, conversation: Conversation, answer: Answer) -> None:  # noqa: B027  # most wires can send any
        """Refuse a reply that the provider would not give to this request."""

    def hand_over(self, conversation: Conversation, answer: Answer) -> Conversation | None:
        """Return the turn that the provider itself takes next before it answers, if there is one.

        Args:
            conversation: The request.
            answer: The answer so far.
        """
        _ = conversation, answer
        return None

    def commit(self, conversation: Conversation, answer: Answer) -> str:
        """Apply the request to the server's state; return the response's id."""
        return str(self.encode(conversation, answer).get("id", ""))

    def side_routes(self) -> Sequence[SideRoute]:
        """Return the endpoints beside the model's own."""
        return ()

    def clear(self) -> None:  # noqa: B027  # a wire without state has nothing to do
        """Forget all state."""

    def key(self, call: HttpCall) -> str:
        """Return the API key that the request came with, or an empty string."""
        return next(
            (v for h in self.auth_headers if (v := call.headers.get(h, "").removeprefix("Bearer ").strip())), ""
        )


def sse(data: object, event: str | None = None) -> bytes:
    """Return one server-sent event with JSON data."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {compact(data)}\n\n".encode("utf-8", "surrogatepass")


def need(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    """Return a required field of a body.

    Raises:
        Refusal: When it is missing or of another type.
    """
    if name not in body:
        raise Refusal(400, f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if not isinstance(body[name], kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join({"str": "a string", "list": "an array", "dict": "an object"}[k.__name__] for k in kinds)
        raise Refusal(400, f"Invalid type for '{name}': expected {wanted}, got {body[name]!r}.", param=name)
    return body[name]


def parts_text(content: object, text_types: frozenset[str]) -> tuple[str, list[JsonObject]]:
    """Split message content into its joined text and the parts that are not text."""
    if content is None:
        return "", []
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise Refusal(400, f"Message content is a string or an array of parts; got {type(content).__name__}.")
    texts: list[str] = []
    others: list[JsonObject] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type") in text_types:
            texts.append(str(part.get("text", part.get("refusal", ""))))
        elif isinstance(part, dict):
            others.append(part)
        else:
            raise Refusal(400, f"A content part is an object; got {part!r}.")
    return "\n".join(texts), others


def result_text(content: object, text_types: frozenset[str]) -> str:
    """Return a tool result as text: text parts as they are, other values and parts as JSON."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    text, others = parts_text(content, text_types)
    return "\n".join([*([text] if text else []), *(json.dumps(o, ensure_ascii=False) for o in others)])
