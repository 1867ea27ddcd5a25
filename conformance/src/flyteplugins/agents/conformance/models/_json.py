"""JSON helpers that every other module shares: canonical text, digests and deterministic ids."""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""One decoded JSON object. Its shape is a provider's, and checked by `_sdk_types`."""


def compact(value: object) -> str:
    """Return `value` as JSON without white space, keys in their own order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def canonical(value: object) -> str:
    """Return `value` as JSON without white space and with sorted keys, so that equal values have equal text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def digest(*parts: object) -> str:
    """Return a SHA-256 (hex) of the canonical JSON of `parts`."""
    return hashlib.sha256(canonical(parts).encode("utf-8", "surrogatepass")).hexdigest()


def parse_arguments(arguments: object) -> object:
    """Return a tool call's arguments as data: JSON text is decoded, anything else is returned as it is.

    Text that is not JSON stays text: what to make of a model's broken arguments is the caller's business.
    """
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
