"""What turns cost, with what was paid now and what was paid in an earlier attempt kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
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
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

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
    """What an agent run cost.

    Attributes:
        fresh: Turns that were asked in this attempt: this is spend.
        replayed: Turns that were answered from records: this was spent by an earlier attempt.
    """

    fresh: Usage = Usage()
    replayed: Usage = Usage()

    def adding(self, usage: Usage, *, replayed: bool) -> RunUsage:
        """Add a turn."""
        if replayed:
            return RunUsage(self.fresh, self.replayed + usage)
        return RunUsage(self.fresh + usage, self.replayed)

    @property
    def total(self) -> Usage:
        """What all attempts together paid for the turns that this run is made of."""
        return self.fresh + self.replayed
