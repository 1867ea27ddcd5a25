"""What a script or a fault applies to."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ._conversation import Conversation


@dataclass(frozen=True)
class Match:
    """A condition on a model request; every part that is given must hold.

    Args:
        user: Regular expression, searched in the last user text.
        model: The exact model name.
        system: Regular expression, searched in the instructions.
        wire: The exact name of the wire.
        turn: The turn asked for, counted from 1 at the last user text.
        streamed: Whether a stream is asked for.
        when: Any predicate (in-process only).
    """

    user: str | None = None
    model: str | None = None
    system: str | None = None
    wire: str | None = None
    turn: int | None = None
    streamed: bool | None = None
    when: Callable[[Conversation], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("user", "system"):
            pattern = getattr(self, name)
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"`{name}` is not a regular expression: {error}. Got {pattern!r}.") from error

    def holds(self, conversation: Conversation, user: str | None = None) -> bool:
        """Say whether the request meets the condition.

        Args:
            conversation: The request.
            user: The user text to search, the last one by default.
        """
        said = conversation.user if user is None else user
        return (
            (self.user is None or re.search(self.user, said, re.DOTALL) is not None)
            and (self.model is None or self.model == conversation.model)
            and (self.system is None or re.search(self.system, conversation.system, re.DOTALL) is not None)
            and (self.wire is None or self.wire == conversation.wire)
            and (self.turn is None or self.turn == conversation.turn)
            and (self.streamed is None or self.streamed == conversation.streamed)
            and (self.when is None or self.when(conversation))
        )

    def __str__(self) -> str:
        """Return the parts that are given, such as `user='hi' turn=2`."""
        parts = [(n, getattr(self, n)) for n in self.__dataclass_fields__]
        return " ".join(f"{n}={v!r}" for n, v in parts if v is not None) or "any request"
