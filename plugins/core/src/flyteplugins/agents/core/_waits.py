"""Time that is spent, without the time that a person takes to answer: no budget runs out while somebody thinks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Stopwatch", "waiting_for_a_person"]


class Stopwatch:
    """Runs from its making on, and stands still while a person is waited for inside of what it measures."""

    def __init__(self) -> None:
        self._outer = _WATCH.get()
        self._began = time.perf_counter()
        self._waited = 0.0
        self._waits = 0
        self._since = 0.0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """What it shows."""
        return max(time.perf_counter() - self._began - self._waited, 0.0)

    @contextmanager
    def running(self) -> Iterator[Stopwatch]:
        """Have the waits inside of the body count for this watch, and for those around it."""
        token = _WATCH.set(self)
        try:
            yield self
        finally:
            _WATCH.reset(token)

    def _stop(self) -> None:
        with self._lock:
            self._waits += 1
            if self._waits == 1:  # waits beside each other pass at the same time
                self._since = time.perf_counter()

    def _go_on(self) -> None:
        with self._lock:
            self._waits -= 1
            if self._waits == 0:
                self._waited += time.perf_counter() - self._since


_WATCH: ContextVar[Stopwatch | None] = ContextVar("flyteplugins.agents.watch", default=None)


@contextmanager
def waiting_for_a_person() -> Iterator[None]:
    """Stop all watches that run around the body."""
    stopped: list[Stopwatch] = []
    watch = _WATCH.get()
    while watch is not None:
        watch._stop()
        stopped.append(watch)
        watch = watch._outer
    try:
        yield
    finally:
        for watch in stopped:
            watch._go_on()
