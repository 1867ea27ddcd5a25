"""Messages and values as JSON: what JSON has no word for is tagged, and comes back as it was."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import cast

from .._canonical import JSON, UnserializableError
from .._records import payload_text

__all__ = ["dump_value", "load_value"]

_MAX_DEPTH = 200  # below the interpreter's recursion limit, so that depth is our error and not a crash


def dump_value(value: object, *, path: str) -> bytes:
    """Write a value as JSON text.

    Args:
        value: JSON values and bytes, nested in any way. A tuple is written as a list.
        path: What to call the value in an error.

    Raises:
        UnserializableError: A part of it is something else; the message names the path to it.
    """
    return payload_text(_packed(value, path, 0)).encode()


def load_value(data: bytes) -> JSON:
    """Read what `dump_value` wrote; bytes come back as bytes.

    Raises:
        ValueError: It is not JSON.
    """
    value = cast(JSON, json.loads(data))
    return cast(JSON, _unpacked(value)) if b'{"$' in data else value


def _packed(value: object, path: str, depth: int) -> JSON:
    if depth > _MAX_DEPTH:
        raise UnserializableError(path, f"it is nested more than {_MAX_DEPTH} levels deep, or contains itself")
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": repr(float(value))}
        case bytes() | bytearray() | memoryview():
            return {"$bytes": base64.b64encode(bytes(value)).decode()}
        case Mapping():
            packed: dict[str, JSON] = {}
            for key, item in value.items():
                if not isinstance(key, str):
                    raise UnserializableError(path, f"the key {key!r} is a {type(key).__qualname__}, not a string")
                packed[key] = _packed(item, f"{path}.{key}", depth + 1)
            return {"$mapping": packed} if _looks_tagged(packed) else packed
        case list() | tuple():
            return [_packed(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise UnserializableError(
        path, f"it is a {type(value).__module__}.{type(value).__qualname__}. Give JSON values and bytes."
    )


def _unpacked(value: JSON) -> object:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _looks_tagged(value):
        [(tag, item)] = value.items()
        match tag, item:
            case "$bytes", str():
                return base64.b64decode(item)
            case "$float", str():
                return float(item)
            case "$mapping", dict():
                return {key: _unpacked(inner) for key, inner in item.items()}
        raise ValueError(f"{tag!r} is not a tag of this version")
    return {key: _unpacked(item) for key, item in value.items()}


def _looks_tagged(value: Mapping[str, JSON]) -> bool:
    return len(value) == 1 and next(iter(value)).startswith("$")
