"""What makes `tool` of an adapter's function that makes one tool: it is also a decorator, with and without options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

__all__ = ["CallableTool", "ToolDecorator", "refuse_unknown_options", "tool_decorator"]

P = ParamSpec("P")
ToolT_co = TypeVar("ToolT_co", covariant=True)


class CallableTool(Protocol):
    """A tool of an SDK that has no type for tools, to a type checker: something that can be called like its task or function."""

    __name__: str
    __wrapped_task__: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task or the function."""
        ...


class ToolDecorator(Protocol[P, ToolT_co]):
    """`tool(target, ...)`, `@tool`, and `@tool(...)`."""

    @overload
    def __call__(self, target: Callable[..., Any], /, *args: P.args, **options: P.kwargs) -> ToolT_co: ...
    @overload
    def __call__(self, *args: P.args, **options: P.kwargs) -> Callable[[Callable[..., Any]], ToolT_co]: ...


def tool_decorator(make: Callable[Concatenate[Callable[..., Any], P], ToolT_co]) -> ToolDecorator[P, ToolT_co]:
    """Make an adapter's `tool`.

    Args:
        make: What makes one tool: it takes the target, which is positional, and options, which are keywords.

    Returns:
        The same, which can also be called without a target, and then waits for it.
    """

    @functools.wraps(make)
    def tool(target: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        made: Callable[..., Any] = make
        if target is None:
            return functools.partial(_late, made, options)
        return made(target, **options)

    first, *others = inspect.signature(make).parameters.values()
    tool.__signature__ = inspect.Signature([first.replace(default=None), *others])  # type: ignore[attr-defined]
    return cast("ToolDecorator[P, ToolT_co]", tool)


def _late(make: Callable[..., Any], options: Mapping[str, Any], target: Callable[..., Any], /) -> Any:
    return make(target, **options)


def refuse_unknown_options(options: Collection[str], known: Collection[str]) -> None:
    """See that the options that a tool is given besides are the SDK's own.

    Args:
        options: Their names.
        known: Those that the adapter takes.

    Raises:
        TypeError: It does not take one.
    """
    if unknown := sorted(set(options) - set(known)):
        raise TypeError(
            f"tool() has no option {', '.join(unknown)}; the SDK's own that it takes are {', '.join(known)}."
        )
