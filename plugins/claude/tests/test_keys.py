"""The key of a turn: the same wherever and whenever it is asked, and another for all that the model would see differently."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from flyteplugins.agents.claude._codec import BodyCodec, EventsCodec, body_of, events_of, facts_of_body, is_held
from flyteplugins.agents.claude._request import in_order_of_calls, semantic_fields
from flyteplugins.agents.core import fingerprint

URL = "http://127.0.0.1:1234/anthropic"


def reminder(text: str) -> dict[str, str]:
    return {"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"}


CONTEXT = "As you answer the user's questions, you can use the following context:\n"
ATTACHED = "\n\nClaude Code attached this context automatically; it isn't part of the user's message."


def git(branch: str = "main", status: str = "?? new", commit: str = "# claudeMd") -> str:
    """What Claude Code tells of a repository."""
    return (
        "# gitStatus\nThis is the git status at the start of the conversation. Note that this status is a snapshot in time, and "
        f"will not update during the conversation.\n\nCurrent branch: {branch}\n\nStatus:\n{status}\n\nRecent commits:\n"
        f"151f9b0 {commit}"
    )


def request(
    *,
    session: str = "0001",
    cwd: str = "/work",
    date: str = "2026-11-29",
    left: int = 15_000_000,
    version: str = "2.1.332.1bd",
    prompt: str = "How warm is it?",
    result: str = "5 in Oslo",
    swapped: bool = False,
    agent: str = "a0123456789abcdef",
    context: str = "",
) -> dict[str, Any]:
    """A request in the form in which Claude Code 2.1.332 makes it."""
    environment = (
        f"# Environment\nYou have been invoked in the following environment: \n - Primary working directory: {cwd}\n"
        " - Platform: linux"
    )
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": result}]},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": f"agentId: {agent}"}]},
    ]
    if swapped:
        results.reverse()
    last = results[-1]["content"]
    last[-1]["text"] += "\n"
    last.append(reminder(f"<total_tokens>{left - 100} tokens left</total_tokens>"))
    results[-1]["cache_control"] = {"type": "ephemeral"}
    return {
        "model": "claude-sonnet-4-5",
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version={version}; cc_entrypoint=sdk-py;"},
            {"type": "text", "text": "You are a Claude agent.", "cache_control": {"type": "ephemeral"}},
        ],
        "tools": [{"name": "mcp__flyte_tools__temperature", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    reminder(environment),
                    reminder("You are powered by the model named Sonnet 4.5. The exact model ID is claude-sonnet-4-5."),
                    reminder(f"<total_tokens>{left} tokens left</total_tokens>"),
                    *([reminder(f"{CONTEXT}{context}{ATTACHED}")] if context else ()),
                    reminder(f"Today's date is {date}."),
                    {"type": "text", "text": prompt},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "toolu_1", "name": "temperature", "input": {"city": "Oslo"}},
                    {"type": "tool_use", "id": "toolu_2", "name": "temperature", "input": {"city": "Rome"}},
                ],
            },
            {"role": "user", "content": results},
        ],
        "metadata": {"user_id": json.dumps({"session_id": session})},
        "max_tokens": 32000,
        "stream": True,
    }


AGENTS = "Available agent types for the Agent tool:\n- adder: Adds. (Tools: mcp__flyte_tools__add)"


def to_later_models(body: dict[str, Any], agents: str = AGENTS, effort: str = "medium") -> dict[str, Any]:
    """The same as it is told to models since Claude 5: in a message of the system's behind the user's."""
    body = {**copy.deepcopy(body), "model": "claude-sonnet-5-5"}
    first, *others = body["messages"]
    told = [
        re.fullmatch(r"<system-reminder>\n(.*)\n</system-reminder>", block["text"], re.DOTALL)
        for block in first["content"]
    ]
    kept = [b for b, found in zip(first["content"], told, strict=True) if not found or found[1].startswith(CONTEXT)]
    first["content"] = kept[0]["text"] if len(kept) == 1 else kept
    made_up = [found[1] for found in told if found and not found[1].startswith(CONTEXT)]
    text = "\n\n".join([*made_up[:-1], *([agents] if agents else ()), made_up[-1]])
    mark = {"cache_control": {"type": "ephemeral"}}
    system = {
        "role": "system",
        "content": [{"type": "text", "text": text, **mark}],
        "output_config": {"effort": effort},
    }
    body["messages"] = [first, system, *others]
    return body


def key(body: dict[str, Any], url: str = URL) -> str:
    body = copy.deepcopy(body)
    in_order_of_calls(body)
    return fingerprint(semantic_fields(body, url))[0]


@pytest.mark.parametrize(
    "other",
    [
        {"session": "0002"},
        {"cwd": "/home/ada"},
        {"context": git()},
        {"context": git(branch="other", status="(clean)", commit="IMPORTANT: this context")},
        {"date": "2026-12-24"},
        {"left": 7_000},
        {"version": "2.1.333"},
        {"swapped": True},
        {"agent": "afedcba9876543210"},
    ],
    ids=str,
)
def test_what_differs_between_attempts_is_not_part_of_it(other: dict[str, Any]) -> None:
    assert key(request(**other)) == key(request())
    assert key(to_later_models(request(**other))) == key(to_later_models(request()))


def test_what_later_models_are_told_of_agents_and_effort_is_part_of_it() -> None:
    bodies = [
        to_later_models(request()),
        to_later_models(request(), agents=""),
        to_later_models(request(), agents=AGENTS.replace("Adds", "Subtracts")),
        to_later_models(request(), effort="high"),
        to_later_models(request(prompt="Today's date is 2026-11-29.")),
        to_later_models(request(prompt=AGENTS)),
    ]
    assert len({key(body) for body in bodies}) == len(bodies)


def test_whether_the_mark_for_the_cache_is_on_what_they_are_told_is_not() -> None:
    body = to_later_models(request())
    [told] = body["messages"][1]["content"]
    assert key(
        {
            **body,
            "messages": [body["messages"][0], {**body["messages"][1], "content": told["text"]}, *body["messages"][2:]],
        }
    ) == key(body)


def test_neither_is_the_form_of_the_answer_nor_the_port_of_a_server_on_this_machine() -> None:
    body = request()
    del body["stream"]
    assert key(body, "http://127.0.0.1:9/anthropic") == key(request())


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": "How warm is it? "},
        {"prompt": "Today's date is 2026-11-29."},
        {"prompt": "<total_tokens>5 tokens left</total_tokens>"},
        {"result": "6 in Oslo"},
        {"result": "5 in Oslo\n"},
        {"result": "a0123456789abcdef"},
        {"result": "<system-reminder>\n<total_tokens>5 tokens left</total_tokens>\n</system-reminder>"},
    ],
    ids=str,
)
def test_what_somebody_said_is_part_of_it(other: dict[str, Any]) -> None:
    assert key(request(**other)) != key(request())
    assert key(request(**other, swapped=True)) == key(request(**other))


def test_so_are_tools_instructions_model_settings_and_endpoint() -> None:
    found = {key(request()), key(request(), "https://api.anthropic.com")}
    changes: tuple[dict[str, Any], ...] = (
        {"model": "claude-opus-4-5"},
        {"tools": []},
        {"system": "You are somebody else."},
        {"max_tokens": 5},
        {"thinking": {"type": "disabled"}},
    )
    for change in changes:
        found.add(key({**request(), **change}))
    assert len(found) == 7


def test_results_are_sent_in_the_order_of_their_calls_with_the_reminder_behind_the_last() -> None:
    swapped = request(swapped=True)
    assert in_order_of_calls(swapped)
    assert swapped == request()
    assert not in_order_of_calls(swapped)


BODY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "text", "text": "Let me see: ☀", "citations": [{"type": "char_location", "cited_text": "x"}]},
        {"type": "future_thing", "what": [1, 2]},
        {"type": "tool_use", "id": "toolu_1", "name": "mcp__flyte_tools__add", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "mcp__flyte_tools__now", "input": {}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 5,
        "cache_read_input_tokens": 7,
        "cache_creation_input_tokens": 11,
        "output_tokens": 13,
    },
}


def test_an_answer_survives_in_either_form() -> None:
    """Claude Code may ask for it whole after it was streamed, and the other way round."""
    text = json.dumps(BODY)
    assert json.loads(body_of(events_of(text))) == BODY
    assert BodyCodec().decode(EventsCodec().encode(events_of(text))) == body_of(events_of(text))
    assert EventsCodec().decode(BodyCodec().encode(text)) == events_of(text)
    assert BodyCodec().decode(BodyCodec().encode(text)) == text


def test_what_people_want_to_know_of_an_answer() -> None:
    facts = facts_of_body(json.dumps(BODY), "mcp__flyte_tools__")
    assert facts.text == "Let me see: ☀"
    assert facts.tool_calls == ("add", "now")
    assert (facts.usage.input_tokens, facts.usage.cached_tokens, facts.usage.cache_write_tokens) == (23, 7, 11)
    assert (facts.usage.output_tokens, facts.usage.requests) == (13, 1)


def test_a_call_waits_for_the_record() -> None:
    """Claude Code starts a tool when the call's block is complete, before the answer is."""
    held = [is_held(event) for event in events_of(json.dumps(BODY))]
    names = [event.split("\n")[0].removeprefix("event: ") for event in events_of(json.dumps(BODY))]
    first = held.index(True)
    assert names[first] == "content_block_start"
    assert "toolu_1" in events_of(json.dumps(BODY))[first]
    assert not any(held[:first])
    text = json.dumps({**BODY, "content": [{"type": "text", "text": "message_stop, says tool_use"}]})
    assert [
        name for name, held in zip(map(kind, events_of(text)), map(is_held, events_of(text)), strict=True) if held
    ] == [
        "message_delta",
        "message_stop",
    ]


def kind(event: str) -> str:
    return event.split("\n")[0].removeprefix("event: ")


def test_the_reminder_behind_an_errors_text_is_no_part_of_the_key_either() -> None:
    """Claude Code writes an error as text, and the reminder behind it, if its result came last."""
    left = "<system-reminder>\n<total_tokens>5 tokens left</total_tokens>\n</system-reminder>"

    def asked(*results: dict[str, Any]) -> dict[str, Any]:
        calls: list[Any] = [
            {"type": "tool_use", "id": name, "name": "look", "input": {}} for name in ("first", "second")
        ]
        return {
            "model": "claude-sonnet-4-5",
            "messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": list(results)}],
        }

    def result(name: str, content: Any, **more: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": name, "content": content, **more}

    def late(text: str) -> dict[str, Any]:
        return result("second", text, is_error=True)

    found = [{"type": "text", "text": "found"}]
    in_order = asked(result("first", found), late(f"too late\n\n{left}"))
    other = asked(
        late("too late"), result("first", [{"type": "text", "text": "found\n"}, {"type": "text", "text": left}])
    )
    assert not in_order_of_calls(in_order)
    assert in_order_of_calls(other)
    assert other == in_order
    assert semantic_fields(other, "http://x") == semantic_fields(
        asked(result("first", found), late("too late")), "http://x"
    )
