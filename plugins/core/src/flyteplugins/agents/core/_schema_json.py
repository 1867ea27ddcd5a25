"""The JSON schema of a tool's parameters, in a form that every provider reads."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from ._render import file_reference
from ._schema_dump import stable_dump

__all__ = [
    "REFERENCE",
    "ParameterSchemaGenerator",
    "allows",
    "branches",
    "holds_secret",
    "is_strict",
    "presentable",
    "types_of",
]

Schema: TypeAlias = dict[str, Any]

REFERENCE = "x-reference"
"""In a schema as generated: the attribute of a Flyte file, directory or dataframe that holds its URI."""
_HINT = "x-hint"  # what a model has to know of the notation; becomes part of the description

_MAX_INLINED_NODES = 2000  # schemas that would grow beyond this keep their references
_REF_PREFIX = "#/$defs/"
_INTERNAL = frozenset({REFERENCE, _HINT, "title", "uniqueItems", "discriminator", "x-flyte-type"})
# JSON Schema's own formats; pydantic adds others (`path`, `binary`, ...), which some providers refuse.
_FORMATS = frozenset(
    {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"},
)
# What OpenAI's strict mode knows (https://platform.openai.com/docs/guides/structured-outputs, "Supported schemas").
_STRICT_KEYWORDS = frozenset(
    {
        *("type", "description", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
        *("$ref", "$defs", "default", "format", "pattern", "minimum", "maximum", "exclusiveMinimum"),
        *("exclusiveMaximum", "multipleOf", "minItems", "maxItems"),
    }
)
_STRICT_FORMATS = _FORMATS - {"uri"}
_LOOKAROUND = re.compile(r"\(\?<?[=!]")
_NAMES_OF_TYPES: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


class ParameterSchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator, with Flyte's files by URI, notations explained, and nothing that differs per process."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012

    def __init__(self, by_alias: bool = True, ref_template: str = DEFAULT_REF_TEMPLATE, **options: Any) -> None:
        super().__init__(by_alias, ref_template, **options)
        self._configs: list[core_schema.CoreConfig] = [{}]

    def model_schema(self, schema: core_schema.ModelSchema) -> Schema:
        """Describe a Flyte file, directory or dataframe as a string; any other model as pydantic does."""
        if attribute := file_reference(schema["cls"]):
            base = next(cls.__name__ for cls in schema["cls"].__mro__ if cls.__module__.startswith("flyte.io"))
            noun = {"Dir": "directory", "EmptyDir": "directory", "DataFrame": "dataframe"}.get(base, "file")
            return {"type": "string", REFERENCE: attribute, _HINT: f"URI of a {noun}"}
        with self._config_of(schema):
            return super().model_schema(schema)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Schema:
        """Describe a dataclass."""
        with self._config_of(schema):
            return self._closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> Schema:
        """Describe a typed dictionary."""
        with self._config_of(schema):
            return self._closed(super().typed_dict_schema(schema))

    def named_tuple_schema(self, schema: Any) -> Schema:
        """Describe a named tuple as an object, so that a model sees the names; pydantic has an array."""
        return self._object_of(schema["fields"])

    def call_schema(self, schema: core_schema.CallSchema) -> Schema:
        """Describe a named tuple, which pydantic before 2.14 has as a call, as above."""
        if isinstance(cls := schema["function"], type) and issubclass(cls, tuple):
            arguments: Any = schema["arguments_schema"]
            return self._object_of(arguments["arguments_schema"])
        return super().call_schema(schema)

    def bytes_schema(self, schema: core_schema.BytesSchema) -> Schema:
        """Describe bytes as text, and say in which encoding."""
        result: Schema = {"type": "string", _HINT: "base64-encoded" if self._bytes_mode == "base64" else "UTF-8 text"}
        self.update_with_validations(result, schema, self.ValidationsMapping.bytes)
        return result

    def encode_default(self, dft: Any) -> Any:
        """Show a default as `ToolSchema.dump` would."""

        def dump(value: Any) -> Any:
            return to_jsonable_python(value, bytes_mode=self._bytes_mode, inf_nan_mode="strings")

        try:
            return stable_dump(dft, dump)
        except (ValueError, RecursionError) as error:  # pydantic leaves out a default for which this is raised
            raise PydanticSerializationError(f"Unable to encode the default value: {error}") from error

    @property
    def _bytes_mode(self) -> Literal["utf8", "base64", "hex"]:
        mode: Literal["utf8", "base64", "hex"] = self._configs[-1].get("val_json_bytes", "utf8")
        return mode

    @contextlib.contextmanager
    def _config_of(self, schema: Any) -> Iterator[None]:
        # A type without a configuration of its own has that of the type around it.
        self._configs.append(schema.get("config", self._configs[-1]))
        try:
            yield
        finally:
            self._configs.pop()

    def _closed(self, described: Schema) -> Schema:
        # Settings that a type has from the type around it count when it is read, but pydantic before 2.11 did not show them.
        if self._configs[-1].get("extra_fields_behavior") == "forbid":
            described.setdefault("additionalProperties", False)
        return described

    def _object_of(self, fields: Sequence[Any]) -> Schema:
        return {
            "type": "object",
            "properties": {field["name"]: self.generate_inner(field["schema"]) for field in fields},
            "required": [field["name"] for field in fields if field["schema"]["type"] != "default"],
            "additionalProperties": False,
        }


def presentable(generated: Schema) -> Schema:
    """Make the schema that a model is shown of the one that was generated.

    References are replaced by what they refer to, as several providers cannot follow them; recursive ones stay, and
    so do all if the schema would grow too large. Titles, formats that are not JSON Schema's, and `uniqueItems` (a
    repeated item of a set does no harm) are left out; a hint on the notation is added to the description.

    Args:
        generated: A schema from `ParameterSchemaGenerator`; it is not changed.

    Returns:
        A schema for an object, with `properties`, `required` and `additionalProperties`.
    """
    definitions: dict[str, Schema] = generated.get("$defs", {})
    root = {key: value for key, value in generated.items() if key != "$defs"}
    recursive = {name for name in definitions if name in _reachable(definitions[name], definitions)}
    inlined: Schema | None
    try:
        inlined = _Presenter(definitions, keep=recursive, budget=_MAX_INLINED_NODES).present(root)
        kept = recursive
    except _TooLargeError:
        inlined = _Presenter(definitions, keep=set(definitions)).present(root)
        kept = set(definitions)
    result = {"type": "object", "properties": {}, "required": [], "additionalProperties": False, **inlined}
    used = _references(result)
    for name in list(used):
        used |= _reachable(definitions[name], definitions)
    if remaining := [name for name in definitions if name in used and name in kept]:
        presenter = _Presenter(definitions, keep=kept)
        result["$defs"] = {name: presenter.present(definitions[name]) for name in remaining}
    return result


class _TooLargeError(Exception):
    pass


class _Presenter:
    def __init__(self, definitions: Mapping[str, Schema], keep: set[str], budget: int | None = None) -> None:
        self._definitions = definitions
        self._keep = keep
        self._budget = budget

    def present(self, schema: Schema) -> Schema:
        if self._budget is not None:
            self._budget -= 1
            if self._budget < 0:
                raise _TooLargeError
        if (name := _referred(schema)) is not None and name not in self._keep:
            siblings = {key: value for key, value in schema.items() if key != "$ref"}
            return self.present({**self._definitions[name], **siblings})
        result: Schema = {}
        for key, value in schema.items():
            if key in _INTERNAL or (key == "format" and value not in _FORMATS):
                continue
            result["anyOf" if key == "oneOf" else key] = self._value(key, value)
        if "anyOf" in result:
            result["anyOf"] = _flat(result["anyOf"])
        if hint := schema.get(_HINT):
            described = schema.get("description")
            result["description"] = f"{described} ({hint})" if described else hint[:1].upper() + hint[1:]
        choices = result.get("enum", [result["const"]] if "const" in result else None)
        if choices is not None and "type" not in result:
            types = list(dict.fromkeys(_type_of(choice) for choice in choices))
            result["type"] = types[0] if len(types) == 1 else types
        return result

    def _value(self, key: str, value: Any) -> Any:
        match key, value:
            case "properties" | "patternProperties", dict():
                return {name: self.present(item) for name, item in value.items()}
            case "items" | "additionalProperties" | "propertyNames" | "contains" | "not", dict():
                return self.present(value)
            case "anyOf" | "oneOf" | "allOf" | "prefixItems", list():
                return [self.present(item) for item in value]
        return value


def _flat(options: Sequence[Schema]) -> list[Schema]:
    flat: list[Schema] = []
    for option in options:
        for leaf in option["anyOf"] if option.keys() == {"anyOf"} else [option]:
            if leaf not in flat:
                flat.append(leaf)
    return flat


def holds_secret(schema: Schema, definitions: Mapping[str, Schema]) -> bool:
    """Tell whether a pydantic secret is part of what a schema describes."""
    parts = [schema, *(definitions[name] for name in _reachable(schema, definitions))]
    while parts:
        part = parts.pop()
        if part.get("format") == "password":
            return True
        parts += _parts(part)
    return False


def is_strict(schema: Schema) -> bool:
    """Tell whether a schema can be made one of OpenAI's "strict" schemas without losing meaning.

    Strict means that every property is required and no other allowed; an optional one keeps its meaning only if its
    default can be seen. It has no free-form object or value, no tuple, and a limited set of keywords.

    Args:
        schema: A schema from `presentable`, or part of one.
    """
    if not schema.keys() <= _STRICT_KEYWORDS:
        return False
    if schema.get("format", "uuid") not in _STRICT_FORMATS or _LOOKAROUND.search(str(schema.get("pattern", ""))):
        return False
    if not schema.keys() & {"type", "anyOf", "$ref"}:
        return False
    types = schema.get("type")
    if types == "array" and "items" not in schema:
        return False
    if types == "object":
        properties: dict[str, Schema] = schema.get("properties", {})
        optional = properties.keys() - set(schema.get("required", ()))
        if schema.get("additionalProperties", True) is not False and not properties:
            return False
        if schema.get("additionalProperties", False) is not False:
            return False
        if any("default" not in properties[name] for name in optional):
            return False
    return all(is_strict(part) for part in _parts(schema))


def _resolved(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Follow a reference, keeping what stands beside it."""
    while (name := _referred(schema)) is not None:
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def branches(schema: Schema, definitions: Mapping[str, Schema]) -> list[Schema]:
    """The alternatives of a schema, resolved and flat; itself if it has none."""
    schema = _resolved(schema, definitions)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return [leaf for branch in schema[key] for leaf in branches(branch, definitions)]
    if len(parts := schema.get("allOf", ())) == 1:
        return branches(parts[0], definitions)
    return [schema]


def allows(schema: Schema, value: Any, definitions: Mapping[str, Schema]) -> bool:
    """Tell whether a JSON value has the shape of a schema, of which only types, names, choices and items are looked at.

    Args:
        schema: A schema as generated, without alternatives at its top.
        value: A JSON value.
        definitions: What its references refer to.
    """
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if choices is not None:
        return value in choices
    types = types_of(schema)
    if not types:
        return True
    found = _type_of(value)
    if found not in types and not (found == "integer" and "number" in types):
        return False

    def fits(part: Schema, item: Any) -> bool:
        return any(allows(branch, item, definitions) for branch in branches(part, definitions))

    if isinstance(value, dict):
        properties: dict[str, Schema] = schema.get("properties", {})
        if not set(schema.get("required", ())) <= value.keys():
            return False
        others = schema.get("additionalProperties", not properties)
        return all(
            fits(properties[name], item)
            if name in properties
            else others is True or (bool(others) and fits(others, item))
            for name, item in value.items()
        )
    if isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        return all(fits(items, item) for item in value)
    return True


def types_of(schema: Schema) -> set[str]:
    """The JSON types that a schema names; none if it takes any."""
    types = schema.get("type", [])
    return {types} if isinstance(types, str) else set(types)


def _parts(schema: Schema) -> Iterator[Schema]:
    for key in ("properties", "$defs", "patternProperties"):
        yield from schema.get(key, {}).values()
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        yield from schema.get(key, ())
    for key in ("items", "additionalProperties", "propertyNames", "contains", "not"):
        if isinstance(part := schema.get(key), dict):
            yield part


def _referred(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith(_REF_PREFIX):
        return None
    return reference.removeprefix(_REF_PREFIX)


def _references(schema: Schema) -> set[str]:
    found = {name} if (name := _referred(schema)) is not None else set()
    return found.union(*(_references(part) for part in _parts(schema)))


def _reachable(schema: Schema, definitions: Mapping[str, Schema]) -> set[str]:
    found: set[str] = set()
    waiting = _references(schema)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting |= _references(definitions[name])
    return found


def _type_of(value: Any) -> str:
    return _NAMES_OF_TYPES.get(type(value), "array" if isinstance(value, list) else "object")
