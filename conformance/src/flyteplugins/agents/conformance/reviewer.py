"""Somebody who sits at the terminal, for tests of approvals on a laptop.

Import the fixture where pytest finds it, for instance in `conftest.py`:

    from flyteplugins.agents.conformance.reviewer import reviewer
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

__all__ = ["Reviewer", "reviewer"]


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

    async def answer(self, text: str, deadline: float | None = None) -> str | None:  # noqa: ARG002 - as the terminal's
        """Answer one question.

        Raises:
            AssertionError: Nobody said what to answer.
        """
        self.asked.append(text)
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
