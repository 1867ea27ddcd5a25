"""Flyte files, directories and dataframes in annotations, so that pydantic can try them among others."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import WrapValidator

from ._render import file_reference

__all__ = ["guard_references"]


def guard_references(annotation: Any) -> Any:
    """Make the files in an annotation refuse what is no reference.

    Flyte's own validators raise an `AttributeError` or `KeyError` for it, which pydantic takes for a crash rather than for
    a reason to try the next member of a union. Fields of classes and members of type aliases are not reached.

    Args:
        annotation: Any type.

    Returns:
        The same type, with the files in its arguments annotated.
    """
    if isinstance(annotation, type) and (attribute := file_reference(annotation)):
        return Annotated[annotation, WrapValidator(_refusing(attribute))]
    arguments = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        guarded = guard_references(arguments[0])
        return annotation if guarded is arguments[0] else Annotated[(guarded, *arguments[1:])]
    if not arguments or origin is typing.Literal:
        return annotation
    guarded = tuple(guard_references(argument) for argument in arguments)
    if all(new is old for new, old in zip(guarded, arguments, strict=True)):
        return annotation
    if origin in (typing.Union, types.UnionType):
        return typing.Union[guarded]  # noqa: UP007  # made of values
    if isinstance(annotation, types.GenericAlias):
        return types.GenericAlias(origin, guarded)
    return annotation.copy_with(guarded) if hasattr(annotation, "copy_with") else annotation


def _refusing(attribute: str) -> Callable[[Any, Callable[[Any], Any]], Any]:
    def validate(value: Any, handler: Callable[[Any], Any]) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get(attribute), str):
            raise ValueError("should be a URI as a string")  # noqa: TRY004  # pydantic takes a TypeError for a crash
        return handler(value)

    return validate
