"""Kept items are sent with an output for each call, and a call for each output."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from flyteplugins.agents.openai._repair import NO_OUTPUT, repair_items

USER: dict[str, Any] = {"role": "user", "content": "hi"}
SAID: dict[str, Any] = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]}
THOUGHT: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}


def call(name: str, kind: str = "function_call") -> dict[str, Any]:
    return {"type": kind, "call_id": name, "name": "look", "arguments": "{}"}


def output(name: str, kind: str = "function_call", text: str = "found") -> dict[str, Any]:
    return {"type": f"{kind}_output", "call_id": name, "output": text}


def missing(name: str, kind: str = "function_call") -> dict[str, Any]:
    return output(name, kind, NO_OUTPUT)


@pytest.mark.parametrize(
    ("kept", "sent"),
    [
        ([], []),
        ([USER, THOUGHT, call("a"), output("a"), SAID], [USER, THOUGHT, call("a"), output("a"), SAID]),
        ([USER, call("a")], [USER, call("a"), missing("a")]),
        ([USER, call("a"), USER], [USER, call("a"), missing("a"), USER]),
        (
            [call("a"), call("b"), THOUGHT, call("c"), output("b"), SAID],
            [call("a"), call("b"), THOUGHT, call("c"), output("b"), missing("a"), missing("c"), SAID],
        ),
        (
            [call("a"), call("b"), output("b"), THOUGHT, call("c"), output("c")],
            [call("a"), call("b"), output("b"), missing("a"), THOUGHT, call("c"), output("c")],
        ),
        ([output("a"), USER], [USER]),
        ([output("a"), call("a")], [call("a"), missing("a")]),
        ([call("a"), output("a"), output("a", text="twice")], [call("a"), output("a")]),
        ([call("a"), output("a"), call("a"), output("a")], [call("a"), output("a"), call("a"), output("a")]),
        (
            [call("a", "custom_tool_call"), USER],
            [call("a", "custom_tool_call"), missing("a", "custom_tool_call"), USER],
        ),
        ([call("a"), output("a", "custom_tool_call")], [call("a"), missing("a")]),
        ([call("a", "computer_call"), USER], [call("a", "computer_call"), USER]),
        (["text", None, {"type": 5}], ["text", None, {"type": 5}]),
    ],
)
def test_calls_and_outputs_are_paired(kept: list[Any], sent: list[Any]) -> None:
    before = copy.deepcopy(kept)
    assert repair_items(kept) == sent
    assert kept == before
    assert repair_items(sent) == sent


def test_messages_of_flytes_own_agents_become_items() -> None:
    kept: list[Any] = [
        USER,
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}],
        },
        {"role": "tool", "tool_call_id": "a", "name": "look", "content": "found"},
        {"role": "assistant", "content": "There."},
    ]
    assert repair_items(kept) == [
        USER,
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"x":1}'},
        output("a"),
        {"role": "assistant", "content": "There."},
    ]
