"""What turns took, with what was paid now and what was paid in an earlier attempt kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

__all__ = ["RunUsage", "Usage"]


@dataclass(frozen=True)
class Usage:
    """Tokens and requests.

    Attributes:
        requests: Model requests that were answered.
        input_tokens: Tokens of the requests, cached ones included.
        output_tokens: Tokens of the answers, reasoning included.
        cached_tokens: Input tokens that the provider read from its cache.
        reasoning_tokens: Output tokens that were spent on reasoning.
        cache_write_tokens: Input tokens that the provider wrote to its cache, where it sells them at a price of their own.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def as_dict(self) -> dict[str, int]:
        """The numbers by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, numbers: Mapping[str, Any]) -> Usage:
        """Read back what `as_dict` gave; a number that is missing is 0."""
        return cls(**{field.name: int(numbers.get(field.name) or 0) for field in fields(cls)})


@dataclass(frozen=True)
class RunUsage:
    """What an agent run took.

    Attributes:
        fresh: Turns that were asked in this attempt: this is spend.
        replayed: Turns that were answered from records: this was spent by an earlier attempt.
        fresh_cost: US dollars of the fresh turns; `None` where the price of one of them is unknown.
        replayed_cost: US dollars of the replayed turns; `None` where the price of one of them is unknown.
    """

    fresh: Usage = Usage()
    replayed: Usage = Usage()
    fresh_cost: float | None = 0.0
    replayed_cost: float | None = 0.0

    def adding(self, usage: Usage, *, replayed: bool, cost: float | None = None) -> RunUsage:
        """Add a turn.

        Args:
            usage: Its tokens and requests.
            replayed: Whether it was answered from a record.
            cost: US dollars; `None` if unknown. A turn without a request that was answered costs nothing.
        """
        if replayed:
            paid = _sum(self.replayed_cost, usage, cost)
            return replace(self, replayed=self.replayed + usage, replayed_cost=paid)
        return replace(self, fresh=self.fresh + usage, fresh_cost=_sum(self.fresh_cost, usage, cost))

    @property
    def total(self) -> Usage:
        """What all attempts together took for the turns that this run is made of."""
        return self.fresh + self.replayed

    @property
    def total_cost(self) -> float | None:
        """US dollars that all attempts together paid for those turns; `None` where the price of one of them is unknown."""
        if self.fresh_cost is None or self.replayed_cost is None:
            return None
        return self.fresh_cost + self.replayed_cost

    def as_dict(self) -> dict[str, Any]:
        """The numbers by name."""
        return asdict(self)


def _sum(so_far: float | None, usage: Usage, cost: float | None) -> float | None:
    if usage == Usage():
        return so_far
    return None if so_far is None or cost is None else so_far + cost
