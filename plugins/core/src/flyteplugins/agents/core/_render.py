"""A tool's result as the text that a model is given."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import re
import sys
import types
import uuid
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any

from pydantic import BaseModel, PlainSerializer, RootModel, SecretBytes, SecretStr, WrapSerializer
from pydantic_core import MultiHostUrl, Url, to_jsonable_python

__all__ = ["file_reference", "plain", "render_result"]

_MAX_DEPTH = 100  # containers in containers; well below the interpreter's recursion limit at three frames a level
_NOT_SCALAR = object()
_ADDRESS = re.compile(r"\s+at 0x[0-9a-fA-F]+")
_PLAIN_TEXT = (
    uuid.UUID,
    pathlib.PurePath,
    decimal.Decimal,
    fractions.Fraction,
    complex,
    range,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
    datetime.tzinfo,
    Url,
    MultiHostUrl,
    SecretStr,  # reads as asterisks
    SecretBytes,
)


def render_result(value: object) -> str:
    """Turn what a tool returned into text for a model.

    The text depends on the value alone: it is the same in every process and under every `PYTHONHASHSEED`. No value
    makes this raise: what cannot be shown is replaced, at its place, by a text in angle brackets that says so.

    - A `str` (also of a subclass, such as a `StrEnum` member) is given as it is, without quotes. Everything else is
      compact JSON, in UTF-8 characters rather than `\\u` escapes.
    - A lone surrogate, which UTF-8 cannot hold, is written as its escape (`\\ud83d`), in plain strings as well.
    - `None`, booleans, integers and finite floats are JSON's own. `NaN`, `Infinity` and `-Infinity` are strings. An
      integer that Python refuses to print in decimal (more than 4300 digits) is a hexadecimal string.
    - An enum member is its value. `Decimal`, `Fraction`, `complex`, `UUID`, paths, IP addresses, time zones and URLs
      are their usual text as a string. Dates and times are ISO 8601; a `timedelta` is an ISO 8601 duration. A regular
      expression is its pattern. A pydantic secret stays masked. A `range` is its text.
    - `bytes`, `bytearray` and `memoryview` are `{"base64": "..."}`.
    - Lists, tuples, deques and other sequences are arrays. Sets are arrays sorted by the JSON of their items.
    - A mapping is an object in its own order. Keys that are not strings are written as the text of their JSON (`1`,
      `true`, `null`, `[1,2]`); an enum member as the text of its value. If that makes two keys equal, the mapping is an
      array of `[key, value]` pairs instead, so that none is lost.
    - A pydantic model is an object of its fields and computed fields, by alias, each by these rules; one with
      serializers of its own is what `model_dump(by_alias=True)` gives; a root model is its root. Dataclasses, named
      tuples and attrs instances are objects of their fields.
    - `flyte.io.File`, `Dir` and `DataFrame` are their URI.
    - An exception is `Type: message`; a class or function its qualified name. Objects with `tolist()` (NumPy arrays and
      scalars, `array.array`) are what that returns. Another object whose class defines `__str__` or `__repr__` is that
      text, without memory addresses; that it is the same everywhere is then up to that class. Anything else, iterators
      and coroutines included (they are not consumed), is `<module.Class, which cannot be shown as JSON>`.
    - A container inside itself is `<circular reference>`; below 100 levels stands `<nested more than 100 levels deep>`.

    Args:
        value: What the tool returned.

    Returns:
        The text.
    """
    if isinstance(value, str):
        return _without_surrogates(_exact_str(value))
    return _without_surrogates(_json_text(plain(value)))


def plain(value: object) -> Any:
    """Turn any value into `None`, `bool`, `int`, finite `float`, `str`, `list` and `dict` as `render_result` does.

    Args:
        value: Anything.

    Returns:
        New containers; strings may still hold lone surrogates.
    """
    return _Renderer().render(value)


def file_reference(value: object) -> str | None:
    """Tell which attribute holds the URI of a Flyte file, directory or dataframe.

    Args:
        value: An instance or a class.

    Returns:
        `"path"` for `flyte.io.File` and `Dir`, `"uri"` for `flyte.io.DataFrame`, `None` for anything else.
    """
    flyte_io = sys.modules.get("flyte.io")
    if flyte_io is None:  # nobody can hold an instance of a module that was never imported
        return None
    cls = value if isinstance(value, type) else type(value)
    if issubclass(cls, (flyte_io.File, flyte_io.Dir)):
        return "path"
    # `DataFrame` appears in the module when somebody first asks for it; asking here would import its engine.
    dataframe = vars(flyte_io).get("DataFrame")
    return "uri" if isinstance(dataframe, type) and issubclass(cls, dataframe) else None


class _Renderer:
    """One pass over a value; remembers the containers on the way down, to notice one that holds itself."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def render(self, value: object) -> Any:
        kind = type(value)
        if value is None or kind in (str, bool):
            return value
        try:
            scalar = self._scalar(value)
        except Exception as error:  # noqa: BLE001  # a value's own code may raise anything; the rest is to be seen
            return _unshowable(value, error)
        if scalar is not _NOT_SCALAR:
            return scalar
        if id(value) in self._open:
            return "<circular reference>"
        if len(self._open) >= _MAX_DEPTH:
            return f"<nested more than {_MAX_DEPTH} levels deep>"
        self._open.add(id(value))
        try:
            return self._container(value)
        except Exception as error:  # noqa: BLE001  # as above
            return _unshowable(value, error)
        finally:
            self._open.discard(id(value))

    def _scalar(self, value: object) -> Any:
        if type(value) in (dict, list, tuple):  # most of what is not a scalar; saves asking everything below
            return _NOT_SCALAR
        match value:
            case enum.Enum():
                return self.render(value.value)
            case str():
                return _exact_str(value)
            case int():
                return _integer(int(value))
            case float():
                return _number(float(value))
            case datetime.datetime() | datetime.date() | datetime.time():
                return value.isoformat()
            case datetime.timedelta():
                return to_jsonable_python(value)
            case bytes() | bytearray() | memoryview():
                return {"base64": base64.b64encode(bytes(value)).decode("ascii")}
            case re.Pattern():
                return self.render(value.pattern)
            case BaseException():
                text = str(value)
                return f"{type(value).__qualname__}: {text}" if text else type(value).__qualname__
            case type() | types.FunctionType() | types.BuiltinFunctionType():
                return f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, _PLAIN_TEXT):
            return str(value)
        if attribute := file_reference(value):
            uri = getattr(value, attribute)
            return uri if isinstance(uri, str) else f"<{_class_name(value)} without a URI: it is not stored yet>"
        return _NOT_SCALAR

    def _container(self, value: object) -> Any:
        if isinstance(value, BaseModel):
            return self._model(value)
        if dataclasses.is_dataclass(value):  # an instance: classes are scalars
            return self._fields(value, (field.name for field in dataclasses.fields(value)))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {name: self.render(item) for name, item in zip(value._fields, value, strict=True)}
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, AbstractSet):
            return sorted((self.render(item) for item in value), key=_json_text)
        if isinstance(value, (Sequence, ValuesView, collections.deque)):
            return [self.render(item) for item in value]
        if attrs := getattr(type(value), "__attrs_attrs__", None):
            return self._fields(value, (attribute.name for attribute in attrs))
        to_list = getattr(value, "tolist", None)
        if callable(to_list):
            return self.render(to_list())
        return _own_text(value)

    def _model(self, value: BaseModel) -> Any:
        cls = type(value)
        if _has_serializers(cls):
            return self.render(value.model_dump(mode="python", by_alias=True, warnings=False))
        # Field by field rather than `model_dump`, which would turn a nested Flyte file into an object, store a
        # dataframe that has no URI yet, and fail on a set of models.
        fields = {
            field.serialization_alias or name: getattr(value, name)
            for name, field in cls.model_fields.items()
            if not field.exclude and name in value.__dict__
        }
        fields |= value.model_extra or {}
        fields |= {field.alias or name: getattr(value, name) for name, field in cls.model_computed_fields.items()}
        if isinstance(value, RootModel):
            return self.render(fields.get("root"))
        return {name: self.render(item) for name, item in fields.items()}

    def _fields(self, value: object, names: Iterable[str]) -> dict[str, Any]:
        missing = object()
        fields = {name: getattr(value, name, missing) for name in names}
        return {name: self.render(item) for name, item in fields.items() if item is not missing}

    def _mapping(self, value: Mapping[object, object]) -> Any:
        pairs = [(self.render(key), self.render(item)) for key, item in value.items()]
        result = {_key_text(key): item for key, item in pairs}
        return result if len(result) == len(pairs) else [list(pair) for pair in pairs]


def _has_serializers(cls: type[BaseModel]) -> bool:
    decorators = cls.__pydantic_decorators__
    annotated = (item for field in cls.model_fields.values() for item in field.metadata)
    return bool(
        decorators.field_serializers
        or decorators.model_serializers
        or any(isinstance(item, (PlainSerializer, WrapSerializer)) for item in annotated)
    )


def _key_text(rendered: Any) -> str:
    return rendered if isinstance(rendered, str) else _json_text(rendered)


def _json_text(rendered: Any) -> str:
    return json.dumps(rendered, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _exact_str(value: str) -> str:
    return str.__str__(value)  # a subclass may define its own, as an enum with a `str` mixin does


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _integer(value: int) -> int | str:
    limit = sys.get_int_max_str_digits()
    # A digit is at least 3.32 bits, so that fewer bits than 3 per digit are safe without trying.
    if not limit or value.bit_length() < 3 * limit:
        return value
    try:
        str(value)
    except ValueError:
        return hex(value)
    return value


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _class_name(value: object) -> str:
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _own_text(value: object) -> str:
    cls = type(value)
    speaks_for_itself = cls.__str__ is not object.__str__ or cls.__repr__ is not object.__repr__
    if not speaks_for_itself or cls.__module__ == "builtins":  # the builtins left here are iterators and the like
        return f"<{_class_name(value)}, which cannot be shown as JSON>"
    return _ADDRESS.sub("", str(value))


def _unshowable(value: object, error: Exception) -> str:
    return f"<{_class_name(value)}, which raised {type(error).__qualname__} when it was shown>"
