"""What a model sent, brought into the shape that its schema says, and said back to it where that fails."""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_core import ErrorDetails

from ._schema_json import REFERENCE, Schema, allows, branches, types_of

__all__ = ["Problem", "check_text", "describe", "problems_of", "read_arguments", "shape", "sentence"]

Path: TypeAlias = tuple[str | int, ...]

_MAX_DEPTH = 100  # containers in containers: pydantic's JSON parser gives up at 200, Flyte's type engine near there
_MAX_PROBLEMS = 10
_MAX_SHOWN = 80  # characters of a value that a message repeats
_PREAMBLE = re.compile(r"^(?:Input|Value error,|Assertion failed,) ")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the arguments.

    Attributes:
        path: Where: a parameter's name, then keys and indices.
        text: What was found and what is expected.
    """

    path: Path
    text: str


def read_arguments(arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
    """Read arguments from the form in which an SDK hands them over.

    Args:
        arguments: JSON text, a mapping, or nothing (`None`, an empty text or `null`) for a call without arguments.
            JSON text inside a JSON string counts as JSON text.

    Returns:
        A mapping by parameter name.

    Raises:
        ValueError: It is no JSON object; the message says what was found.
    """
    value: Any = arguments
    if isinstance(value, (bytes, bytearray)):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"The arguments are not UTF-8 text: {error}. Send one JSON object.") from error
    for _ in range(2):  # some models encode the object twice
        if isinstance(value, str):
            value = _load(value) if value.strip() else None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"The arguments have to be one JSON object; found {describe(value)}.")  # noqa: TRY004
    if unnamed := [key for key in value if not isinstance(key, str)]:
        raise ValueError(f"The name of an argument has to be a string; found {unnamed[0]!r}.")
    return dict(value)


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise ValueError(
            f"The arguments are not valid JSON: {error.msg} at line {error.lineno}, column {error.colno} (near {near!r}). "
            f"Send one JSON object."
        ) from error
    except RecursionError as error:
        raise ValueError(f"The arguments are nested too deeply; at most {_MAX_DEPTH} levels are read.") from error
    except ValueError as error:
        digits = sys.get_int_max_str_digits()
        raise ValueError(
            f"The arguments hold an integer of more than {digits} digits, which cannot be read."
        ) from error


def check_text(value: Any, path: Path) -> list[Problem]:
    """Find what no parser or transport takes: lone surrogates, and nesting without end."""
    problems: list[Problem] = []
    waiting: list[tuple[Any, Path]] = [(value, path)]
    while waiting:
        item, where = waiting.pop()
        if isinstance(item, str):
            if _SURROGATE.search(item):
                text = f"{describe(item)} holds half of a surrogate pair; write the whole character"
                problems.append(Problem(where, text))
        elif len(where) > _MAX_DEPTH:
            problems.append(
                Problem(where[: len(path) + 1], f"it is nested too deeply; at most {_MAX_DEPTH} levels are read")
            )
            break
        elif isinstance(item, dict):
            waiting += [(key, (*where, key)) for key in item if _SURROGATE.search(key)]
            waiting += [(child, (*where, key)) for key, child in item.items()]
        elif isinstance(item, list):
            waiting += [(child, (*where, index)) for index, child in enumerate(item)]
    return problems


def shape(
    value: Any,
    schema: Schema,
    definitions: Mapping[str, Schema],
    *,
    path: Path,
    parse_strings: bool,
    problems: list[Problem],
) -> Any:
    """Rewrite a JSON value to what pydantic reads for a schema.

    The URI of a Flyte file, directory or dataframe becomes the object that its class is made of; where such a file
    and a plain string are both allowed, a string is a URI. With `parse_strings`, JSON text that stands where only an
    object or an array is allowed is read.

    Args:
        value: A JSON value; it is not changed.
        schema: As generated, with its marks.
        definitions: What its references refer to.
        path: Where the value is.
        parse_strings: Whether JSON text is read.
        problems: Is appended to where something other than a URI stands for a file.

    Returns:
        The value, or a rewritten copy.
    """

    def inner(item: Any, part: Schema, key: str | int) -> Any:
        return shape(item, part, definitions, path=(*path, key), parse_strings=parse_strings, problems=problems)

    options = branches(schema, definitions)
    if attribute := next((option[REFERENCE] for option in options if REFERENCE in option), None):
        if isinstance(value, str):
            return {attribute: value}
        if isinstance(value, dict) and isinstance(value.get(attribute), str):
            return value
        if not any(REFERENCE not in option and allows(option, value, definitions) for option in options):
            problems.append(Problem(path, f"found {describe(value)}; expected a URI as a string"))
            return value
    if isinstance(value, str) and parse_strings:
        value = _parsed(value, options)
    if not isinstance(value, (dict, list)):
        return value
    fitting = [option for option in options if ("object" if isinstance(value, dict) else "array") in types_of(option)]
    if len(fitting) > 1:
        fitting = [option for option in fitting if allows(option, value, definitions)]
    if not fitting:
        return value
    chosen = fitting[0]
    if isinstance(value, list):
        first: Sequence[Schema] = chosen.get("prefixItems", ())
        rest: Schema = chosen.get("items") or {}
        return [
            inner(item, first[index] if index < len(first) else rest, index) if first or rest else item
            for index, item in enumerate(value)
        ]
    properties: dict[str, Schema] = chosen.get("properties", {})
    others = chosen.get("additionalProperties")
    if isinstance(others, dict):
        return {key: inner(item, properties.get(key, others), key) for key, item in value.items()}
    return {key: inner(item, properties[key], key) if key in properties else item for key, item in value.items()}


def _parsed(text: str, options: Sequence[Schema]) -> Any:
    """The object or array that a JSON text holds, if nothing but such may stand here."""
    types = set[str]().union(*(types_of(option) or {"string"} for option in options))  # no type: may be a string
    wanted = {"object": dict, "array": list}
    if "string" in types or not types & wanted.keys():
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text  # the type's own error says what is expected
    if check_text(value, ()):
        return text
    return value if any(isinstance(value, wanted[name]) for name in types & wanted.keys()) else text


def problems_of(errors: Iterable[ErrorDetails], arguments: Mapping[str, Any], known: Collection[str]) -> list[Problem]:
    """Turn pydantic's errors into problems, one for each place.

    Args:
        errors: From `ValidationError.errors()`.
        arguments: What was validated.
        known: The names of all parameters.
    """
    expectations: dict[Path, list[str]] = {}
    problems: list[Problem] = []
    absent: list[str] = []
    for error in errors:
        path = _path_in(error["loc"], arguments)
        match error["type"]:
            case "missing" | "missing_argument" | "missing_keyword_only_argument":
                name = error["loc"][-1]
                if path:
                    problems.append(Problem((*path, name), "is required, but missing"))
                else:
                    absent.append(str(name))
            case "extra_forbidden" | "unexpected_keyword_argument":
                problems.append(Problem(path, _unknown(path, known)))
            case _ if error["loc"][-1:] == ("[key]",):
                problems.append(Problem(path[:-1], f"its key {path[-1]!r} {_PREAMBLE.sub('', error['msg'])}"))
            case _:
                expectations.setdefault(path, []).append(_PREAMBLE.sub("", error["msg"]))
    if absent:
        problems.append(Problem((), f"required, but missing: {', '.join(absent)}"))
    for path, texts in expectations.items():
        joined = "; or ".join(dict.fromkeys(texts))
        problems.append(Problem(path, f"{joined} (found {describe(_at(arguments, path))})"))
    order = {name: index for index, name in enumerate(known)}  # what is unknown or missing comes first
    return sorted(problems, key=lambda problem: order.get(str(problem.path[0]) if problem.path else "", -1))


def _unknown(path: Path, known: Collection[str]) -> str:
    if len(path) != 1:
        return "is not a known field"
    if not known:
        return "is not a known argument; this tool takes none"
    close = difflib.get_close_matches(str(path[0]), known, n=1)
    names = f"nown arguments: {', '.join(known)}"
    return "is not a known argument; " + (f"did you mean {close[0]!r}? K{names}" if close else f"k{names}")


def _path_in(location: Sequence[str | int], arguments: Any) -> Path:
    """The steps of a location that lead through the value; pydantic mixes names of union members and the like in."""
    path: list[str | int] = []
    current = arguments
    for step in location:
        steps = current if isinstance(current, dict) else range(len(current)) if isinstance(current, list) else ()
        if step in steps:
            path.append(step)
            current = _at(current, (step,))
    return tuple(path)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def sentence(tool: str, problems: Sequence[Problem]) -> str:
    """Write problems down for a model, one a line."""
    lines = [f"- {_path_text(problem.path)}{problem.text}." for problem in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"- and {len(problems) - _MAX_PROBLEMS} more.")
    return _encodable(f"The arguments of {tool!r} are not valid:\n" + "\n".join(lines))


def _path_text(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return f"{text}: " if text else text


def describe(value: Any) -> str:
    """Say what a JSON value is, shortened."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {_short(value)}"
        case int() | float():
            return f"the number {_short(value)}"
        case list():
            return f"the list {_short(value)}"
        case dict():
            return f"the object {_short(value)}"
    return f"a {type(value).__qualname__}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    return _encodable(text)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
