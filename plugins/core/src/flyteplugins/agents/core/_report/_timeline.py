"""The timeline: events, in the order in which things began and nested as they belong together.

A tool call belongs to the turn that asked for it, and what happens inside of a tool call - the turns of an agent used as a
tool, an approval - belongs to the call.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from .._canonical import JSON, UnserializableError, digest
from .._events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    HandOff,
    MemoryNotice,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFinished,
)
from ._texts import Text, error_class, money, plain, size
from ._totals import Totals

__all__ = ["Block", "State", "Step", "Steps", "Timeline"]

KEPT_FIRST = 100
"""How many steps are kept from the beginning of a very long list."""

KEPT_LAST = 2500
"""How many steps are kept from its end."""

RECENT = 250
"""How many of the last ones keep all of the text that a page may show."""

SHORTENED = 600
"""What the texts of the others are cut to, in bytes of a page."""

MAX_NAME = 160
"""Characters of a name."""

_DECISIONS = {
    "approved", "refused", "rejected", "denied", "declined", "timed out", "expired", "pending", "unknown", "cancelled", "true",
    "false", "yes", "no",
}  # fmt: skip
"""Decisions that are structure. Anything else may be what a reviewer wrote."""

State = Literal["running", "done", "failed", "open"]
"""`open`: the attempt ended before it had an outcome."""


@dataclass(slots=True)
class Block:
    """A labelled text of a step.

    Attributes:
        label: What it is: `arguments`, `result`, `answer`, ...
        text: The text.
        note: A fact about it: a hash, a size.
    """

    label: str
    text: Text
    note: str = ""


class Steps:
    """Steps in order. Of a very long list the middle is let go and counted."""

    def __init__(self) -> None:
        self.first: list[Step] = []
        self.last: deque[Step] = deque()
        self.let_go = 0

    def __iter__(self) -> Iterator[Step]:
        yield from self.first
        yield from self.last

    def __len__(self) -> int:
        return len(self.first) + len(self.last)

    def add(self, step: Step) -> None:
        """Add one at the end."""
        if len(self.first) < KEPT_FIRST:
            self.first.append(step)
            return
        self.last.append(step)
        if len(self.last) > RECENT:
            self.last[-RECENT - 1].shorten()
        if len(self.last) > KEPT_LAST:
            self.let_go += self.last.popleft().count()


@dataclass(slots=True)
class Step:
    """Something in the timeline.

    Attributes:
        kind: What it is, as a word for people.
        title: Its name: the model, the tool.
        agent: The agent that acts.
        at: When it began in this attempt, in seconds since the report began.
        state: How it went.
        number: Of a turn, which one it is, from 1.
        replayed: Whether it was answered from a record.
        fresh: Whether it was made in this attempt; an event like a hand-off is neither.
        repeated: Whether an earlier attempt had started it and left no outcome, so that it is run again.
        seconds: How long it took when it was made.
        facts: Short facts: tokens, sizes.
        blocks: What was said.
        steps: What happened inside of it.
    """

    kind: str
    title: str
    agent: str
    at: float
    state: State = "done"
    number: int = 0
    replayed: bool = False
    fresh: bool = False
    repeated: bool = False
    seconds: float | None = None
    facts: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)

    def count(self) -> int:
        """How many steps it is, with those inside of it."""
        return 1 + self.steps.let_go + sum(step.count() for step in self.steps)

    def shorten(self) -> None:
        """Cut what it and the steps inside of it keep."""
        for block in self.blocks:
            block.text.shorten(SHORTENED)
        for step in self.steps:
            step.shorten()


class Timeline:
    """Takes the events of one agent run in.

    Args:
        contents: Whether what was said is shown; else its hash and size.

    Attributes:
        steps: The outermost steps.
        totals: What it took so far.
        resumed: Whether there are records of an earlier attempt.
        input: What the user said.
        outcome: `running`, `finished` or `failed`.
        answer: The answer, or the error.
        seconds: How long the run took, as it says itself.
    """

    def __init__(self, *, contents: bool) -> None:
        self.contents = contents
        self.steps = Steps()
        self.totals = Totals()
        self.resumed = False
        self.input: Block | None = None
        self.outcome: Literal["running", "finished", "failed"] = "running"
        self.answer: Block | None = None
        self.seconds: float | None = None
        self._calls: dict[str, list[Step]] = {}
        self._turns: dict[tuple[int, str], Step] = {}
        self._approvals: dict[tuple[str, str, str], Step] = {}

    def take(self, event: Event, at: float) -> bool:
        """Take an event in.

        Args:
            event: The event.
            at: Seconds since the report began.

        Returns:
            Whether it changes anything that is shown.
        """
        match event:
            case TextDelta():
                return False
            case RunStarted():
                self.resumed = event.resumed
                self.input = self._block("input", event.input)
            case TurnFinished():
                self._turn(event, at)
            case ToolCallStarted():
                self._call(event, at)
            case ToolCallRepeated():
                self._repeated(event, at)
            case ToolCallFinished():
                self._result(event, at)
            case ApprovalAsked():
                step = self._step(event, "Approval", event.action, at)
                step.state = "running"
                step.facts = ["waits for an answer", f"arguments SHA-256 {plain(event.digest)[:64]}"]
                if event.arguments is not None:
                    step.blocks = [self._block("arguments", _arguments(event.arguments)[0])]
                self._approvals[event.action, event.digest, event.request] = step
                self._put(event, step)
            case ApprovalAnswered():
                self._answered(event, at)
            case HandOff():
                step = self._step(event, "Hand-off", "", at)
                step.title, step.agent = f"{_name(event.source)} → {_name(event.target)}", ""
                self._put(event, step)
            case MemoryNotice():
                step = self._step(event, "Memory", "", at)
                step.blocks = [self._block("note", event.message)]
                self._put(event, step)
            case RunFinished():
                self._end(event)
            case _:
                self._put(event, self._unknown(event, at))
        return True

    def nested(self, name: str, call: str, at: float) -> Step:
        """Add a step for an agent run that began within this one, which has a tab of its own.

        Args:
            name: Its name.
            call: The tool call that it began in; empty if none.
            at: Seconds since the report began.
        """
        step = Step("Agent run", _name(name), "", at, state="running", facts=["in a tab of its own"])
        parent = next(iter(self._calls.get(call, ())), None)
        (self.steps if parent is None else parent.steps).add(step)
        return step

    def _step(self, event: Event, kind: str, title: str, at: float) -> Step:
        return Step(kind, _name(title), _name(event.agent), at, replayed=event.replayed)

    def _put(self, event: Event, step: Step) -> None:
        """Put a step where it belongs: into the tool call that it happened in, and a tool call into its turn."""
        call = self._parent(event)
        turn = self._turns.get((id(call), step.agent)) if step.kind in ("Tool", "Approval") else None
        inside = turn or call
        (self.steps if inside is None else inside.steps).add(step)

    def _parent(self, event: Event) -> Step | None:
        """The tool call that an event happened in, as far as the event says."""
        return next(iter(self._calls.get(event.parent, ())), None) if event.parent else None

    def _turn(self, event: TurnFinished, at: float) -> None:
        usage = event.usage
        step = self._step(event, "Turn", event.model, max(at - (0 if event.replayed else event.seconds), 0))
        step.number = self.totals.turn(
            usage, replayed=event.replayed, seconds=event.seconds, failed=event.error is not None, cost=event.cost
        )
        step.seconds = event.seconds
        step.fresh = not event.replayed
        if event.error is not None:
            step.state = "failed"
            step.blocks.append(self._error(event.error))
        if event.text:
            step.blocks.append(self._block("answer", event.text))
        if event.tool_calls:
            step.facts.append("calls " + ", ".join(_name(name) for name in event.tool_calls[:20]))
        if usage.input_tokens or usage.output_tokens:
            step.facts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
        if event.cost is not None:
            step.facts.append(money(event.cost))
        parent = self._parent(event)
        self._turns[id(parent), step.agent] = step
        self._put(event, step)

    def _call(self, event: ToolCallStarted, at: float) -> None:
        step = self._step(event, "Tool", event.name, at)
        step.state = "running"
        text, sha256 = _arguments(event.arguments)
        block = self._block("arguments", text, f"SHA-256 {sha256[:16]}" if sha256 else "")
        if block.text.hidden and sha256:
            block.note, block.text.sha256 = "", sha256
        step.blocks = [block]
        self._put(event, step)
        self._calls.setdefault(event.call, []).append(step)

    def _open_call(self, event: ToolCallFinished | ToolCallRepeated) -> Step | None:
        return next((step for step in self._calls.get(event.call, ()) if step.title == _name(event.name)), None)

    def _repeated(self, event: ToolCallRepeated, at: float) -> None:
        step = self._open_call(event)
        if step is None:  # nobody said that it began
            step = self._step(event, "Tool", event.name, at)
            step.state = "running"
            self._put(event, step)
            self._calls.setdefault(event.call, []).append(step)
        step.repeated = True
        step.facts.append("an earlier attempt had started it and left no outcome")
        self.totals.repeated_tool_calls += 1

    def _result(self, event: ToolCallFinished, at: float) -> None:
        open_calls = self._calls.get(event.call, [])
        step = self._open_call(event)
        if step is None:  # nobody said that it began
            step = self._step(event, "Tool", event.name, at)
            self._put(event, step)
        else:
            open_calls.remove(step)
            if not open_calls:
                del self._calls[event.call]
        self._turns = {key: turn for key, turn in self._turns.items() if key[0] != id(step)}
        step.state = "done" if event.error is None else "failed"
        step.replayed, step.fresh = event.replayed, not event.replayed
        step.seconds = event.seconds
        result = self._block("result", event.result)
        step.facts.append(f"result {size(result.text.bytes)}")
        if event.error is not None and event.error in event.result:
            step.blocks.append(dataclasses.replace(self._error(event.error), text=result.text))
        else:
            if event.error is not None:
                step.blocks.append(self._error(event.error))
            if event.result or event.error is None:
                step.blocks.append(result)
        self.totals.tool_call(replayed=event.replayed, seconds=event.seconds, failed=event.error is not None)

    def _answered(self, event: ApprovalAnswered, at: float) -> None:
        step = self._approvals.pop((event.action, event.digest, event.request), None)
        if step is None:
            step = self._step(event, "Approval", event.action, at)
            step.facts = ["", f"arguments SHA-256 {plain(event.digest)[:64]}"]
            self._put(event, step)
        elif not event.replayed:
            step.seconds = at - step.at
        step.state = "done"
        step.replayed, step.fresh = event.replayed, not event.replayed
        if self.contents or event.decision.lower() in _DECISIONS:
            step.facts[0] = _name(event.decision)
        else:
            step.facts[0] = "answered"
            step.blocks.append(self._block("decision", event.decision))
        if event.at:
            step.facts.append(time.strftime("at %Y-%m-%d %H:%M:%S UTC", time.gmtime(event.at)))
        if event.by:
            step.blocks.append(self._block("by", event.by))
        if event.reason:
            step.blocks.append(self._block("reason", event.reason))

    def _unknown(self, event: Event, at: float) -> Step:
        """An event that this report has no words for is shown as it is."""
        step = self._step(event, event.type.capitalize(), "", at)
        known = {known.name for known in dataclasses.fields(Event)} | {"type"}
        values = {name: value for name, value in event.as_dict().items() if name not in known}
        step.blocks = [self._block("event", json.dumps(values, ensure_ascii=False, default=str))] if values else []
        return step

    def _end(self, event: RunFinished) -> None:
        self.seconds = event.seconds
        if event.error is not None:
            self.outcome = "failed"
            self.answer = self._error(event.error)
        else:
            self.outcome = "finished"
            self.answer = self._block("answer", event.text)
        for step in [*(step for steps in self._calls.values() for step in steps), *self._approvals.values()]:
            step.state = "open"
        self._calls.clear()
        self._approvals.clear()

    def _block(self, label: str, text: str, note: str = "") -> Block:
        return Block(label, Text.of(text, contents=self.contents), note)

    def _error(self, error: str) -> Block:
        return self._block("error", error, "" if self.contents else error_class(error))


def _name(name: str) -> str:
    name = plain(name.replace("\n", " "))
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


def _arguments(arguments: JSON) -> tuple[str, str]:
    """A call's arguments as text, and their SHA-256; no hash where they have no canonical form."""
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        if not isinstance(arguments, str) and len(text) > 80:
            text = json.dumps(arguments, ensure_ascii=False, indent=2)
    except RecursionError:
        return "(nested too deep to be shown)", ""
    try:
        return text, digest(arguments)
    except UnserializableError:
        return text, ""
