"""Somebody who sits at the terminal, for tests of approvals on a laptop.

Import the fixture where pytest finds it, for instance in `conftest.py`:

    from flyteplugins.agents.conformance.reviewer import reviewer
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ._forks import FLYTE, ForkedProcess, ForkServer

__all__ = ["Reviewer", "answer_at_terminal", "reviewer"]


_PROMPTS = ("] > ", " [y/n]: ")
"""How a question ends: one of ours, and one of Flyte's own `new_condition`."""


@dataclass
class Reviewer:
    """Answers what is asked at the terminal.

    Attributes:
        asked: What was shown, in order.
        present: Whether there is a terminal.
    """

    asked: list[str] = field(default_factory=list)
    present: bool = True
    _answers: list[tuple[re.Pattern[str], list[str | None]]] = field(default_factory=list)

    def says(self, pattern: str, *answers: str | None) -> None:
        """Answer questions that a pattern is found in: each with the next answer, the last one for good.

        Args:
            pattern: A regular expression. Of several that fit, the first one given counts.
            answers: What to type; `None` lets the deadline pass.
        """
        self._answers.append((re.compile(pattern), list(answers)))

    async def answer(self, text: str, deadline: float | None, again: Callable[[str], str]) -> str | None:
        """Answer one question, as often as it is asked again.

        Args:
            text: The question.
            deadline: When it is too late; only `None` answers are.
            again: Says what to ask once more; empty text where an answer is one.

        Raises:
            AssertionError: Nobody said what to answer.
        """
        del deadline
        while text:
            self.asked.append(text)
            line = self._line(text)
            if line is None:
                return None
            text = again(line)
        return line

    def _line(self, text: str) -> str | None:
        for pattern, answers in self._answers:
            if pattern.search(text):
                return answers.pop(0) if len(answers) > 1 else answers[0]
        raise AssertionError(f"Nobody said what to answer to: {text}")


@pytest.fixture
def reviewer(monkeypatch: pytest.MonkeyPatch) -> Reviewer:
    """Somebody at the terminal."""
    person = Reviewer()
    asking = "flyteplugins.agents.core._approval_asking"
    monkeypatch.setattr(f"{asking}.has_console", lambda: person.present)
    monkeypatch.setattr(f"{asking}.ask_console", person.answer)
    return person


def answer_at_terminal(
    command: Sequence[str],
    *answers: str,
    env: Mapping[str, str] | None = None,
    timeout: float = 120.0,
    server: ForkServer | None = None,
) -> str:
    """Run a program with a real terminal as its input, and type an answer whenever it asks.

    Args:
        command: What to run.
        answers: What to type, in order; afterwards nothing more is typed.
        env: Its environment.
        timeout: How long it may take, in seconds.
        server: A fork server to start it from; the command is one of `flyte` then.

    Returns:
        What it printed, errors as well.

    Raises:
        AssertionError: It failed; the message has what it printed.
    """
    terminal, end = pty.openpty()
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(output := Path(folder, "output"))
        reading = os.open(output, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for somebody who writes
        os.set_blocking(reading, True)
        environment = dict(os.environ if env is None else env)
        process: subprocess.Popen[bytes] | ForkedProcess
        with output.open("wb") as writing:
            if server is None:
                process = subprocess.Popen(
                    command, stdin=end, stdout=writing, stderr=subprocess.STDOUT, env=environment
                )
            else:
                process = server.start(
                    FLYTE, command, env=environment, cwd=Path.cwd(), input=Path(os.ttyname(end)), output=output
                )
    os.close(end)
    limit = threading.Timer(timeout, os.kill, (process.pid, signal.SIGKILL))
    limit.start()
    printed, left = "", list(answers)
    try:
        while part := os.read(reading, 1):
            printed += part.decode(errors="replace")
            if left and printed.endswith(_PROMPTS):
                os.write(terminal, f"{left.pop(0)}\n".encode())
        status = process.wait()
    finally:
        limit.cancel()
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        os.close(reading)
        os.close(terminal)
    if status:
        raise AssertionError(f"{' '.join(command)} ended with {status}: {printed}")
    return printed
