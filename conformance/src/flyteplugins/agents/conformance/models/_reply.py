"""What the model answers with: the reply that a dialogue or script gives, and the answer that a wire encodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ._conversation import Conversation, argument_text, count_tokens
from ._faults import Fault
from ._json import JsonObject, compact

Stop = Literal["end", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model makes.

    Args:
        name: The tool's name; a name behind a server prefix (`mcp__srv__add`) is found by its last part.
        arguments: Arguments by name, or text to send as it is (broken JSON, say) where the wire carries text.
        unlisted: Let the model call a tool that the request does not offer, as real models sometimes do.
        id: A fixed call id; by default one is derived from the request.
        confirm: The provider itself runs the tool and waits for the client to confirm it (Mistral Conversations).
    """

    name: str
    arguments: Mapping[str, object] | str = field(default_factory=dict)
    unlisted: bool = False
    id: str | None = None
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer, in tokens.

    Args:
        input: The whole input, cached part included.
        output: The whole output, reasoning included.
        cached: The part of the input that was read from a cache.
        cache_written: The part of the input that was written to a cache.
        reasoning: The part of the output that was reasoning.
    """

    input: int
    output: int
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        """Add two counts, part by part."""
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.cache_written + other.cache_written,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True)
class Reply:
    """One turn of the model, for any wire.

    Args:
        text: Text of the answer.
        calls: Tool calls, in order; several are parallel calls of one turn.
        thinking: Reasoning that comes before the answer, signed by the server.
        structured: A JSON value; its JSON text becomes the answer's text.
        usage: Exact token counts. By default they are computed: one token for every four characters begun of each
            text, counted over instructions, messages, tool schemas and calls.
        items: Output items in the wire's own form, sent as they are after the thinking and before the text. An
            item's type may be unknown to the SDK; the server accepts it back unchanged.
        stop: Why the model stopped: `end`, `length` (cut at a token limit) or `refusal` (the text is a refusal).
        pieces: Number of pieces that a streamed text comes in; by default a piece for every 24 characters, 200 at most.
        seconds_per_piece: Pause before each streamed piece, in seconds.
        faults: Faults that requests for this turn meet before the reply is given.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thinking: str = ""
    structured: object = None
    usage: Usage | None = None
    items: tuple[JsonObject, ...] = ()
    stop: Stop = "end"
    pieces: int | None = None
    seconds_per_piece: float = 0.0
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if self.structured is not None and self.text:
            raise ValueError("A reply has either text or a structured value; drop one of them.")


def call(name: str, /, **arguments: object) -> ToolCall:
    """Return a tool call: `call("get_weather", city="Oslo")`."""
    return ToolCall(name, arguments)


class Ids:
    """Ids of one answer: fixed by the request, different for each part.

    Args:
        seed: A digest of the request.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed

    def make(self, prefix: str, part: object = "", length: int = 32) -> str:
        """Return `prefix` and `length` hex digits for one part of the answer."""
        return prefix + hashlib.sha256(f"{self.seed}/{prefix}/{part}".encode()).hexdigest()[:length]

    def call(self, index: int, prefix: str = "call_", length: int = 22) -> str:
        """Return the id of the `index`-th call; all calls of one answer share all but the last two digits."""
        if index > 99:
            raise ValueError("A turn can make 100 tool calls at most.")
        return f"{self.make(prefix, 'calls', length - 2)}{index:02d}"


@dataclass(frozen=True, slots=True)
class IssuedCall:
    """A call with its final name, id and arguments.

    Args:
        id: The call id.
        name: The tool's name as offered.
        arguments: The arguments as JSON text (or the script's own text).
        parsed: The arguments as data.
    """

    id: str
    name: str
    arguments: str
    parsed: object


@dataclass(frozen=True)
class Answer:
    """A reply made ready for the wire: names resolved, ids and usage set.

    Args:
        reply: The reply it came from.
        text: The text to send.
        calls: The calls to send.
        usage: Token counts.
        ids: The source of this answer's ids.
    """

    reply: Reply
    text: str
    calls: tuple[IssuedCall, ...]
    usage: Usage
    ids: Ids

    @property
    def thinking(self) -> str:
        """The reasoning to send."""
        return self.reply.thinking

    @property
    def stop(self) -> Stop:
        """Why the model stopped."""
        return self.reply.stop

    def pieces(self, text: str) -> list[str]:
        """Cut `text` into the pieces it is streamed in; joined, they are `text` again."""
        if not text:
            return []
        count = self.reply.pieces or min(200, (len(text) + 23) // 24)
        size = max(1, -(-len(text) // count))
        return [text[i : i + size] for i in range(0, len(text), size)]


def usage_of(conversation: Conversation, text: str, thinking: str, calls: tuple[IssuedCall, ...]) -> Usage:
    """Compute token counts by the documented rule (see `Reply`)."""
    reasoning = count_tokens(thinking)
    spoken = count_tokens(text) + sum(count_tokens(c.name) + count_tokens(argument_text(c.arguments)) for c in calls)
    return Usage(input=conversation.prompt_tokens, output=spoken + reasoning, reasoning=reasoning)


def text_of(reply: Reply) -> str:
    """Return the text that a reply sends."""
    return reply.text if reply.structured is None else compact(reply.structured)
