"""What an agent run took: tokens, money and time, with what was replayed kept apart from what was spent."""

from __future__ import annotations

from dataclasses import dataclass, field

from .._usage import RunUsage, Usage

__all__ = ["Totals", "TurnTokens"]


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """The tokens of one turn.

    Attributes:
        input: Tokens of the request.
        output: Tokens of the answer.
        replayed: Whether the turn was answered from a record.
        failed: Whether it failed.
    """

    input: int
    output: int
    replayed: bool
    failed: bool


@dataclass
class Totals:
    """Sums over an agent run in this attempt.

    Attributes:
        usage: Tokens and requests.
        turns: Every turn's tokens, in order.
        replayed_turns: How many turns were answered from records.
        failed_turns: How many turns failed.
        model_seconds: How long fresh turns took.
        tool_calls: How many tool calls ended.
        replayed_tool_calls: How many of them were answered from records.
        failed_tool_calls: How many of them failed.
        repeated_tool_calls: How many had been started by an earlier attempt without an outcome, and were run again.
        tool_seconds: How long fresh tool calls took, added up, also where they overlapped.
        cost: US dollars of fresh turns, as far as known; `None` where no turn's price is.
        unpriced: How many fresh turns have no known price.
        replayed_cost: US dollars that replayed turns cost an earlier attempt, as far as known; `None` if unknown.
    """

    usage: RunUsage = field(default_factory=RunUsage)
    turns: list[TurnTokens] = field(default_factory=list)
    replayed_turns: int = 0
    failed_turns: int = 0
    model_seconds: float = 0.0
    tool_calls: int = 0
    replayed_tool_calls: int = 0
    failed_tool_calls: int = 0
    repeated_tool_calls: int = 0
    tool_seconds: float = 0.0
    cost: float | None = None
    unpriced: int = 0
    replayed_cost: float | None = None

    def turn(self, usage: Usage, *, replayed: bool, seconds: float, failed: bool, cost: float | None) -> int:
        """Add a turn, and return its number, from 1."""
        self.usage = self.usage.adding(usage, replayed=replayed)
        self.turns.append(TurnTokens(usage.input_tokens, usage.output_tokens, replayed, failed))
        self.replayed_turns += replayed
        self.failed_turns += failed
        if replayed:
            if cost is not None:
                self.replayed_cost = (self.replayed_cost or 0.0) + cost
        else:
            self.model_seconds += seconds
            if cost is not None:
                self.cost = (self.cost or 0.0) + cost
            elif usage.total_tokens:
                self.unpriced += 1
        return len(self.turns)

    def tool_call(self, *, replayed: bool, seconds: float, failed: bool) -> None:
        """Add a tool call that ended."""
        self.tool_calls += 1
        self.replayed_tool_calls += replayed
        self.failed_tool_calls += failed
        if not replayed:
            self.tool_seconds += seconds
