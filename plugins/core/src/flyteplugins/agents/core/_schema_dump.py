"""Native values as JSON that is the same in every process, by the serializers that pydantic has for their types."""

from __future__ import annotations

import collections
import copy
import dataclasses
import json
import math
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from pydantic import BaseModel

from ._render import file_reference, plain

__all__ = ["stable_dump"]


def stable_dump(value: Any, dump: Callable[[Any], Any]) -> Any:
    """Dump a value so that equal values give equal JSON.

    Pydantic writes a set in the order of its hashes and a Flyte file as an object; here a set is sorted by the JSON
    of its items, a mapping by its keys, and a Flyte file, directory or dataframe is its URI.

    Args:
        value: What to dump; it is not changed.
        dump: Called with a copy of `value`; returns JSON values.

    Returns:
        What `dump` returned, with URIs in place.

    Raises:
        ValueError: A Flyte file, directory or dataframe has no URI.
    """
    # Pydantic's serializers turn a file into an object of its fields, also where its type is not known beforehand. A
    # mark that nobody can guess tells these objects from a caller's own data.
    mark = f"{uuid.uuid4().hex}:"
    return _unmark(dump(_settle(value, mark)), mark)


def _settle(value: Any, mark: str) -> Any:
    """Copy a value with its sets and mappings in order, its URIs marked, and no float that JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else plain(value)
    if isinstance(value, BaseModel):
        if attribute := file_reference(value):
            uri = getattr(value, attribute)
            if not isinstance(uri, str):
                raise ValueError(f"a {type(value).__name__} has no URI: it is not stored yet")
            return value.model_copy(update={attribute: mark + uri})
        fields = {**value.__dict__, **(value.model_extra or {})}
        return value.model_copy(update={name: _settle(item, mark) for name, item in fields.items()})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        copied = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(copied, field.name, _settle(getattr(value, field.name), mark))
        return copied
    if isinstance(value, tuple):
        items = [_settle(item, mark) for item in value]
        names = getattr(value, "_fields", None)
        return tuple(items) if names is None else dict(zip(names, items, strict=True))
    if isinstance(value, (list, collections.deque)):
        return [_settle(item, mark) for item in value]
    if isinstance(value, AbstractSet):
        return [_settle(item, mark) for item in sorted(value, key=_order)]
    if isinstance(value, Mapping):
        return {key: _settle(item, mark) for key, item in sorted(value.items(), key=lambda pair: _order(pair[0]))}
    return value


def _order(value: object) -> str:
    return json.dumps(plain(value), sort_keys=True)


def _unmark(dumped: Any, mark: str) -> Any:
    if isinstance(dumped, dict):
        for item in dumped.values():
            if isinstance(item, str) and item.startswith(mark):
                return item.removeprefix(mark)
        return {key: _unmark(item, mark) for key, item in dumped.items()}
    if isinstance(dumped, list):
        return [_unmark(item, mark) for item in dumped]
    return dumped
