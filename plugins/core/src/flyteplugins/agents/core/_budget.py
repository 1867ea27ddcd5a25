"""Limits of an agent run, which the runtime enforces, whatever the SDK's loop does.

What was answered from a record counts as much as what was made now, so that a retry goes the way that the first attempt went.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

from ._canonical import JSON, UnserializableError, canonical_json, jsonable
from ._errors import AgentError
from ._recorder import Recorded
from ._usage import Usage

__all__ = ["Budget", "BudgetExceededError", "Meter", "Spent"]


@dataclass(frozen=True)
class Budget:
    """What an agent run may use. Each limit is optional.

    A limit covers what runs in the agent's process: hand-offs, agents used as tools, and calls of `run_agent` inside of inline
    tools. Child tasks are not covered.

    Attributes:
        turns: How many model turns may be made.
        tool_calls: How many tool calls may be made.
        tokens: How many tokens all turns together may take, input and output. Checked after each turn, so the last one may
            go over it.
        seconds: How long all turns and tool calls together may take, each measured when it was made: calls beside each
            other count one by one. Checked after each.
        cost: US dollars that all turns together may cost by list price. Checked after each turn. The price of each model has
            to be known.
        same_call: How often one tool may be called with equal arguments.
    """

    turns: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    same_call: int | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is None:
                continue
            whole = item.name not in ("seconds", "cost")
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise TypeError(f"Budget {item.name} is {value!r}; give {'a whole number' if whole else 'a number'}.")
            if not value >= 0:
                raise ValueError(f"Budget {item.name} is {value!r}; give 0 or more, or None for no limit.")


@dataclass(frozen=True)
class Spent:
    """What an agent run has used so far, with what was answered from records.

    Attributes:
        turns: Model turns, those that failed included.
        tool_calls: Tool calls.
        tokens: Input and output tokens of all turns.
        seconds: How long turns and tool calls took when they were made, one by one.
        cost: US dollars by list price; `None` where the price of a turn is unknown.
    """

    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost: float | None = 0.0

    def __add__(self, other: Spent) -> Spent:
        cost = None if self.cost is None or other.cost is None else self.cost + other.cost
        return Spent(
            self.turns + other.turns,
            self.tool_calls + other.tool_calls,
            self.tokens + other.tokens,
            self.seconds + other.seconds,
            cost,
        )

    def as_dict(self) -> dict[str, JSON]:
        """The numbers by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spent:
        """Read back what `as_dict` gave."""
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})

    def __str__(self) -> str:
        cost = "unknown cost" if self.cost is None else f"{self.cost:.4f} USD"
        return f"{self.turns} turns, {self.tool_calls} tool calls, {self.tokens} tokens, {self.seconds:.1f} s, {cost}"


class BudgetExceededError(AgentError):
    """An agent run went over a limit of its budget.

    Attributes:
        limit: The field of `Budget`.
        allowed: Its value.
        used: What was used of it, or was about to be.
        spent: All that was used so far.
        messages: The conversation so far, as JSON values in the SDK's terms: what the latest turn was asked, and what it
            answered where that is known.
    """

    def __init__(self, run: str, limit: str, allowed: float, used: float, spent: Spent, messages: list[JSON]) -> None:
        self.limit = limit
        self.allowed = allowed
        self.used = used
        self.spent = spent
        self.messages = messages
        super().__init__(
            f"The agent run {run!r} is over its budget: {limit} may be {allowed:g}, and would be {used:g}. It has used {spent}. "
            f"Raise Budget({limit}=...), or have the agent do less."
        )


class Meter:
    """Counts what an agent run uses, and stops it at its limits.

    Args:
        run: The agent run's name.
        budget: Its limits.
        outer: Counts for what this run is part of: the inline tool call that runs it.
        owner: The agent run's own meter, where this one counts for a tool call of it.
    """

    def __init__(self, run: str, budget: Budget | None, outer: Meter | None = None, owner: Meter | None = None) -> None:
        self.spent = Spent()
        self.owner = owner if owner is not None else self
        self.exceeded: AgentError | None = None
        self.budget = budget if budget is not None else Budget()
        self._run = run
        self._outer = outer
        self._calls: Counter[str] = Counter()
        self._messages: object = None
        self._answer: object = None

    def begin_turn(self, messages: object) -> None:
        """Count a turn that is about to be made or replayed.

        Args:
            messages: The conversation that it is asked about.

        Raises:
            BudgetExceededError: There is no turn left, or a limit was reached before.
        """
        self.check()
        self._messages, self._answer = messages, None
        self._limit("turns", self.budget.turns, self.spent.turns + 1)
        self._count(Spent(turns=1))

    def end_turn(self, usage: Usage, cost: float | None, seconds: float, answer: object = None) -> None:
        """Count what a turn took.

        Args:
            usage: Its tokens.
            cost: US dollars; `None` where they are unknown.
            seconds: How long it took when it was made.
            answer: Its messages, as the next turn would be asked about them.

        Raises:
            BudgetExceededError: A limit was reached.
            AgentError: There is a limit of tokens or cost, and the turn's are not known.
        """
        self._answer = answer
        self._count(Spent(tokens=usage.total_tokens, cost=cost, seconds=seconds))
        if self.budget.tokens is not None and not usage.total_tokens:
            raise self._unknown("tokens", self.budget.tokens)
        self._check_limits()

    def begin_call(self, tool: str, arguments: object) -> None:
        """Count a tool call that is about to be made or replayed.

        Args:
            tool: The tool's name.
            arguments: Its arguments.

        Raises:
            BudgetExceededError: There is no call left, or none with these arguments, or a limit was reached before.
        """
        self.check()
        self._limit("tool_calls", self.budget.tool_calls, self.spent.tool_calls + 1)
        self._count(Spent(tool_calls=1))
        if self.budget.same_call is not None:
            call = hashlib.sha256(canonical_json([tool, arguments])).hexdigest()
            self._calls[call] += 1
            self._limit("same_call", self.budget.same_call, self._calls[call])

    def end_call(self, seconds: float, inside: Spent | None = None) -> None:
        """Count what a tool call took.

        Args:
            seconds: How long it took when it was made.
            inside: What agent runs inside of it took, where it is answered from a record.

        Raises:
            BudgetExceededError: A limit was reached.
        """
        self._count(Spent(seconds=seconds) + replace(inside or Spent(), seconds=0.0))
        self._check_limits()

    def check(self) -> None:
        """Raise what was raised before: whoever swallowed it, the run does not go on.

        Raises:
            BudgetExceededError: A limit was reached before, of this run or of what it is part of.
        """
        if self.exceeded is not None:
            raise self.exceeded
        if self._outer is not None:
            self._outer.check()

    def stop(self, error: AgentError) -> None:
        """Have the run end with an error, whoever swallows it: `check` raises it from now on."""
        if self.owner.exceeded is None:
            self.owner.exceeded = error
        if self.exceeded is None:
            self.exceeded = error

    @contextmanager
    def inside_call(self) -> Iterator[Meter]:
        """Count apart what agent runs inside of a tool call use: its record has to tell when it is answered from it."""
        inner = Meter(self._run, Budget(same_call=self.budget.same_call), outer=self, owner=self.owner)
        token = _METER.set(inner)
        try:
            yield inner
        finally:
            _METER.reset(token)

    def _count(self, spent: Spent) -> None:
        self.spent += spent
        if self._outer is not None:
            # a tool call's own duration holds those of what is inside of it
            self._outer._count_inside(replace(spent, seconds=0.0))

    def _count_inside(self, spent: Spent) -> None:
        self._count(spent)
        self._check_limits()

    def _check_limits(self) -> None:
        budget, spent = self.budget, self.spent
        self._limit("turns", budget.turns, spent.turns)
        self._limit("tool_calls", budget.tool_calls, spent.tool_calls)
        self._limit("tokens", budget.tokens, spent.tokens)
        self._limit("seconds", budget.seconds, spent.seconds)
        if budget.cost is not None:
            if spent.cost is None:
                raise self._unknown("cost", budget.cost)
            self._limit("cost", budget.cost, spent.cost)

    def _limit(self, name: str, allowed: float | None, used: float) -> None:
        if allowed is not None and used > allowed:
            self.exceeded = BudgetExceededError(self._run, name, allowed, used, self.spent, self._conversation())
            self.owner.exceeded = self.exceeded
            raise self.exceeded

    def _unknown(self, name: str, allowed: float) -> AgentError:
        return AgentError(
            f"The agent run {self._run!r} has Budget({name}={allowed:g}), which cannot be enforced: the {name} of its last turn: "
            "unknown. Use a model that tells its usage and is on the price list, or limit turns instead."
        )

    def _conversation(self) -> list[JSON]:
        messages: list[JSON] = []
        for part in (self._messages, self._answer):
            try:
                found = jsonable(part)
            except UnserializableError as error:
                found = str(error)
            if isinstance(found, list):
                messages += found
            elif found is not None:
                messages.append(found)
        return messages


def spent_inside(recorded: Recorded[Any]) -> Spent | None:
    """What agent runs inside of a tool call used, where it is answered from a record; else it is counted already."""
    kept = recorded.info.get("inside") if recorded.replayed else None
    return Spent.from_dict(kept) if isinstance(kept, dict) else None


_METER: ContextVar[Meter | None] = ContextVar("flyteplugins.agents.meter", default=None)


def current_meter() -> Meter | None:
    """What counts for the tool call whose body runs now, if any."""
    return _METER.get()
