"""Arguments that are wrong whatever the SDK."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from flyteplugins.agents.core import AgentTool, Retention, check_arguments


def test_arguments_that_adapters_take_pass() -> None:
    check_arguments()
    check_arguments(
        input=[{"role": "user", "content": "hi"}],
        model=object(),
        instructions=lambda: "Be brief.",
        name="helper",
        max_turns=1,
        durable=False,
        full_result=True,
        memory_required=True,
        memory_retention=Retention(max_age=datetime.timedelta(days=1)),
    )


@pytest.mark.parametrize(
    ("argument", "value", "kind"),
    [
        ("input", None, TypeError),
        ("input", 5, TypeError),
        ("input", b"hi", TypeError),
        ("model", 5, TypeError),
        ("model", "", ValueError),
        ("model", "  ", ValueError),
        ("instructions", 7, TypeError),
        ("name", "", ValueError),
        ("name", 3, TypeError),
        ("max_turns", "2", TypeError),
        ("max_turns", True, TypeError),
        ("max_turns", 0, ValueError),
        ("durable", "no", TypeError),
        ("full_result", 1, TypeError),
        ("memory_required", None, TypeError),
        ("memory_retention", 5, TypeError),
    ],
)
def test_an_argument_that_nobody_takes_is_named_with_its_value(
    argument: str, value: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as raised:
        check_arguments(**{argument: value})
    assert str(raised.value).startswith(f"{argument} is {value!r}; give ")


def test_a_class_is_no_tool() -> None:
    class Weather:
        """Not a function."""

    with pytest.raises(TypeError, match=r"Weather is a class\. Give a function, or a method of an instance"):
        AgentTool(Weather)
