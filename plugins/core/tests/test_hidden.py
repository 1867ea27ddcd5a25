"""Finding the parameters that take an SDK's context."""

from __future__ import annotations

from decimal import Context
from typing import Annotated, Any, Generic, Optional, TypeVar

import pytest

from flyteplugins.agents.core import context_parameters

T = TypeVar("T")


class Wrapper(Generic[T]):
    pass


class Injected:
    """A marker, as the class or with options."""

    def __init__(self, field: str) -> None:
        self.field = field


TYPES = {"decimal.Context", f"{__name__}.Wrapper", f"{__name__}.Injected", "sdk.ToolContext"}


def annotated(annotation: Any) -> Any:
    def function(first, other):  # type: ignore[no-untyped-def]
        return first, other

    function.__annotations__ = {"first": annotation, "other": int, "return": annotation}
    return function


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        Wrapper,
        Wrapper[int],
        Optional[Context],  # noqa: UP045
        Context | None,
        Annotated[Context, "why"],
        "ToolContext",
        "sdk.ToolContext",
        "sdk.ToolContext[int]",
        "ToolContext | None",
        "Optional['ToolContext']",
        "typing.Annotated[ToolContext, list[int]]",
        Annotated[dict[str, int], Injected],
        Annotated[dict[str, int], Injected("messages")],
        "Annotated[dict[str, int], Injected]",
        "Annotated[dict[str, int], sdk.Injected('messages')]",
    ],
)
def test_a_context_is_found(annotation: Any) -> None:
    assert context_parameters(annotated(annotation), TYPES) == {"first"}


@pytest.mark.parametrize(
    "annotation",
    [int, list[Context], "list[ToolContext]", "MyToolContext", "Annotated[int, 'ToolContext?']", "not python ]["],
)
def test_what_only_mentions_a_context_is_none(annotation: Any) -> None:
    assert context_parameters(annotated(annotation), TYPES) == frozenset()


def test_an_object_that_can_be_called_is_looked_into() -> None:
    class Tool:
        def __call__(self, context: Context, city: str) -> str:
            return city

    assert context_parameters(Tool(), TYPES) == {"context"}
