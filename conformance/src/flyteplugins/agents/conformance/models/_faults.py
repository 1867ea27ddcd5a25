"""Faults: what goes wrong between a client and a provider, and the book that decides which request meets one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from ._conversation import Conversation
from ._match import Match

Kind = Literal["status", "slow", "hang", "reset", "cut", "garbled", "lost"]


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with a request. Use the class methods rather than the constructor.

    Args:
        kind: What happens.
        match: Which requests it happens to.
        times: To how many of them; `None` is all.
        each: Count `times` for each distinct request rather than over all of them, so that each of several
            concurrent agents meets the fault.
        status: HTTP status (kind `status`).
        retry_after: Seconds to put into `Retry-After` (kind `status`).
        seconds: How long the answer is held back (kind `slow`).
        after: What arrives whole first (kinds `cut` and `garbled`): events of a stream, or bytes of a body that is
            not streamed; all but the last one at most.
        message: The error's message.
    """

    kind: Kind
    match: Match = field(default_factory=Match)
    times: int | None = 1
    each: bool = False
    status: int = 0
    retry_after: float | None = None
    seconds: float = 0.0
    after: int = 2
    message: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"There is no fault {self.kind!r}; there are: {', '.join(get_args(Kind))}.")
        if self.kind == "status" and not 400 <= self.status <= 599:
            raise ValueError(f"A fault of kind 'status' needs an HTTP error status from 400 to 599; got {self.status}.")

    @classmethod
    def error(cls, status: int, *, times: int | None = 1, message: str = "", retry_after: float | None = None) -> Fault:
        """Answer with an HTTP error status, in the provider's own error format."""
        return cls("status", status=status, times=times, message=message, retry_after=retry_after)

    @classmethod
    def rate_limit(cls, *, retry_after: float = 0.01, times: int | None = 1) -> Fault:
        """Answer 429 with `Retry-After` (seconds)."""
        return cls.error(429, times=times, retry_after=retry_after)

    @classmethod
    def unauthorized(cls, *, times: int | None = None) -> Fault:
        """Answer 401, every time by default: a bad key stays bad."""
        return cls.error(401, times=times)

    @classmethod
    def overloaded(cls, *, times: int | None = 1) -> Fault:
        """Answer 529, as Anthropic does when overloaded."""
        return cls.error(529, times=times)

    @classmethod
    def slow(cls, seconds: float, *, times: int | None = 1) -> Fault:
        """Hold the answer back for `seconds`, then give it."""
        return cls("slow", seconds=seconds, times=times)

    @classmethod
    def hang(cls, *, times: int | None = 1) -> Fault:
        """Never answer: the request ends when the client gives up or the server stops."""
        return cls("hang", times=times)

    @classmethod
    def reset(cls, *, times: int | None = 1) -> Fault:
        """Reset the TCP connection before anything is done."""
        return cls("reset", times=times)

    @classmethod
    def cut(cls, *, after: int = 2, times: int | None = 1) -> Fault:
        """Close the connection in the middle of the answer."""
        return cls("cut", after=after, times=times)

    @classmethod
    def garbled(cls, *, after: int = 2, times: int | None = 1) -> Fault:
        """Send something that is not JSON in the middle of the answer."""
        return cls("garbled", after=after, times=times)

    @classmethod
    def lost(cls, *, times: int | None = 1) -> Fault:
        """Do what was asked, server-side state included, and reset the connection instead of answering."""
        return cls("lost", times=times)

    def on(self, match: Match) -> Fault:
        """Return this fault for the requests that `match` describes."""
        return replace(self, match=match)

    def __str__(self) -> str:
        """Return its name: `429`, `slow`, `cut`, ..."""
        return str(self.status) if self.kind == "status" else self.kind


class FaultBook:
    """Which faults are still to happen. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._met: dict[tuple[str, int, str], int] = {}

    def add(self, fault: Fault) -> None:
        """Arm a fault."""
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        """Disarm every fault and forget what happened."""
        with self._lock:
            self._faults.clear()
            self._met.clear()

    def pick(self, conversation: Conversation, owner: str = "", faults: tuple[Fault, ...] = ()) -> Fault | None:
        """Return the fault that this request meets, if any, and count it.

        Args:
            conversation: The request.
            owner: Whose faults to look at: a reply's (its rule and turn), or the book's own when empty.
            faults: The owner's faults.
        """
        with self._lock:
            for place, fault in enumerate(faults if owner else self._faults):
                if not fault.match.holds(conversation):
                    continue
                key = (owner, place, conversation.identity if fault.each else "")
                met = self._met.get(key, 0)
                if fault.times is None or met < fault.times:
                    self._met[key] = met + 1
                    return fault
        return None
