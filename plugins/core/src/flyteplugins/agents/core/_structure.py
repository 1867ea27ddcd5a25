"""Events without contents, for `observability="structure"`: who did what and how long, sizes and hashes of what was said."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from ._canonical import JSON, UnserializableError, digest
from ._events import Event
from ._report._texts import error_class

__all__ = ["without_contents"]


_NAMES = frozenset(
    {"run", "agent", "parent", "parent_run", "name", "model", "call", "action", "digest", "request", "source", "target"}
)
"""Fields of text that are structure."""


def without_contents(event: Event) -> Event:
    """The event with each content replaced by its size and SHA-256; of an error, its class stays.

    Args:
        event: Any event. What is not known to be structure is taken for contents.
    """
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name == "error":
            changes["error"] = None if value is None else error_class(value) or "Error"
        elif field.name == "arguments":
            changes["arguments"] = None if value is None else _told(value)
        elif isinstance(value, str) and field.name not in _NAMES:
            changes[field.name] = _told(value) if value else ""
    return dataclasses.replace(event, **changes)


def _told(value: JSON) -> str:
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return f"({len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:16]})"
    try:
        return f"(SHA-256 {digest(value)[:16]})"
    except UnserializableError:
        return "(no canonical form)"
