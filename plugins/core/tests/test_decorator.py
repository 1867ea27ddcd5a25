"""`tool` of an adapter can be called, put above a function, and put above one with options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from flyteplugins.agents.core import NativeTool, refuse_unknown_options, tool_decorator


@tool_decorator
def tool(
    target: Callable[..., Any], /, *, name: str | None = None, strict: bool = False
) -> tuple[Any, str | None, bool]:
    """Make a tool."""
    return target, name, strict


def look() -> str:
    """Look."""
    return "sunny"


def test_it_is_called_with_a_target_and_options() -> None:
    assert tool(look) == (look, None, False)
    assert tool(look, name="see", strict=True) == (look, "see", True)


def test_without_a_target_it_waits_for_one() -> None:
    assert tool(name="see")(look) == (look, "see", False)
    assert tool()(look) == (look, None, False)


def test_it_is_described_as_the_adapters_function_whose_target_may_be_left_out() -> None:
    assert tool.__doc__ == "Make a tool."
    parameters = inspect.signature(tool).parameters
    assert [(one.name, one.default) for one in parameters.values()] == [
        ("target", None), ("name", None), ("strict", False),
    ]  # fmt: skip


def test_an_option_that_nobody_knows_is_refused_at_once_or_with_the_target() -> None:
    made: Any = tool
    with pytest.raises(TypeError, match="sttrict"):
        made(look, sttrict=True)
    with pytest.raises(TypeError, match="sttrict"):
        made(sttrict=True)(look)


def test_options_of_the_sdk_are_those_that_the_adapter_takes() -> None:
    refuse_unknown_options({"timeout": 3}, ["timeout", "strict"])
    with pytest.raises(TypeError, match=r"no option tiemout; the SDK's own that it takes are timeout, strict\."):
        refuse_unknown_options({"tiemout": 3, "strict": True}, ["timeout", "strict"])


def test_a_renamed_tool_keeps_what_it_was_given_unless_it_is_given_another() -> None:
    first = NativeTool.of(look, sdk="json", factory="json:loads", durable=False, on_unknown="fail")
    kept = NativeTool.of(first, sdk="json", factory="json:loads", name="see", durable=True, on_unknown="retry")
    assert (kept.__agent_tool__.name, kept.__agent_tool__.durable, kept.__agent_tool__.on_unknown) == (
        "see",
        False,
        "fail",
    )
    other = NativeTool.of(kept, sdk="json", factory="json:loads", on_unknown="ask")
    assert other.__agent_tool__.on_unknown == "ask"
