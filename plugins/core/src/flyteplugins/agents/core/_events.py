"""The neutral event stream: the spine that reports, usage, budgets, live output and telemetry hang on.

An adapter maps its SDK's events onto these once. Each has `type`, `run` (the agent run's id), `agent` (the name of the agent that
acts), `replayed` (whether it was answered from a record) and `parent` (the tool call that it happened inside of).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from ._canonical import JSON
from ._usage import Usage

__all__ = [
    "ApprovalAnswered",
    "ApprovalAsked",
    "DrainedSink",
    "Event",
    "EventSink",
    "HandOff",
    "MemoryNotice",
    "RunFinished",
    "RunStarted",
    "TextDelta",
    "ToolCallFinished",
    "ToolCallRepeated",
    "ToolCallStarted",
    "TurnFinished",
    "deliver",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in an agent run.

    Attributes:
        run: The agent run's id.
        agent: The name of the agent that acts.
        replayed: Whether it was answered from a record, so that nothing was paid for it again.
        parent: The `call` of the tool call of the same agent run that it happened inside of, as the turns and tools of an
            agent used as a tool do; empty outside of one. Of a `RunStarted`, a call of the run `parent_run`.
    """

    type: ClassVar[str] = "event"
    run: str = ""
    agent: str = ""
    replayed: bool = False
    parent: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The event as plain values, `type` included."""
        return {"type": self.type} | dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """An agent run began.

    Attributes:
        name: The agent run's name.
        input: What the user said, as text.
        resumed: Whether there are records of an earlier attempt.
        parent_run: The id of the agent run, in the same process, that this one is part of; empty if none.
    """

    type: ClassVar[str] = "run started"
    name: str
    input: str
    resumed: bool = False
    parent_run: str = ""


@dataclass(frozen=True, kw_only=True)
class TextDelta(Event):
    """A piece of an answer, as it arrives.

    Attributes:
        text: The piece.
    """

    type: ClassVar[str] = "text delta"
    text: str


@dataclass(frozen=True, kw_only=True)
class TurnFinished(Event):
    """A model request was answered, or failed.

    Attributes:
        model: The model's name.
        text: The text of the answer, without reasoning.
        tool_calls: Names of the tools that it calls, in order.
        usage: The turn's tokens.
        seconds: How long the model call took when it was made.
        error: Why it failed, where it did.
        cost: US dollars that it cost when it was made, by list price; `None` where the price is unknown.
    """

    type: ClassVar[str] = "turn finished"
    model: str
    text: str = ""
    tool_calls: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    error: str | None = None
    cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class ToolCallStarted(Event):
    """A tool call began.

    Attributes:
        call: The SDK's id of the call, or one of ours where the SDK has none.
        name: The tool's name, as the model knows it.
        arguments: The arguments, as JSON values; the model's own text where it is not JSON.
    """

    type: ClassVar[str] = "tool call started"
    call: str
    name: str
    arguments: JSON


@dataclass(frozen=True, kw_only=True)
class ToolCallRepeated(Event):
    """A tool call that an earlier attempt had started, and that left no outcome, is run again: its effect may happen twice.

    Attributes:
        call: The call's id, as in its `ToolCallStarted`.
        name: The tool's name, as the model knows it.
    """

    type: ClassVar[str] = "tool call repeated"
    call: str
    name: str


@dataclass(frozen=True, kw_only=True)
class ToolCallFinished(Event):
    """A tool call ended.

    Attributes:
        call: The SDK's id of the call.
        name: The tool's name, as the model knows it.
        arguments: The arguments, as JSON values; the model's own text where it is not JSON.
        result: What the model is given.
        error: Why it failed, where it did.
        seconds: How long it took when it ran.
    """

    type: ClassVar[str] = "tool call finished"
    call: str
    name: str
    arguments: JSON = None
    result: str = ""
    error: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class HandOff(Event):
    """One agent gave the conversation to another.

    Attributes:
        source: The agent that gives.
        target: The agent that takes.
    """

    type: ClassVar[str] = "hand-off"
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class ApprovalAsked(Event):
    """A person is asked about an action.

    Attributes:
        action: The tool's name.
        digest: SHA-256 of the canonical arguments, in hexadecimal.
        request: The name of the request, which tells it from others about an equal action; on a cluster its condition's.
        arguments: The arguments, as JSON values.
        deadline: When it expires, in seconds since the epoch; `None` for never.
    """

    type: ClassVar[str] = "approval asked"
    action: str
    digest: str
    request: str = ""
    arguments: JSON = None
    deadline: float | None = None


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswered(Event):
    """A person, or a deadline, decided.

    Attributes:
        action: The tool's name.
        digest: SHA-256 of the canonical arguments, in hexadecimal.
        decision: What was decided: `approved`, `denied`, or `expired`.
        request: The name of the request, as in its `ApprovalAsked`.
        by: Who decided; empty where nobody says.
        reason: Why not, where the person said so.
        at: When it was decided, in seconds since the epoch; 0 where nobody says.
    """

    type: ClassVar[str] = "approval answered"
    action: str
    digest: str
    decision: str
    request: str = ""
    by: str = ""
    reason: str = ""
    at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class MemoryNotice(Event):
    """Something about the memory that a reader of the report should know.

    Attributes:
        message: A sentence.
    """

    type: ClassVar[str] = "memory"
    message: str


@dataclass(frozen=True, kw_only=True)
class RunFinished(Event):
    """An agent run ended.

    Attributes:
        text: The final text.
        error: Why it failed, where it did.
        seconds: How long this attempt of it took.
    """

    type: ClassVar[str] = "run finished"
    text: str = ""
    error: str | None = None
    seconds: float = 0.0


EventSink: TypeAlias = Callable[[Event], Awaitable[None] | None]
"""What `on_event` takes: a plain or a coroutine function of one event."""


class DrainedSink:
    """A listener that hands events on by itself, and is asked at the end of an agent run to do so with what it still has."""

    def __call__(self, event: Event) -> None:
        """Take an event, without waiting for anybody."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Hand on what was taken so far. It takes a bounded time, and never fails the run."""
        raise NotImplementedError


async def deliver(sink: EventSink, event: Event) -> None:
    """Call a sink, and wait for it where it is a coroutine function."""
    outcome = sink(event)
    if inspect.isawaitable(outcome):
        await outcome
