"""Turns and tools on the terminal as they happen, for whoever waits there.

Whole lines on standard error: standard output stays the program's, and Flyte's own lines stay whole. Nothing is shown where
standard error is no terminal, or where the run has an `on_event`, which shows what its author wants. `FLYTE_AGENTS_PROGRESS=1`
shows it in any case, and `FLYTE_AGENTS_PROGRESS=0` in none.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from ._events import (
    ApprovalAnswered,
    Event,
    HandOff,
    MemoryNotice,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFinished,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Progress"]

SWITCH = "FLYTE_AGENTS_PROGRESS"
LONGEST_VALUE = 60  # characters of an argument: a path or a question can still be told by them


class Progress:
    """A listener that prints.

    Args:
        contents: Whether arguments, results and answers are shown.
    """

    def __init__(self, *, contents: bool) -> None:
        self._contents = contents
        self._turns: dict[str, int] = {}

    @classmethod
    def begin(cls, *, contents: bool, watched: bool) -> Progress | None:
        """Return what prints an agent run, or `None` where nobody would read it.

        Args:
            contents: Whether arguments, results and answers are shown.
            watched: Whether the caller watches the events.

        Raises:
            ValueError: The environment variable says neither yes nor no.
        """
        wanted = os.environ.get(SWITCH, "")
        if wanted not in ("", "0", "1"):
            raise ValueError(
                f"{SWITCH} is {wanted!r}; set it to 1 to see turns and tools as they happen, to 0 not to, or unset it."
            )
        if wanted == "0" or (wanted == "" and (watched or not _is_terminal(sys.stderr))):
            return None
        return cls(contents=contents)

    def __call__(self, event: Event) -> None:
        """Print an event, where it is one that people wait for."""
        line = self._line(event)
        if line is None:
            return
        console = _console()
        mark, style, text = line
        shown = _text(event.agent, mark, style, text, event.replayed, depth=1 if event.parent else 0)
        shown.truncate(console.width, overflow="ellipsis")
        console.print(shown, soft_wrap=True, highlight=False)

    def _line(self, event: Event) -> tuple[str, str, str] | None:
        """A sign, its style, and what to say."""
        match event:
            case RunStarted():
                return "▶", "bold", "goes on" if event.resumed else "begins"
            case TurnFinished():
                return self._turn(event)
            case ToolCallStarted():
                return "→", "cyan", f"{event.name}({self._arguments(event.arguments)})"
            case ToolCallRepeated():
                return "↻", "yellow", f"{event.name} was started before, and left no outcome: it runs again"
            case ToolCallFinished() if event.error is not None:
                return "✗", "red", f"{event.name} failed{self._said(event.error)} {_seconds(event.seconds)}"
            case ToolCallFinished():
                return "✓", "green", f"{event.name} {_seconds(event.seconds)}{self._said(event.result)}"
            case HandOff():
                return "⇒", "magenta", f"hands over to {event.target}"
            case ApprovalAnswered():
                return "?", "yellow", f"{event.action}: {event.decision}{f' by {event.by}' if event.by else ''}"
            case MemoryNotice():
                return "!", "yellow", event.message
            case RunFinished() if event.error is not None:
                return "✗", "bold red", f"failed{self._said(event.error)} {_seconds(event.seconds)}"
            case RunFinished():
                return "■", "bold", f"done {_seconds(event.seconds)}"
        return None  # pieces of text make turns, and questions to a person are put by who asks them

    def _turn(self, event: TurnFinished) -> tuple[str, str, str]:
        number = self._turns[event.run] = self._turns.get(event.run, 0) + 1
        what = f"turn {number} {_seconds(event.seconds)}, {event.usage.total_tokens} tokens"
        if event.error is not None:
            return "✗", "red", f"turn {number} failed{self._said(event.error)}"
        if event.tool_calls:
            return "●", "blue", f"{what}: calls {', '.join(event.tool_calls)}"
        return "●", "blue", f"{what}{self._said(event.text)}"

    def _said(self, text: str) -> str:
        return f": {text}" if self._contents and text else ""

    def _arguments(self, arguments: object) -> str:
        if not self._contents:
            return ""
        if not isinstance(arguments, dict):
            return _short(arguments)
        return ", ".join(f"{name}={_short(value)}" for name, value in arguments.items())


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether a person reads this: Flyte's own full-screen display puts a stream in its place that is none."""
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError, AttributeError):  # closed, or something that is in memory
        return False


def _console() -> Console:
    """Standard error as it is now. Its colours are left out where it is no terminal, and with `NO_COLOR`."""
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))  # Rich would leave bold and dim
    return Console(file=sys.stderr, color_system=None if plain else "auto", highlight=False, emoji=False, markup=False)


def _text(agent: str, mark: str, style: str, said: str, replayed: bool, *, depth: int) -> Text:
    """One line. What models and tools say has no line breaks and steers no terminal."""
    from rich.text import Text

    line = Text("  " * depth, no_wrap=True, end="")
    line.append(f"{_printable(agent)} ", "dim")
    line.append(f"{mark} ", style)
    if replayed:
        line.append("(replayed) ", "dim")
    line.append(_printable(said))
    return line


def _printable(text: str) -> str:
    """The first characters of a text, without what is no character on a line."""
    return "".join(one if one.isprintable() else " " for one in text[:1000])


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else f'"{value[: LONGEST_VALUE + 1]}"'
    return text if len(text) <= LONGEST_VALUE + 2 else f"{text[:LONGEST_VALUE]}…"


def _seconds(seconds: float) -> str:
    return f"({seconds:.1f} s)"
