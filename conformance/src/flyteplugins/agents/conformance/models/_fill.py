"""Plausible, deterministic values for a JSON schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WORDS = {
    "city": "Lisbon",
    "location": "Lisbon",
    "country": "Portugal",
    "name": "Ada",
    "title": "A short title",
    "email": "ada@example.com",
    "url": "https://example.com/",
    "currency": "EUR",
    "unit": "celsius",
    "language": "English",
    "condition": "sunny",
    "date": "2025-06-01",
    "summary": "A short summary.",
    "description": "A short description.",
    "reason": "It fits the question.",
    "topic": "travel",
}
_FORMATS = {
    "date": "2025-06-01",
    "date-time": "2025-06-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}


def fill(schema: Mapping[str, Any], known: Mapping[str, object] | None = None, name: str = "") -> Any:
    """Return a value that satisfies `schema`.

    Args:
        schema: A JSON schema as SDKs write them: types, enum, const, properties, items, anyOf, allOf, `$ref` into
            `$defs`, numeric and length limits, common formats. Patterns are not looked at.
        known: Values to prefer for properties of these names, where they have the right type.
        name: The property's name, if the value is one.
    """
    return _Filler(schema, dict(known or {})).value(schema, name, 0)


class _Filler:
    def __init__(self, root: Mapping[str, Any], known: Mapping[str, object]) -> None:
        self.root = root
        self.known = known

    def value(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        schema = self.resolved(schema)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            hint = self.known.get(name)
            return hint if hint in schema["enum"] else schema["enum"][0]
        for union in ("anyOf", "oneOf"):
            if options := schema.get(union):
                real = [o for o in options if self.resolved(o).get("type") not in ("null", "NULL")] or options
                plain = [o for o in real if self.resolved(o).get("type") not in ("object", "array")]
                return self.value((plain or real)[0] if depth > 4 else real[0], name, depth)
        kind = self.kind(schema)
        hint = self.known.get(name)
        if kind == "object":
            return self.mapping(schema, depth)
        if kind == "array":
            return self.array(schema, name, depth)
        if kind == "boolean":
            return hint if isinstance(hint, bool) else True
        if kind in ("integer", "number"):
            return self.number(schema, hint, whole=kind == "integer")
        if kind == "null":
            return None
        return self.string(schema, name, hint)

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            target: Any = self.root
            for part in str(schema["$ref"]).removeprefix("#").strip("/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")] if part else target
            schema = target
        if merged := schema.get("allOf"):
            out: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
            for part in merged:
                out.update(self.resolved(part))
            return out
        return schema

    def kind(self, schema: Mapping[str, Any]) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((k for k in kind if str(k).lower() != "null"), "null")
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
        return str(kind).lower()  # Gemini spells types in capitals

    def mapping(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = schema.get("required", [])
        # Optional parts are left out deep inside, or a recursive schema would have no end.
        return {n: self.value(s, n, depth + 1) for n, s in properties.items() if n in required or depth < 3}

    def array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        singular = name[:-1] if name.endswith("s") else name
        if prefix := schema.get("prefixItems"):
            return [self.value(s, singular, depth + 1) for s in prefix]
        least = int(schema.get("minItems", 0))
        count = max(least, 0 if depth > 4 else min(2, int(schema.get("maxItems", 2))))
        values = [self.value(schema.get("items") or {}, singular, depth + 1) for _ in range(count)]
        if schema.get("uniqueItems") or all(isinstance(v, str) for v in values):
            values = [f"{v} {i + 1}" if isinstance(v, str) and i else v for i, v in enumerate(values)]
        return values

    def number(self, schema: Mapping[str, Any], hint: object, *, whole: bool) -> float:
        value: float = hint if isinstance(hint, int | float) and not isinstance(hint, bool) else 21
        low, high = schema.get("minimum"), schema.get("maximum")
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        step = schema.get("multipleOf") or 1
        if isinstance(above, int | float):
            low = above + step if low is None else max(low, above + step)
        if isinstance(below, int | float):
            high = below - step if high is None else min(high, below - step)
        if low is not None:
            value = max(value, low)
        if high is not None:
            value = min(value, high)
        if schema.get("multipleOf"):
            value = -(-value // step) * step
        return int(value) if whole or value == int(value) else value

    def string(self, schema: Mapping[str, Any], name: str, hint: object) -> str:
        if isinstance(hint, str):
            value = hint
        elif (form := schema.get("format")) in _FORMATS:
            value = _FORMATS[str(form)]
        else:
            words = re.findall(r"[a-z]+", name.lower())
            value = next((_WORDS[w] for w in words if w in _WORDS), f"some {name or 'text'}".replace("_", " "))
        value = value.ljust(int(schema.get("minLength", 0)), ".")
        return value[: int(schema["maxLength"])] if "maxLength" in schema else value
