"""Parameters of a tool that take the SDK's context: the model is not told of them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

__all__ = ["context_parameters"]


def context_parameters(target: Any, types: Collection[str]) -> frozenset[str]:
    """Find the parameters that take an SDK's context, without importing the SDK.

    Args:
        target: A task, a callable, or a tool of any adapter, which was looked at when it was made.
        types: The context types, as `module.Name`, or the markers that an SDK puts into `Annotated[...]`. An annotation that is
            text is known by the name alone.

    Returns:
        The parameters' names.
    """
    if getattr(target, "__agent_tool__", None) is not None:
        return frozenset()
    function = getattr(target, "func", target)
    annotations: Mapping[str, Any] = getattr(function, "__annotations__", {})
    if not annotations and callable(function) and not isinstance(function, type):  # an object that can be called
        annotations = getattr(type(function).__call__, "__annotations__", {})
    names = {name.rpartition(".")[2] for name in types}
    return frozenset(
        parameter
        for parameter, annotation in annotations.items()
        if parameter != "return"
        and (_written(annotation, names) if isinstance(annotation, str) else _is_context(annotation, types))
    )


def _is_context(annotation: Any, types: Collection[str]) -> bool:
    origin = get_origin(annotation)
    kind = annotation if origin is None else origin
    if f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', '')}" in types:
        return True
    if origin is Annotated:
        hidden, *markers = get_args(annotation)
        kinds = [marker if isinstance(marker, type) else type(marker) for marker in markers]
        return _is_context(hidden, types) or any(f"{one.__module__}.{one.__qualname__}" in types for one in kinds)
    if origin in (Union, UnionType):
        return any(_is_context(member, types) for member in get_args(annotation))
    return False


def _written(annotation: str, names: Collection[str]) -> bool:
    """The same for an annotation that is text, since its names may only be importable with the SDK."""
    try:
        return _names_context(ast.parse(annotation, mode="eval").body, names)
    except SyntaxError:
        return False


def _names_context(node: ast.expr, names: Collection[str]) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in names
        case ast.Constant(value=str(text)):
            return _written(text, names)
        case ast.BinOp(left=left, right=right):
            return _names_context(left, names) or _names_context(right, names)
        case ast.Subscript(value=ast.Name(id=form) | ast.Attribute(attr=form), slice=arguments):
            if form in names:
                return True
            members = arguments.elts if isinstance(arguments, ast.Tuple) else [arguments]
            if form == "Annotated":
                members = [one.func if isinstance(one, ast.Call) else one for one in members]
            return form in ("Annotated", "Optional", "Union") and any(_names_context(one, names) for one in members)
    return False
