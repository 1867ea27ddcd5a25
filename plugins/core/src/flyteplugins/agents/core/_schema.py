"""One description of a tool for all SDKs: its name, its parameters' JSON schema, and how arguments are read by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._schema_arguments import ArgumentReader, ToolArgumentError
from ._schema_docstring import DocstringUse
from ._schema_json import is_strict

__all__ = ["ToolArgumentError", "ToolSchema", "tool_schema"]

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True)
class ToolSchema:
    """What a model is told of a tool, and how its arguments are read.

    Attributes:
        name: The name under which a model calls it.
        description: What a model is told of its purpose; may be empty.
        parameters: A JSON schema (draft 2020-12) for an object: properties in the order of the signature, no others
            allowed, `$defs` where a type refers to itself. Copy it before changing it.
        strict: Whether `parameters` can be made one of OpenAI's "strict" schemas without losing meaning.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool
    _reader: ArgumentReader = field(repr=False, compare=False)

    def validate(self, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
        """Read what a model sent.

        Values are converted as pydantic's lax mode does for JSON (a numeric string for a number, an integer for a
        float, `"true"` for `true`, ISO 8601 text for dates, ...); a string of JSON is read where only an object or an
        array fits. Nothing is guessed: unknown arguments, here and inside of dataclasses and typed dictionaries, are
        errors. Bytes are base64 text, a Flyte file, directory or dataframe is its URI.

        Args:
            arguments: JSON text, or a mapping by parameter name (native values in it are taken as their JSON). `None`
                and an empty text are a call without arguments.

        Returns:
            Keyword arguments for the function in its own types, defaults included, in the order of the signature.

        Raises:
            ToolArgumentError: They do not fit.
        """
        return self._reader.validate(self.name, arguments)

    def dump(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Write keyword arguments as JSON values; the opposite of `validate`.

        The result is canonical: it is the same, down to the order of keys, for arguments that `validate` reads from
        equal JSON, in every process. Defaults that were left out are included; one that has no JSON of its type (a
        sentinel, say) is left out, which `validate` undoes.

        Where a union makes two types look the same in JSON (`bytes | str`), `validate` reads back the plainer one.

        Args:
            kwargs: Native values by parameter name, such as `validate` returns.

        Returns:
            JSON values by parameter name, in the order of the signature.

        Raises:
            ToolArgumentError: A name is unknown or missing, or a value has no JSON form.
        """
        return self._reader.dump(self.name, kwargs)

    def bind(self, kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arrange keyword arguments for a call, as positional-only parameters cannot be passed by name.

        Args:
            kwargs: As from `validate`; hidden parameters may have been added.

        Returns:
            Positional and keyword arguments: `args, kwargs = schema.bind(values); func(*args, **kwargs)`.
        """
        positional = [name for name in self._reader.signature.positional_only if name in kwargs]
        keywords = {name: value for name, value in kwargs.items() if name not in positional}
        return tuple(kwargs[name] for name in positional), keywords


def tool_schema(
    func: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    hidden: Collection[str] = (),
    documented: DocstringUse = True,
) -> ToolSchema:
    """Describe a function as a tool.

    Types come from its annotations (a parameter without one takes anything), descriptions from
    `Annotated[..., Field(...)]` or else from its docstring in Google, NumPy or Sphinx style. What a `functools.partial`
    binds by keyword is settled and not part of the description.

    Args:
        func: A function, method, `functools.partial`, class, or object with `__call__`.
        name: A name for it other than its own.
        description: A description of it other than its docstring's.
        hidden: Names of parameters that somebody else provides, such as an SDK's context.
        documented: Whether the docstring is read, or in which style. Unread, there are no descriptions, and no import of a
            parser is paid for: enough to find out whether there can be a schema.

    Returns:
        Its schema, which can be pickled whenever `func` can.

    Raises:
        TypeError: `func` cannot be described: it takes `*args` or `**kwargs`, an annotation cannot be resolved or has
            no JSON form, ...
        ValueError: Its name is not one that providers accept.
    """
    reader = ArgumentReader(func, tuple(hidden), documented)
    chosen = name if name is not None else reader.signature.name
    if not _TOOL_NAME.fullmatch(chosen):
        raise ValueError(
            f"{chosen!r} cannot be the name of a tool: providers accept 1 to 128 of the ASCII letters, digits, '_' "
            f"and '-'. Give it another with name=..."
        )
    return ToolSchema(
        name=chosen,
        description=description if description is not None else reader.signature.docs.description,
        parameters=reader.parameters,
        strict=is_strict(reader.parameters),
        _reader=reader,
    )
