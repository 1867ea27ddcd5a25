"""Arguments of a tool between JSON and Python, by a pydantic model of its parameters.

The model's fields have made-up names and the parameters' names as aliases, because pydantic refuses some names that
Python allows (`_x`, `model_config`, `json`, `copy`). The alternative, a `TypeAdapter` for each parameter, cannot pass
settings on to dataclasses and typed dictionaries; `pydantic.validate_call` has the same trouble with names.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_jsonable_python

from ._schema_coerce import Problem, check_text, problems_of, read_arguments, sentence, shape
from ._schema_docstring import DocstringUse
from ._schema_dump import stable_dump
from ._schema_json import ParameterSchemaGenerator, Schema, holds_secret, presentable
from ._schema_references import guard_references
from ._schema_signature import NO_DEFAULT, ToolParameter, ToolSignature, read_signature

__all__ = ["ArgumentReader", "ToolArgumentError"]

# Bytes and non-finite floats have no JSON of their own. Dataclasses and typed dictionaries without settings share
# these.
_CONFIG = ConfigDict(extra="forbid", val_json_bytes="base64", ser_json_bytes="base64", ser_json_inf_nan="strings")


# What a dump may raise: pydantic's own errors are `ValueError`s, copying odd values may fail in either of the others.
_NO_JSON = (ValueError, TypeError, RecursionError)


class ToolArgumentError(ValueError):
    """Arguments do not fit a tool's parameters.

    The message is written for the model that sent them: it names each parameter, what was found and what is expected.
    """


class ArgumentReader:
    """Reads and writes the arguments of one callable.

    Attributes:
        signature: What the callable tells about itself.
        parameters: The JSON schema that a model is shown.

    Args:
        func: The callable.
        hidden: Names of its parameters that are not part of this.
        documented: Whether the docstring is read as well, or in which style.

    Raises:
        TypeError: It cannot be described.
    """

    def __init__(self, func: Callable[..., Any], hidden: tuple[str, ...] = (), documented: DocstringUse = True) -> None:
        self._origin = (func, hidden, documented)
        self.signature: ToolSignature = read_signature(func, hidden, documented=documented)
        self._fields = {
            parameter.name: f"argument_{index}" for index, parameter in enumerate(self.signature.parameters)
        }
        self._model, generated = _described(self.signature)
        self._definitions: dict[str, Schema] = generated.get("$defs", {})
        self._properties: dict[str, Schema] = generated.get("properties", {})
        self._defaults = {p.name: p.default for p in self.signature.parameters if p.default is not NO_DEFAULT}
        self._without_json: set[str] = set()
        for parameter in self.signature.parameters:
            self._complete(parameter, self._properties[parameter.name])
        self.parameters = presentable(generated)

    def __reduce__(self) -> tuple[type[ArgumentReader], tuple[Any, ...]]:
        # The model is made on the spot and cannot be pickled; the callable can.
        return ArgumentReader, self._origin

    def _complete(self, parameter: ToolParameter, described: Schema) -> None:
        """Add to a parameter's schema what its model does not know."""
        name = parameter.name
        if holds_secret(described, self._definitions):
            raise TypeError(
                f"Parameter {name!r} of {self.signature.name!r} holds a pydantic secret, which a model would have to "
                f"be told. Read the secret inside of the tool, or take a str."
            )
        if parameter.description:
            described["description"] = parameter.description
        if name not in self._defaults:
            return
        described.pop("default", None)
        try:
            default = self._dump_one(name, self._defaults[name])
            readable = self._can_read(name, default)
        except _NO_JSON:
            readable = False
        if readable:
            described["default"] = default
        else:
            self._without_json.add(name)

    def _can_read(self, name: str, value: Any) -> bool:
        """Whether `validate` would take this JSON value for a parameter."""
        if check_text(value, (name,)):
            return False
        shaped, misplaced = self._shaped({name: value}, parse_strings=False)
        try:
            self._read(self.signature.name, shaped)
        except ValidationError as error:  # the other parameters are missing
            return not misplaced and all(item["loc"][:1] != (name,) for item in error.errors(include_url=False))
        return not misplaced

    def validate(self, tool: str, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
        """Read arguments; see `ToolSchema.validate`."""
        try:
            given = read_arguments(arguments)
        except ValueError as error:
            raise ToolArgumentError(f"{error}") from error
        problems: list[Problem] = []
        for name, value in given.items():
            try:
                given[name] = _json_value(value)
            except _NO_JSON as error:
                problems.append(Problem((name,), f"has no JSON form: {error}"))
            else:
                problems += check_text({name: given[name]}, ())
        if problems:
            raise ToolArgumentError(sentence(tool, problems))
        shaped, misplaced = self._shaped(given, parse_strings=False)
        if misplaced:
            raise ToolArgumentError(sentence(tool, misplaced))
        try:
            read = self._read(tool, shaped)
        except ValidationError as error:
            parsed, misplaced = self._shaped(given, parse_strings=True)
            if misplaced:
                raise ToolArgumentError(sentence(tool, misplaced)) from error
            if parsed == shaped:
                raise self._refusal(tool, error, shaped) from error
            try:
                read = self._read(tool, parsed)
            except ValidationError as second:
                raise self._refusal(tool, second, parsed) from second
        return {
            name: self._defaults[name]
            if name in self._defaults and field not in read.model_fields_set
            else read.__dict__[field]
            for name, field in self._fields.items()
        }

    def dump(self, tool: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Write arguments; see `ToolSchema.dump`."""
        problems = [
            Problem((name,), f"is not a known argument; known arguments: {', '.join(self._fields)}")
            for name in kwargs
            if name not in self._fields
        ]
        result: dict[str, Any] = {}
        for name, field in self._fields.items():
            info = self._model.model_fields[field]
            if name in kwargs:
                value = kwargs[name]
            elif name in self._defaults:
                value = self._defaults[name]
            elif info.is_required():
                problems.append(Problem((name,), "is required, but missing"))
                continue
            else:
                value = info.get_default(call_default_factory=True, validated_data={})
            if name in self._without_json and value is self._defaults[name]:
                continue
            try:
                result[name] = self._dump_one(name, value)
            except _NO_JSON as error:
                problems.append(Problem((name,), f"has no JSON form: {error}"))
        if problems:
            raise ToolArgumentError(sentence(tool, problems))
        return result

    def _dump_one(self, name: str, value: Any) -> Any:
        field = self._fields[name]

        def dump(settled: Any) -> Any:
            instance = self._model.model_construct()
            instance.__dict__[field] = settled
            options: dict[str, Any] = {"mode": "json", "by_alias": True, "round_trip": True, "warnings": False}
            return instance.model_dump(include={field}, **options)[name]

        return stable_dump(value, dump)

    def _shaped(self, arguments: Mapping[str, Any], *, parse_strings: bool) -> tuple[dict[str, Any], list[Problem]]:
        problems: list[Problem] = []
        shaped = {
            name: shape(
                value,
                self._properties[name],
                self._definitions,
                path=(name,),
                parse_strings=parse_strings,
                problems=problems,
            )
            if name in self._properties
            else value
            for name, value in arguments.items()
        }
        return shaped, problems

    def _read_json(self, arguments: Mapping[str, Any]) -> BaseModel:
        # As JSON text, since pydantic reads dates, bytes and more from JSON only, where a model asks for strict types.
        return self._model.model_validate_json(json.dumps(arguments))

    def _read(self, tool: str, arguments: Mapping[str, Any]) -> BaseModel:
        try:
            return self._read_json(arguments)
        except ValidationError:
            raise
        except (
            Exception
        ) as error:  # a validator or a dataclass of the user's may raise anything, and the model can react
            raise ToolArgumentError(
                f"The arguments of {tool!r} were refused: {type(error).__qualname__}: {error}"
            ) from error

    def _refusal(self, tool: str, error: ValidationError, arguments: Mapping[str, Any]) -> ToolArgumentError:
        errors = error.errors(include_url=False, include_context=False)
        return ToolArgumentError(sentence(tool, problems_of(errors, arguments, tuple(self._fields))))


def _described(signature: ToolSignature) -> tuple[type[BaseModel], Schema]:
    """The model of a signature and its JSON schema; an error that names the parameter at fault."""
    try:
        return _modelled(signature, signature.parameters)
    except Exception as error:
        for parameter in signature.parameters:
            try:
                _modelled(signature, (parameter,))
            except Exception as cause:
                reason = " ".join(str(cause).split("\n\nFor further information")[0].split())
                raise TypeError(
                    f"Parameter {parameter.name!r} of {signature.name!r} is annotated {parameter.annotation!r}, which "
                    f"cannot be described to a model: {reason} Use types that have a JSON form, or hide the parameter."
                ) from cause
        raise TypeError(f"The parameters of {signature.name!r} cannot be described to a model: {error}") from error


def _modelled(signature: ToolSignature, parameters: tuple[ToolParameter, ...]) -> tuple[type[BaseModel], Schema]:
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(parameters):
        annotation = guard_references(parameter.annotation)
        options: dict[str, Any] = dict.fromkeys(("alias", "validation_alias", "serialization_alias"), parameter.name)
        options["exclude"] = False
        if parameter.field is not None:
            annotation = Annotated[annotation, parameter.field]
        elif parameter.default is not NO_DEFAULT:
            options["default"] = None  # stands for "optional": the real one need not be of its type
            if parameter.default is None and not _takes_none(annotation):
                annotation = typing.Optional[annotation]  # noqa: UP045  # `|` does not take every annotation
        fields[f"argument_{index}"] = (annotation, Field(**options))
    model: type[BaseModel] = create_model("Arguments", __config__=_CONFIG, __module__=signature.module, **fields)
    if not model.__pydantic_complete__:
        model.model_rebuild(_types_namespace=signature.namespace)
    return model, model.model_json_schema(schema_generator=ParameterSchemaGenerator)


def _takes_none(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _takes_none(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return any(_takes_none(member) for member in typing.get_args(annotation))
    if origin is typing.Literal:
        return None in typing.get_args(annotation)
    if isinstance(annotation, (typing.TypeVar, typing.ForwardRef)):
        return True
    return annotation in (None, type(None), Any, object) or _takes_none_by_alias(annotation)


def _takes_none_by_alias(annotation: Any) -> bool:
    aliased = getattr(annotation, "__value__", None)  # of a `type` statement
    return aliased is not None and _takes_none(aliased)


def _json_value(value: Any) -> Any:
    """The same as JSON; unchanged if it is such already."""
    if _is_json(value):
        return value
    return stable_dump(value, lambda settled: to_jsonable_python(settled, bytes_mode="base64", inf_nan_mode="strings"))


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and _is_json(item) for key, item in value.items())
    if kind is list:
        return all(_is_json(item) for item in value)
    return value is None or kind in (str, int, float, bool)
