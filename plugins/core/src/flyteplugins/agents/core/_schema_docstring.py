"""What a docstring says of a tool: its description, and one description per parameter."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = ["DocstringUse", "ToolDocs", "parse_docstring"]

DocstringUse: TypeAlias = bool | Literal["google", "numpy", "sphinx"]
"""Whether a docstring is read; a style is named where it cannot be told from the text."""

# Any of these may open a section in one of the three styles; a docstring without them is all description, and then the
# docstring parser (a third of a second to import) is not needed.
_SECTION_HINT = re.compile(r"^[ \t]*(?:[\w ]+:[ \t]*$|-{3,}[ \t]*$|:\w+[^:\n]*:)", re.MULTILINE)
_GOOGLE_HEADER = re.compile(
    r"(?:args|arguments|params|parameters|keyword args|keyword arguments|other (?:args|arguments|params|parameters)"
    r"|returns|raises|exceptions|yields|receives|warns|warnings|attributes|examples?|notes?):\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class ToolDocs:
    """The parts of a docstring that a model is shown.

    Attributes:
        description: Summary and body, with notes and examples, without the sections about parameters, results and
            exceptions.
        parameters: Description by parameter name.
    """

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str | None, use: DocstringUse = True) -> ToolDocs:
    """Split a docstring in Google, NumPy or Sphinx style.

    Args:
        text: The raw docstring, or `None`.
        use: Its style, where it is known.

    Returns:
        Its parts; all empty when there is no docstring.
    """
    cleaned = inspect.cleandoc(text or "").strip()
    if not cleaned or not use:
        return ToolDocs()
    lines = cleaned.splitlines()
    if _GOOGLE_HEADER.fullmatch(lines[0]) and len(lines) > 1 and not lines[1].startswith((" ", "\t")):
        # A docstring that opens with a section: with no line at the margin, `cleandoc` took the indentation away.
        cleaned = "\n".join([lines[0], *(f"    {line}" for line in lines[1:])])
    if use is True and not _SECTION_HINT.search(cleaned):
        return ToolDocs(cleaned)

    import griffe

    # griffe wants an empty line above a Google header, and to detect a style a line break on both sides of a section.
    docstring = griffe.Docstring("\n" + _with_blank_line_above_headers(cleaned) + "\n")
    padded = griffe.Docstring(docstring.value)
    padded.value = f"\n{docstring.value}\n"
    inferred, _ = griffe.infer_docstring_style(padded, default="google")
    style = inferred if use is True else griffe.Parser(use)
    description: list[str] = []
    parameters: dict[str, str] = {}
    for section in docstring.parse(style, warnings=False):
        match section:
            case griffe.DocstringSectionText():
                description.append(section.value)
            case griffe.DocstringSectionParameters():  # "other parameters" is a subclass
                for parameter in section.value:
                    parameters[parameter.name.lstrip("*")] = inspect.cleandoc(parameter.description).strip()
            case griffe.DocstringSectionAdmonition():
                title = section.title or str(section.value.annotation).capitalize()
                description.append(f"{title}:\n{_indented(section.value.contents)}")
            case griffe.DocstringSectionExamples():
                examples = "\n\n".join(example for _, example in section.value)
                description.append(f"{section.title or 'Examples'}:\n{_indented(examples)}")
    return ToolDocs("\n\n".join(part.strip() for part in description).strip(), parameters)


def _with_blank_line_above_headers(text: str) -> str:
    lines = text.splitlines()
    result: list[str] = []
    for index, line in enumerate(lines):
        opens_block = index + 1 < len(lines) and lines[index + 1].startswith((" ", "\t"))
        if result and result[-1].strip() and opens_block and _GOOGLE_HEADER.fullmatch(line):
            result.append("")
        result.append(line)
    return "\n".join(result)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in inspect.cleandoc(text).splitlines())
