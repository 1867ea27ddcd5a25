"""Checks a request body against the request types that the provider's own SDK ships, where that SDK is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a third of the package's import time, and needed by strict servers only
    from pydantic_core import SchemaValidator, ValidationError

Location = tuple[int | str, ...]


def sdk_type(path: str) -> Callable[[], object]:
    """Return a loader of one SDK type.

    Args:
        path: `package.module:Name`.
    """
    module, _, name = path.partition(":")

    def load() -> object:
        return getattr(importlib.import_module(module), name)

    return load


class BodyType:
    """The type of a request body, built on first use.

    Two things are made stricter than the SDK's own types: a field that the type does not know is an error (providers
    answer "unknown parameter"), and iterables are checked at once.

    Args:
        load: Returns the type; an `ImportError` from it means that the SDK is not installed.
        also: Top-level fields that the provider takes and the type does not list.
    """

    def __init__(self, load: Callable[[], object], also: frozenset[str] = frozenset()) -> None:
        self._load = load
        self._also = also

    @cached_property
    def _validator(self) -> SchemaValidator | None:
        from pydantic import TypeAdapter
        from pydantic_core import SchemaValidator

        try:
            wanted: Any = self._load()
        except ImportError:
            return None
        return SchemaValidator(_tightened(TypeAdapter(wanted).core_schema))

    @property
    def available(self) -> bool:
        """Whether the SDK is installed, so that `problem` can find one."""
        return self._validator is not None

    def problem(self, body: object) -> tuple[str, str] | None:
        """Say what is wrong with `body`: (where, what), or `None` when it fits or the SDK is not installed."""
        from pydantic_core import ValidationError

        if self._validator is None:
            return None
        if isinstance(body, Mapping):
            body = {k: v for k, v in body.items() if k not in self._also}
        try:
            self._validator.validate_python(body)
        except ValidationError as error:
            return _told(body, error)
        return None


def _tightened(schema: Any) -> Any:
    """Copy a core schema: typed dicts and models refuse unknown fields, lazily checked iterables become lists."""
    if isinstance(schema, Mapping):
        out = {k: v if k in ("metadata", "serialization") else _tightened(v) for k, v in schema.items()}
        kind = out.get("type")
        if kind in ("typed-dict", "model-fields", "model") and isinstance(out.get("config", {}), Mapping):
            config = dict(out.get("config", {}))
            # A type that says it takes any field keeps doing so.
            if "allow" not in (out.get("extra_behavior"), config.get("extra_fields_behavior")):
                if kind == "model":
                    # A model's own class comes with a validator, built before this change, that would be used instead.
                    out["cls"] = _stand_in(out["cls"])
                    out["custom_init"] = False
                if kind != "model-fields":
                    out["config"] = {**config, "extra_fields_behavior": "forbid"}
                if kind == "typed-dict":
                    out["extra_behavior"] = "forbid"
        if kind == "generator":
            out["type"] = "list"
        return out
    if isinstance(schema, list):
        return [_tightened(item) for item in schema]
    if isinstance(schema, tuple):
        return tuple(_tightened(item) for item in schema)
    return schema


def _stand_in(model: type) -> type:
    """Return a plain class in place of a model; instances of the model, which some validators make, pass as its own."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, model) or super().__instancecheck__(instance)

    slots = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
    return Meta(model.__name__, (), {"__slots__": slots})


def _told(body: object, error: ValidationError) -> tuple[str, str]:
    """Pick, from a validation error with a line for every branch of every union, the line that explains it."""
    lines = [(*_split(body, e["loc"]), e) for e in error.errors(include_url=False, include_context=False)]
    # A branch whose `type`, `role` or other constant is another one was never meant.
    foreign = [line for line in lines if line[2]["type"] == "literal_error" or _lacks_type(line)]
    meant = [line for line in lines if not any(line[1][: len(b)] == b for _, b, _ in foreign)]
    deepest = max((len(p) for p, _, _ in meant), default=-1)
    if foreign and max(len(p) - 1 for p, _, _ in foreign) > deepest:
        # Every branch for this part of the body wants another constant: the constant is what is wrong.
        constants = [p for p, _, e in foreign if e["type"] == "literal_error"] or [p for p, _, _ in foreign]
        path = max(constants, key=lambda p: (len(p), constants.count(p)))
        value = next(e["input"] for p, _, e in foreign if p == path)
        return _path(path), f"no request type of the SDK allows {_shown(value)} here"
    candidates = [line for line in meant if len(line[0]) == deepest]
    branches = [b for _, b, _ in candidates]
    path, _, best = min(candidates, key=lambda line: branches.count(line[1]))
    if best["type"] == "extra_forbidden":
        return _path(path), "unknown field"
    if best["type"] == "missing":
        return _path(path), "this field is required"
    return _path(path), f"{best['msg'][0].lower()}{best['msg'][1:]}; got {_shown(best['input'])}"


def _lacks_type(line: tuple[Location, Location, Any]) -> bool:
    return line[2]["type"] == "missing" and line[0][-1:] == ("type",)


def _split(body: object, location: Sequence[int | str]) -> tuple[Location, Location]:
    """Split an error's location into the path in the body and the names of the union branches on the way."""
    path: list[int | str] = []
    branches: list[int | str] = []
    here: object = body
    for step, part in enumerate(location):
        if isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
        elif isinstance(here, Mapping) and (part in here or step == len(location) - 1):
            path.append(part)
            here = here.get(part)
        else:
            branches.append(part)
    return tuple(path), tuple(branches)


def _path(path: Location) -> str:
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.lstrip(".") or "body"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 120 else text[:100] + "..."
