"""What was said, as a report shows it: cut to a size, or its hash and size alone.

Sizes are those of the page, in bytes of escaped UTF-8, since a page is what has to stay small: a quote is five bytes there.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Excerpt", "Text", "duration", "error_class", "plain", "size"]

MAX_KEPT = 8_000
"""How much of one text is kept for the page, in bytes of it."""

# What a browser would swallow becomes visible.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}

_ERROR_CLASS = re.compile(r"([A-Z]\w{0,80})(?=: )", re.ASCII)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The part of a text that a page shows.

    Attributes:
        text: That part.
        more: How many characters follow it.
    """

    text: str
    more: int


@dataclass(slots=True)
class Text:
    """Something that was said.

    Attributes:
        kept: Its beginning; empty where contents stay out of the report.
        characters: Its whole length, as it would be shown.
        bytes: Its whole size in UTF-8.
        sha256: Its hash in hexadecimal, where contents stay out of the report; else empty.
        weight: How many bytes of a page the kept part takes.
    """

    kept: str
    characters: int
    bytes: int
    sha256: str = ""
    weight: int = field(init=False)

    def __post_init__(self) -> None:
        self.weight = _weight(self.kept)

    @classmethod
    def of(cls, text: str, *, contents: bool) -> Text:
        """Take a text in.

        Args:
            text: The text, which may hold lone surrogates and control characters.
            contents: Whether it may be shown.
        """
        data = text.encode("utf-8", "backslashreplace")
        if not contents:
            return cls("", len(text), len(data), hashlib.sha256(data).hexdigest())
        beginning = plain(text[:MAX_KEPT])
        return cls(_cut(beginning, MAX_KEPT), len(beginning) + max(len(text) - MAX_KEPT, 0), len(data))

    @property
    def hidden(self) -> bool:
        """Whether contents stay out of the report."""
        return bool(self.sha256)

    def excerpt(self, limit: int) -> Excerpt:
        """The beginning that takes up to `limit` bytes of a page."""
        shown = _cut(self.kept, limit) if self.weight > limit else self.kept
        return Excerpt(shown, self.characters - len(shown))

    def shorten(self, limit: int) -> None:
        """Keep no more than takes `limit` bytes of a page, since it is an old one of very many."""
        if self.weight > limit:
            self.kept = _cut(self.kept, limit)
            self.weight = _weight(self.kept)


def plain(text: str) -> str:
    """The text with what no page can show made visible: lone surrogates and control characters."""
    return text.replace("\r\n", "\n").translate(_VISIBLE).encode("utf-8", "backslashreplace").decode()


def _escaped(text: str) -> Markup:
    from markupsafe import escape

    return escape(text)


def _weight(text: str) -> int:
    return len(_escaped(text).encode())


def _cut(text: str, limit: int) -> str:
    text = text[:limit]  # no character takes less than a byte
    if _weight(text) <= limit:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if _weight(text[:middle]) <= limit:
            fits = middle
        else:
            too_long = middle
    return text[:fits]


def error_class(error: str) -> str:
    """The class that an error's text begins with, as in `ValueError: no such city`, or nothing."""
    found = _ERROR_CLASS.match(error)
    return found[1] if found else ""


def duration(seconds: float) -> str:
    """Seconds as a person says them: `120 ms`, `3.4 s`, `2 min 5 s`, `1 h 20 min`."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def money(dollars: float) -> str:
    """US dollars as a person says them: `$0`, `$0.0123`, `$12.30`; what is less than the last digit says so."""
    if dollars == 0:
        return "$0"
    if 0 < dollars < 0.0001:
        return "less than $0.0001"
    return f"${dollars:,.4f}" if dollars < 1 else f"${dollars:,.2f}"


def size(number: int) -> str:
    """A number of bytes as a person says it: `512 bytes`, `1.2 kB`, `3.4 MB`."""
    if number < 1000:
        return f"{number} byte{'' if number == 1 else 's'}"
    for unit in ("kB", "MB"):
        number_of = number / (1000 if unit == "kB" else 1_000_000)
        if number_of < 999.95:
            return f"{number_of:.1f} {unit}"
    return f"{number / 1e9:.1f} GB"
