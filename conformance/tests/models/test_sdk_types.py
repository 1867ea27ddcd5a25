"""A body that does not fit the SDK's types is explained by its path and its value, not by every branch of a union."""

from __future__ import annotations

from typing import Any

import pytest

from flyteplugins.agents.conformance.models._sdk_types import BodyType, sdk_type

TYPES = {
    "responses": ("openai", "openai.types.responses.response_create_params:ResponseCreateParamsNonStreaming"),
    "chat": ("openai", "openai.types.chat.completion_create_params:CompletionCreateParamsNonStreaming"),
    "messages": ("anthropic", "anthropic.types.message_create_params:MessageCreateParamsNonStreaming"),
    "conversations": ("mistralai.client", "mistralai.client.models:ConversationRequest"),
}
KNOWN: dict[str, BodyType] = {}


def body_type(name: str) -> BodyType:
    package, path = TYPES[name]
    pytest.importorskip(package, exc_type=ImportError)
    return KNOWN.setdefault(name, BodyType(sdk_type(path)))


def items(*given: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(given)}


def messages(*given: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(given)}


def blocks(role: str, *given: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 1, "messages": [{"role": role, "content": list(given)}]}


FUNCTION = {"type": "function", "name": "x", "parameters": {}, "strict": True}
REQUIRED = "this field is required"
PROBLEMS: list[tuple[str, dict[str, Any], str, str]] = [
    ("responses", {"model": 3, "input": "x"}, "model", "should be a valid string; got 3"),
    ("responses", {"model": "m", "input": "x", "temperature": "hot"}, "temperature", "got 'hot'"),
    ("responses", {"model": "m", "input": "x", "tools": [{**FUNCTION, "odd": 1}]}, "tools[0].odd", "unknown field"),
    ("responses", items({"type": "function_call_output", "call_id": "c"}), "input[0].output", REQUIRED),
    ("responses", items({"type": "odd"}), "input[0].type", "allows 'odd'"),
    (
        "responses",
        items({"type": "function_call", "name": "x", "call_id": "c", "arguments": {}}),
        "input[0].arguments",
        "valid string; got {}",
    ),
    (
        "responses",
        items({"role": "user", "content": [{"type": "input_txt", "text": "x"}]}),
        "input[0].content[0].type",
        "allows 'input_txt'",
    ),
    (
        "responses",
        items({"role": "user", "content": [{"type": "input_text", "txt": "x"}]}),
        "input[0].content[0].text",
        REQUIRED,
    ),
    ("chat", messages({"role": "user"}), "messages[0].content", REQUIRED),
    ("chat", messages({"role": "robot", "content": "x"}), "messages[0].role", "allows 'robot'"),
    ("chat", messages({"role": "tool", "content": "x"}), "messages[0].tool_call_id", REQUIRED),
    (
        "chat",
        messages({"role": "assistant", "tool_calls": [{"id": "i", "type": "function", "function": {"name": "x"}}]}),
        "messages[0].tool_calls[0].function.arguments",
        REQUIRED,
    ),
    (
        "messages",
        blocks("user", {"type": "tool_result", "content": "x"}),
        "messages[0].content[0].tool_use_id",
        REQUIRED,
    ),
    ("messages", blocks("user", {"type": "txt"}), "messages[0].content[0].type", "allows 'txt'"),
    (
        "messages",
        blocks("assistant", {"type": "thinking", "thinking": "x"}),
        "messages[0].content[0].signature",
        REQUIRED,
    ),
    (
        "conversations",
        {"model": "m", "inputs": [{"type": "function.result", "result": "x"}]},
        "inputs[0].tool_call_id",
        REQUIRED,
    ),
    ("conversations", {"model": "m", "inputs": "x", "tolls": []}, "tolls", "unknown field"),
]


@pytest.mark.parametrize(("name", "body", "where", "what"), PROBLEMS, ids=[f"{p[0]}:{p[2]}" for p in PROBLEMS])
def test_a_problem_is_named(name: str, body: dict[str, Any], where: str, what: str) -> None:
    problem = body_type(name).problem(body)
    assert problem is not None
    assert problem[0] == where
    assert what in problem[1]


def test_a_body_that_fits_has_no_problem() -> None:
    assert body_type("responses").problem(items({"role": "user", "content": "x"})) is None
    assert body_type("chat").problem(messages({"role": "user", "content": [{"type": "text", "text": "x"}]})) is None


def test_without_the_sdk_nothing_is_checked() -> None:
    missing = BodyType(sdk_type("no_such_sdk.types:Body"))
    assert not missing.available
    assert missing.problem({"anything": 1}) is None
