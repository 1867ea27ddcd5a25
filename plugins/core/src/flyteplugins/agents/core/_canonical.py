"""Canonical JSON, digests, and the keys of leaves.

A key has to be equal in any process, under any `PYTHONHASHSEED` and at any time of day, and different for every request
that a model would see differently. It is the SHA-256 of canonical JSON: RFC 8785 where it applies (sorted keys, no white
space, UTF-8, ECMAScript numbers), and a tagged form for the values that JSON has no word for.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import hashlib
import json
import marshal
import math
import pathlib
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import rfc8785

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "JSON",
    "SeenRequest",
    "UnserializableError",
    "canonical_json",
    "digest",
    "fingerprint",
    "jsonable",
    "rename_generated_ids",
]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
"""A value that `json` can write as it is."""

KEY_FORMAT = "flyte-agents-key/1"
"""Part of every key. A change in how keys are made needs a new number, or runs in flight would miss silently."""

_MAX_SAFE_INTEGER = 2**53 - 1  # RFC 8785 numbers are IEEE 754 doubles
_MAX_DEPTH = 200  # below the interpreter's recursion limit, so that depth is our error and not a crash
_MARSHAL_VERSION = 2  # without references between equal parts, so that equal values look the same
_ITEMS = b"items:"  # what the digest of a list begins with
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


class UnserializableError(TypeError):
    """A value has no canonical JSON form. The message names the path to it.

    Attributes:
        path: Where the value is, such as `tools[2].parameters`.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(f"{path or 'the value'} cannot be made canonical JSON: {problem}")


class _Canonicalizer:
    """Turns a Python value into a tree of JSON values, tagging what JSON cannot express."""

    def __init__(self) -> None:
        self.exotic = False  # whether the C encoder and RFC 8785 would write the tree differently

    def tree(self, value: object, path: str, depth: int = 0) -> JSON:
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is str:
            return self._text(value)  # type: ignore[arg-type]  # an exact str
        if kind is int:
            return self._integer(value)  # type: ignore[arg-type]  # an exact int
        if kind is float:
            return self._number(value)  # type: ignore[arg-type]  # an exact float
        if depth > _MAX_DEPTH:
            raise UnserializableError(path, f"it is nested more than {_MAX_DEPTH} levels deep, or contains itself")
        if isinstance(value, Mapping):
            return self._mapping(value, path, depth)
        if isinstance(value, (list, tuple)):
            return [self.tree(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        return self._other(value, path, depth)

    def _text(self, value: str) -> JSON:
        if value.isascii() or not _SURROGATE.search(value):
            return value
        return {"$utf16": base64.b64encode(value.encode("utf-16-le", "surrogatepass")).decode()}

    def _integer(self, value: int) -> JSON:
        return value if -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER else {"$int": str(value)}

    def _number(self, value: float) -> JSON:
        if not math.isfinite(value):
            return {"$float": repr(value)}
        self.exotic = True
        return value

    def _mapping(self, value: Mapping[object, object], path: str, depth: int) -> JSON:
        result: dict[str, JSON] = {}
        for key, item in value.items():
            if isinstance(key, enum.Enum):
                key = key.value
            name = _key_text(key, path)
            if name in result:
                raise UnserializableError(path, f"two of its keys are both written {name!r} in JSON")
            if not name.isascii() and _ASTRAL.search(name):
                self.exotic = True  # RFC 8785 sorts by UTF-16 code units, Python by code points
            result[name] = self.tree(item, f"{path}.{name}" if path else name, depth + 1)
        if len(result) == 1 and next(iter(result)).startswith("$"):
            return {"$mapping": result}  # somebody's own data that looks like one of our tags
        return result

    def _other(self, value: object, path: str, depth: int) -> JSON:
        match value:
            case enum.Enum():
                return self.tree(value.value, path, depth + 1)
            case str():
                return self._text(str.__str__(value))
            case int():
                return self._integer(int(value))
            case float():
                return self._number(float(value))
            case bytes() | bytearray() | memoryview():
                return {"$bytes": base64.b64encode(bytes(value)).decode()}
            case _ if (model := _as_model(value)) is not None:
                return self.tree(model.model_dump(mode="python", by_alias=True, warnings=False), path, depth + 1)
            case datetime.datetime() | datetime.date() | datetime.time():
                return {"$time": value.isoformat()}
            case datetime.timedelta():
                return {"$microseconds": str(value // datetime.timedelta(microseconds=1))}
            case decimal.Decimal():
                return {"$decimal": str(value)}
            case uuid.UUID() | pathlib.PurePath():
                return str(value)
            case type():
                return {"$type": f"{value.__module__}.{value.__qualname__}"}
            case AbstractSet():
                items = [self.tree(item, f"{path}{{}}", depth + 1) for item in value]
                return {"$set": sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}
            case Sequence():
                return [self.tree(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        if dataclasses.is_dataclass(value):  # an instance: types were matched above
            fields: dict[object, object] = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
            return self._mapping(fields, path, depth)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise UnserializableError(
            path,
            f"it is a {kind}. Use JSON values, pydantic models, dataclasses or the standard library's value types.",
        )


def _key_text(key: object, path: str) -> str:
    """What `json` writes for a mapping's key."""
    match key:
        case str():
            if _SURROGATE.search(key):
                raise UnserializableError(path, f"the key {key!r} has a lone surrogate")
            return str.__str__(key)
        case bool():
            return "true" if key else "false"
        case None:
            return "null"
        case int():
            return str(int(key))
        case float():
            return repr(float(key))
    raise UnserializableError(path, f"the key {key!r} is a {type(key).__qualname__}, not a string")


def canonical_json(value: object, *, path: str = "") -> bytes:
    """Write a value as canonical JSON.

    Args:
        value: JSON values, pydantic models (all fields, by alias), dataclasses, enums, bytes, dates, decimals,
            UUIDs, paths, sets and classes, nested in any way.
        path: What to call the value in an error.

    Returns:
        UTF-8 bytes, equal for equal values in every process. Plain JSON within the range of RFC 8785 is written as RFC
        8785 says; other values are written as an object with one key that starts with `$`.

    Raises:
        UnserializableError: Part of the value has no canonical form.
    """
    canonicalizer = _Canonicalizer()
    tree = canonicalizer.tree(value, path)
    if canonicalizer.exotic:
        return rfc8785.dumps(tree)
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def jsonable(value: object) -> JSON:
    """Turn a value into plain JSON values by the rules of `canonical_json`.

    Args:
        value: Anything that `canonical_json` takes.

    Raises:
        UnserializableError: Part of the value has no canonical form.
    """
    return _Canonicalizer().tree(value, "")


def digest(value: object, *, path: str = "") -> str:
    """Hash a value.

    A list is hashed over the hashes of its items, so that a conversation that grew by one message costs one message.

    Args:
        value: Anything that `canonical_json` takes.
        path: What to call the value in an error.

    Returns:
        64 hexadecimal digits of SHA-256.

    Raises:
        UnserializableError: Part of the value has no canonical form.
    """
    if isinstance(value, (list, tuple)):
        hasher = hashlib.sha256(_ITEMS)
        for index, item in enumerate(value):
            hasher.update(_item_digest(item, path, index))
        return hasher.hexdigest()
    return hashlib.sha256(canonical_json(value, path=path)).hexdigest()


_KNOWN_ITEMS: dict[bytes, bytes] = {}
"""SHA-256 of items' canonical JSON, by SHA-256 of their marshalled form: each turn asks with all of the conversation."""

_MAX_KNOWN_ITEMS = 32_768  # some MB


def _item_digest(item: object, path: str, index: int) -> bytes:
    """Hash an item of a list. One that was hashed before is recognized by its marshalled form, ten times as fast.

    Equal marshalled forms are equal values, down to types and the order of keys; what cannot be marshalled is no plain value, and
    is hashed each time.
    """
    try:
        known = hashlib.sha256(marshal.dumps(cast(Any, item), _MARSHAL_VERSION)).digest()
    except ValueError:
        return hashlib.sha256(canonical_json(item, path=f"{path}[{index}]")).digest()
    found = _KNOWN_ITEMS.get(known)
    if found is None:
        found = hashlib.sha256(canonical_json(item, path=f"{path}[{index}]")).digest()
        if len(_KNOWN_ITEMS) >= _MAX_KNOWN_ITEMS:
            _KNOWN_ITEMS.clear()
        _KNOWN_ITEMS[known] = found
    return found


class _Number:
    """Equal to one number, and to no other that Python calls equal to it: 1, 1.0 and True are not one in JSON."""

    __slots__ = ("_kind", "_text")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: float) -> None:
        self._kind = type(value)
        self._text = repr(value)

    def __eq__(self, other: object) -> bool:
        return type(other) is self._kind and repr(other) == self._text


class _NotPlainError(Exception):
    """A value holds something that may be changed, or may say that it equals what it does not."""


def _plain_copy(value: object) -> object:
    """Copy a value, so that it equals later ones that have the same canonical JSON. Texts are shared, not copied."""
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind is bool or kind is int or kind is float:
        return _Number(cast(float, value))
    if kind is list:
        return [_plain_copy(item) for item in cast("list[object]", value)]
    if kind is dict and all(type(key) is str for key in cast("dict[object, object]", value)):
        return {key: _plain_copy(item) for key, item in cast("dict[str, object]", value).items()}
    raise _NotPlainError


class _Unseen:
    """Equals nothing: stands for a value that is looked at anew each time."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


_UNSEEN = _Unseen()


class SeenRequest:
    """The latest request of a line of work, with its digests: the next one is mostly the same.

    Comparing a conversation with a copy that shares its texts takes a fraction of a microsecond a message, whatever their length;
    only what is new is written as JSON and hashed.
    """

    def __init__(self) -> None:
        self._lists: dict[str, tuple[list[object], list[bytes]]] = {}
        self._values: dict[str, tuple[object, str]] = {}

    def digest(self, value: object, *, path: str) -> str:
        """What `digest` says of one field.

        Args:
            value: The field's value.
            path: Its name.

        Raises:
            UnserializableError: Part of the value has no canonical form.
        """
        if isinstance(value, (list, tuple)):
            return self._digest_list(value, path)
        known = self._values.get(path)
        if known is not None and _equals(known[0], value):
            return known[1]
        found = digest(value, path=path)
        self._values[path] = _copy_or_unseen(value), found
        return found

    def _digest_list(self, items: Sequence[object], path: str) -> str:
        copies, digests = self._lists.setdefault(path, ([], []))
        del copies[len(items) :], digests[len(items) :]
        known = len(copies)
        changed = [] if _equals(copies, list(items[:known])) else range(known)  # mostly it takes one comparison
        for index in changed:
            if not _equals(copies[index], items[index]):
                digests[index], copies[index] = _item_digest(items[index], path, index), _copy_or_unseen(items[index])
        for index in range(known, len(items)):
            found = _item_digest(items[index], path, index)
            copies.append(_copy_or_unseen(items[index]))
            digests.append(found)
        return hashlib.sha256(_ITEMS + b"".join(digests)).hexdigest()


def _equals(known: object, value: object) -> bool:
    try:
        return known == value
    except Exception:  # noqa: BLE001 - a value may compare as it likes (an array does so by element): then it is looked at anew
        return False


def _copy_or_unseen(value: object) -> object:
    try:
        return _plain_copy(value)
    except (_NotPlainError, RecursionError):
        return _UNSEEN


def fingerprint(fields: Mapping[str, object], seen: SeenRequest | None = None) -> tuple[str, dict[str, str]]:
    """Make the key of a request.

    Args:
        fields: The whole semantic request, by the names that a person would use for its parts: `model`, `settings`,
            `instructions`, `tools`, `messages`, ...
        seen: What was asked before in the same line of work, which makes the same key faster. It then holds this request.

    Returns:
        The key (64 hexadecimal digits), and a digest per field, by which two requests can be compared later.

    Raises:
        UnserializableError: A field has no canonical form; the message names the path.
    """
    make = digest if seen is None else seen.digest
    digests = {name: make(value, path=name) for name, value in sorted(fields.items())}
    return hashlib.sha256(canonical_json({"format": KEY_FORMAT, "fields": digests})).hexdigest(), digests


def rename_generated_ids(value: JSON, is_generated: Callable[[str, str], str | None]) -> JSON:
    """Replace identifiers that an SDK made up by the order in which they first appear.

    Two runs of one conversation differ in such identifiers and in nothing else; renaming keeps which message answers which
    call. What merely looks like an identifier inside somebody's text stays.

    Args:
        value: Messages, as JSON values.
        is_generated: Called with the name of the field that holds a string and with the string itself (for a string in a
            list, the name of the list's field); returns a short word for its kind when the SDK made it up, else `None`.

    Returns:
        A copy in which each such string is `<kind>#<n>`.
    """
    names: dict[str, str] = {}
    counts: dict[str, int] = {}

    def walk(node: JSON, field: str) -> JSON:
        if isinstance(node, str):
            kind = is_generated(field, node)
            if kind is None:
                return node
            if node not in names:
                counts[kind] = counts.get(kind, -1) + 1
                names[node] = f"{kind}#{counts[kind]}"
            return names[node]
        if isinstance(node, list):
            return [walk(item, field) for item in node]
        if isinstance(node, dict):
            return {key: walk(item, key) for key, item in node.items()}
        return node

    return walk(value, "")


def _as_model(value: object) -> BaseModel | None:
    """The value, if it is a pydantic model: then somebody has imported pydantic, which takes a while."""
    pydantic = sys.modules.get("pydantic")
    return value if pydantic is not None and isinstance(value, pydantic.BaseModel) else None
