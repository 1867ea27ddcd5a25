"""Questions to whoever sits at the terminal: one at a time, and never on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["ConsoleClosedError", "ask_console", "has_console"]


class ConsoleClosedError(EOFError):
    """The terminal was closed, or Ctrl-D was typed, before there was an answer."""


def has_console() -> bool:
    """Whether a person can be asked: input that is piped in is nobody's decision."""
    stream = sys.stdin
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it was closed
        return False


@dataclass(eq=False)
class _Question:
    text: str
    again: Callable[[str], str]
    deadline: float | None
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[str | None]
    withdrawn: threading.Event = field(default_factory=threading.Event)

    def settle(self, line: str | None, error: BaseException | None = None) -> None:
        """Hand the answer over to the loop that waits for it."""

        def hand_over() -> None:
            if self.answer.done():
                return
            if error is not None:
                self.answer.set_exception(error)
            else:
                self.answer.set_result(line)

        with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(hand_over)


class _Desk:
    """One thread that puts one question after the other. It ends with the process."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._questions: queue.SimpleQueue[_Question] = queue.SimpleQueue()
        self._bell, self._ring = os.pipe()
        threading.Thread(target=self._serve, name="flyte-agents-console", daemon=True).start()

    def put(self, question: _Question) -> None:
        self._questions.put(question)

    def withdraw(self, question: _Question) -> None:
        question.withdrawn.set()
        os.write(self._ring, b"!")

    def _serve(self) -> None:
        while True:
            question = self._questions.get()
            try:
                question.settle(self._ask(question))
            except Exception as error:  # noqa: BLE001 - whoever asked is told
                question.settle(None, error)

    def _ask(self, question: _Question) -> str | None:
        if question.withdrawn.is_set():
            return None
        if question.deadline is not None and time.time() >= question.deadline:
            return None
        text = question.text
        while text:
            sys.stderr.write(text)
            sys.stderr.flush()
            if not self._typed(question):
                sys.stderr.write("\n")
                return None
            line = sys.stdin.readline()
            if not line:
                raise ConsoleClosedError("The terminal was closed before there was an answer.")
            text = question.again(line.strip())
        return line.strip()

    def _typed(self, question: _Question) -> bool:
        """Wait until a line was typed; false where the question is withdrawn or its time is over."""
        while not question.withdrawn.is_set():
            rest = None if question.deadline is None else question.deadline - time.time()
            if rest is not None and rest <= 0:
                return False
            try:
                ready, _, _ = select.select([sys.stdin, self._bell], [], [], rest)
            except OSError:  # Windows waits for sockets only: there the line is waited for whatever happens
                return True
            if self._bell in ready:
                os.read(self._bell, 1024)
            elif ready:
                return True
        return False


_DESKS: list[_Desk] = []
_LOCK = threading.Lock()


def _desk() -> _Desk:
    with _LOCK:
        if not _DESKS or _DESKS[0].process != os.getpid():  # a forked process has no threads
            _DESKS[:] = [_Desk()]
        return _DESKS[0]


async def ask_console(text: str, deadline: float | None, again: Callable[[str], str]) -> str | None:
    """Put a question to the person at the terminal, when those before it are answered.

    Args:
        text: What to show, the prompt at its end.
        deadline: When it is too late, in seconds since the epoch.
        again: Says what to ask once more after a line that is no answer; empty text for one that is.

    Returns:
        The line that was typed; `None` when it was too late.

    Raises:
        ConsoleClosedError: There will be no answer.
    """
    loop = asyncio.get_running_loop()
    question = _Question(text, again, deadline, loop, loop.create_future())
    desk = _desk()
    desk.put(question)
    try:
        return await question.answer
    finally:
        if not question.answer.done() or question.answer.cancelled():
            desk.withdraw(question)
