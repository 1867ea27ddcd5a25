"""The parameters of a callable that a model may fill in, with resolved types."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from ._schema_docstring import DocstringUse, ToolDocs, parse_docstring

__all__ = ["NO_DEFAULT", "ToolParameter", "ToolSignature", "read_signature"]

NO_DEFAULT = inspect.Parameter.empty


@dataclass(frozen=True)
class ToolParameter:
    """One parameter that a model fills in.

    Attributes:
        name: Its name in the signature.
        annotation: Its resolved type, `Annotated` metadata included; `Any` when it has none.
        default: Its default, or `NO_DEFAULT`.
        field: A `pydantic.Field(...)` that was written as the default, which may hold the real one.
        description: From `Annotated` metadata, from such a field, or from the docstring, in this order.
    """

    name: str
    annotation: Any
    default: Any = NO_DEFAULT
    field: FieldInfo | None = None
    description: str | None = None


@dataclass(frozen=True)
class ToolSignature:
    """What a callable tells about itself.

    Attributes:
        name: The name of the function, or of the class of a callable object.
        docs: Its docstring, parsed.
        parameters: Those that a model fills in, in the order of the signature.
        positional_only: Names of all positional-only parameters, hidden ones included, in order.
        namespace: Names that annotations can refer to.
        module: The module that defines it.
    """

    name: str
    docs: ToolDocs
    parameters: tuple[ToolParameter, ...]
    positional_only: tuple[str, ...]
    namespace: Mapping[str, Any]
    module: str


def read_signature(
    func: Callable[..., Any], hidden: Collection[str] = (), *, documented: DocstringUse = True
) -> ToolSignature:
    """Read name, documentation and parameters of a callable.

    Arguments that a `functools.partial` binds by keyword are settled, and therefore not offered to a model.

    Args:
        func: A function, method, `functools.partial`, class, or object with `__call__`.
        hidden: Names of parameters that somebody else provides; their annotations are not looked at.
        documented: Whether the docstring is read as well, which costs the import of a parser.

    Returns:
        What was read.

    Raises:
        TypeError: It is not callable, has no signature, takes `*args` or `**kwargs`, lacks a hidden parameter, or an
            annotation cannot be resolved.
    """
    if not callable(func):
        raise TypeError(f"A tool has to be callable; found {func!r}, which is a {type(func).__qualname__}.")
    target: Any = func
    bound: Collection[str] = ()
    if isinstance(func, functools.partial):
        bound, target = func.keywords.keys(), func.func  # a partial of a partial is flat already
        # `functools.update_wrapper` on a partial would make `inspect.signature` overlook what it binds.
        func = functools.partial(func.func, *func.args, **func.keywords)
    name = getattr(target, "__name__", None) or type(target).__name__
    try:
        origin = _defining_function(target)
        signature = inspect.signature(func)
    except (ValueError, TypeError, NameError) as error:
        raise TypeError(
            f"The signature of {name!r} cannot be read ({error}). Wrap it in a function with annotated parameters."
        ) from error
    if missing := sorted(set(hidden) - signature.parameters.keys()):
        raise TypeError(f"{name!r} has no parameter {missing[0]!r} to hide; it has: {', '.join(signature.parameters)}.")

    docs = _documentation(target, documented) if documented else ToolDocs()
    namespace = _namespace(origin, target)
    parameters = []
    for parameter in signature.parameters.values():
        if parameter.name in hidden or parameter.name in bound:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(
                f"{name!r} takes {'*' if parameter.kind is parameter.VAR_POSITIONAL else '**'}{parameter.name}, which "
                f"cannot be described to a model. Name each parameter, or take one list or dict."
            )
        parameters.append(_parameter(parameter, namespace, name, docs))
    return ToolSignature(
        name=name,
        docs=docs,
        parameters=tuple(parameters),
        positional_only=tuple(p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_ONLY),
        namespace=namespace,
        module=str(getattr(origin, "__module__", None) or "__main__"),
    )


def _parameter(parameter: inspect.Parameter, namespace: Mapping[str, Any], tool: str, docs: ToolDocs) -> ToolParameter:
    annotation = _resolve(parameter, namespace, tool)
    default = parameter.default
    field = default if isinstance(default, FieldInfo) else None
    if field is not None:
        default = NO_DEFAULT
    descriptions = [_field_description(annotation), field.description if field else None]
    return ToolParameter(
        name=parameter.name,
        annotation=annotation,
        default=default,
        field=field,
        description=next((text for text in descriptions if text), None) or docs.parameters.get(parameter.name),
    )


def _field_description(annotation: Any) -> str | None:
    if typing.get_origin(annotation) is not typing.Annotated:
        return None
    found = None
    for item in typing.get_args(annotation)[1:]:
        if isinstance(item, FieldInfo):
            found = item.description or found
        elif found is None:
            # A bare string and `typing_extensions.Doc` are what other agent libraries read as a description.
            text = item if isinstance(item, str) else getattr(item, "documentation", None)
            found = text if isinstance(text, str) else None
    return found


def _resolve(parameter: inspect.Parameter, namespace: Mapping[str, Any], tool: str) -> Any:
    if parameter.annotation is parameter.empty:
        return Any

    def holder() -> None: ...

    # One parameter at a time: a name that only a type checker sees is no obstacle where it is not needed.
    holder.__annotations__ = {parameter.name: parameter.annotation}
    try:
        return typing.get_type_hints(holder, globalns=dict(namespace), include_extras=True)[parameter.name]
    except Exception as error:
        raise TypeError(
            f"Parameter {parameter.name!r} of {tool!r} is annotated {parameter.annotation!r}, which cannot be resolved"
            f": {error}. Define the type at module level and import it outside `if TYPE_CHECKING`."
        ) from error


def _defining_function(target: Any) -> Any:
    """The function whose module's names the annotations use."""
    target = inspect.unwrap(target)
    if inspect.isclass(target):
        target = inspect.unwrap(target.__init__)
    elif not inspect.isroutine(target):
        target = inspect.unwrap(type(target).__call__)
    return getattr(target, "__func__", target)


def _namespace(origin: Any, target: Any) -> dict[str, Any]:
    names = dict(getattr(origin, "__globals__", {}))
    names |= {parameter.__name__: parameter for parameter in getattr(origin, "__type_params__", ())}
    code = getattr(origin, "__code__", None)
    if isinstance(code, types.CodeType):
        for name, cell in zip(code.co_freevars, origin.__closure__ or (), strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    if inspect.isclass(target):
        names.setdefault(target.__name__, target)
    return names


def _documentation(target: Any, use: DocstringUse) -> ToolDocs:
    if inspect.isroutine(target) or hasattr(target, "__wrapped__"):
        return parse_docstring(inspect.getdoc(target), use)
    # A class, or an object of one: the class says what it is for, `__call__` or `__init__` what it takes.
    cls = target if inspect.isclass(target) else type(target)
    of_class = parse_docstring(cls.__doc__, use)
    method = cls.__init__ if inspect.isclass(target) else cls.__call__
    of_method = parse_docstring(method.__doc__ if inspect.isfunction(method) else None, use)
    described = of_class.description if inspect.isclass(target) else of_method.description
    return ToolDocs(
        description=described or of_class.description or of_method.description,
        parameters={**of_class.parameters, **of_method.parameters},
    )
