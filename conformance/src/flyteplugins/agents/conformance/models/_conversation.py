"""The provider-neutral view of a model request: what was said, called, answered and offered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ._json import JsonObject, canonical, digest, parse_arguments

Role = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the request offers to the model.

    Args:
        name: The name to call it by.
        description: What the client says of it.
        parameters: JSON schema of its arguments.
        deferred: The client names the tool only; the model has to search for it before it can call it.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class PastCall:
    """A tool call that the conversation already holds.

    Args:
        id: The provider's call id; empty on a wire that pairs by name.
        name: The tool's name.
        arguments: Decoded arguments, or text when they are not JSON.
    """

    id: str
    name: str
    arguments: object


@dataclass(frozen=True, slots=True)
class PastResult:
    """A tool result that the conversation already holds.

    Args:
        id: The id of the call that it answers; empty on a wire that pairs by name.
        text: The result as text.
        name: The tool's name where the wire carries it.
        is_error: Whether the client marked it as an error.
    """

    id: str
    text: str
    name: str = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message: the user's, the model's, or a message that carries tool results.

    Args:
        role: Who speaks. Tool results have the role `tool` on every wire.
        text: The joined text parts.
        calls: Tool calls that the model made in it.
        results: Tool results in it.
        thinking: The model's reasoning text in it.
        data: Digest of what is neither of these (an image, an unknown item), so that it counts in the identity.
    """

    role: Role
    text: str = ""
    calls: tuple[PastCall, ...] = ()
    results: tuple[PastResult, ...] = ()
    thinking: str = ""
    data: str = ""


@dataclass(frozen=True)
class Conversation:
    """One model request, as every wire sees it.

    Args:
        wire: Name of the wire, such as `openai-responses`.
        model: The requested model.
        system: Instructions: system and developer texts, joined by a blank line.
        messages: The conversation, server-side state included.
        tools: Function tools on offer.
        tool_choice: `auto`, `none`, `required`, or the name of the one tool to call.
        output_schema: JSON schema that the answer's text must satisfy, if asked for.
        output_name: The schema's name on the wire, or empty.
        streamed: Whether a stream was asked for.
        body: The request body as received.
        extra: What a wire adds to the identity, such as an agent's id.
    """

    wire: str
    model: str
    system: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[OfferedTool, ...] = ()
    tool_choice: str = "auto"
    output_schema: Mapping[str, object] | None = None
    output_name: str = ""
    streamed: bool = False
    body: JsonObject = field(default_factory=dict)
    extra: str = ""

    @cached_property
    def users(self) -> tuple[str, ...]:
        """Every user text, oldest first."""
        return tuple(m.text for m in self.messages if m.role == "user" and m.text)

    @property
    def user(self) -> str:
        """The last user text, or an empty string."""
        return self.users[-1] if self.users else ""

    @cached_property
    def answered(self) -> tuple[Message, ...]:
        """The messages after the last user text: what this run of the agent has done so far."""
        return self.after_user()

    def after_user(self, nth: int = -1) -> tuple[Message, ...]:
        """Return the messages after one user text.

        Args:
            nth: Index into `users`; the last by default.
        """
        places = [i for i, m in enumerate(self.messages) if m.role == "user" and m.text]
        return self.messages[places[nth] + 1 :] if places else self.messages

    @property
    def calls(self) -> tuple[PastCall, ...]:
        """Tool calls made since the last user text."""
        return tuple(c for m in self.answered for c in m.calls)

    @property
    def results(self) -> tuple[PastResult, ...]:
        """Tool results given since the last user text."""
        return tuple(r for m in self.answered for r in m.results)

    @cached_property
    def turn(self) -> int:
        """The turn that this request asks for, counted from 1 at the last user text."""
        return 1 + count_turns(self.answered)

    @property
    def total_turns(self) -> int:
        """The model's turns that the whole conversation already holds."""
        return count_turns(self.messages)

    def tool(self, name: str) -> OfferedTool | None:
        """Find an offered tool by its name, also behind a server prefix.

        Args:
            name: A tool's name: `add` finds `add`, and `mcp__srv__add` (as Claude Code spells an MCP server's tool).
        """
        by_name = {t.name: t for t in self.tools}
        return by_name.get(name) or next((t for n, t in by_name.items() if n.endswith("__" + name)), None)

    def result_of(self, name: str) -> tuple[str, ...]:
        """Return the texts of the results that a tool gave since the last user text, in call order."""
        names = {c.id: c.name for c in self.calls if c.id}
        return tuple(r.text for r in self.results if _same_tool(names.get(r.id) or r.name, name))

    @cached_property
    def identity(self) -> str:
        """A digest of what was asked, equal for equal requests whatever ids, keys or streaming they came with."""
        return digest(
            self.wire,
            self.model,
            self.system,
            [
                [
                    m.role,
                    m.text,
                    [[c.name, c.arguments] for c in m.calls],
                    [[r.name, r.text, r.is_error] for r in m.results],
                    m.thinking,
                    m.data,
                ]
                for m in self.messages
            ],
            [[t.name, t.description, t.parameters] for t in self.tools],
            self.tool_choice,
            self.output_schema,
            self.extra,
        )

    @cached_property
    def prompt_tokens(self) -> int:
        """The input's length in tokens, by the rule of `count_tokens`."""
        texts = [self.system]
        for m in self.messages:
            texts += [m.text, m.thinking]
            texts += [text for c in m.calls for text in (c.name, argument_text(c.arguments))]
            texts += [r.text for r in m.results]
        texts += [text for t in self.tools for text in (t.name, t.description, canonical(t.parameters))]
        return sum(count_tokens(text) for text in texts)


def argument_text(arguments: object) -> str:
    """Return a call's arguments as the text that tokens are counted on."""
    parsed = parse_arguments(arguments)
    return parsed if isinstance(parsed, str) else canonical(parsed)


def count_tokens(text: str) -> int:
    """Return the length of `text` in tokens: one for every four characters begun."""
    return (len(text) + 3) // 4


def call_stem(call_id: str) -> str:
    """Return the part of a call id that all calls of one turn share (see `Ids.call`)."""
    return call_id[:-2]


def count_turns(messages: tuple[Message, ...]) -> int:
    """Count the model's turns in `messages`.

    A turn is an unbroken row of the model's messages. Clients may send the calls of one turn interleaved with their
    results (call, result, call, result), so calls that share a stem count as one turn.
    """
    turns, in_turn, stems = 0, False, set[str]()
    for message in messages:
        if message.role != "assistant":
            in_turn = False
            continue
        mine = {call_stem(c.id) for c in message.calls if c.id}
        if not in_turn and not (mine and mine <= stems and not message.text):
            turns += 1
            stems = set()
        in_turn = True
        stems |= mine
    return turns


def _same_tool(called: str, name: str) -> bool:
    return called == name or called.endswith("__" + name)
