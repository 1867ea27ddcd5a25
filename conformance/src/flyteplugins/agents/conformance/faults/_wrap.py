"""Wrap functions as fault points when their modules are imported."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from types import ModuleType
from typing import Any

import wrapt

from ._plan import FaultPoint, When
from ._reach import reach


def install(points: Iterable[FaultPoint]) -> None:
    """Make each point's function reach it, as soon as its module is imported (at once, if it already is).

    Only code that looks the function up after that meets the wrapper, so call this before anything else is imported.

    Raises:
        LookupError: when the module is imported and has no such function. A point that is never met would make a crash
            test pass without a crash.
    """
    for point in points:
        module_name, _, path = point.target.partition(":")

        def wrap(module: ModuleType, point: FaultPoint = point, path: str = path) -> None:
            try:
                wrapt.wrap_function_wrapper(module, path, _wrapper(point.name, point.when))
            except AttributeError as e:
                raise LookupError(
                    f"Fault point {point.name!r}: {module.__name__} has no {path!r}. Correct its target."
                ) from e

        if module_name in sys.modules:
            wrap(sys.modules[module_name])
        else:
            wrapt.register_post_import_hook(wrap, module_name)


def _wrapper(name: str, when: When) -> Callable[[Callable[..., Any], object, tuple[Any, ...], dict[str, Any]], Any]:
    async def after(result: Awaitable[Any]) -> Any:
        value = await result
        reach(name)
        return value

    def wrapper(wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if when == "before":
            reach(name)
            return wrapped(*args, **kwargs)
        result = wrapped(*args, **kwargs)
        if inspect.isawaitable(result):
            return after(result)
        reach(name)
        return result

    return wrapper
