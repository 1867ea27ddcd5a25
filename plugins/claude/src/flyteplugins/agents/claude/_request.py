"""What a request asks, without what the CLI makes up anew in each process: the key of a turn.

Claude Code adds to what the caller and the model said: where it runs, the date, how many tokens are left, a session id, marks for
the provider's cache. None of it is the caller's, all of it differs between two attempts of one run, and each is recognized by its
exact form and place, so that the caller's own words stay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from flyteplugins.agents.core import endpoint_identity

__all__ = ["semantic_fields"]

_NOT_ASKED = frozenset({"metadata", "stream", "context_management"})
"""The session's and device's ids; how the answer is delivered; how the provider trims what was thought before."""

_BILLING = "x-anthropic-billing-header:"

_REMINDER = re.compile(
    r"<system-reminder>\n(?:"
    r"# Environment\nYou have been invoked in the following environment: ?\n.*?"
    r"|You are powered by the model [^\n]*"
    r"|<total_tokens>\d+ tokens left</total_tokens>"
    r"|Today's date is \d{4}-\d\d-\d\d\."
    r"|The date has changed\. Today's date is now \d{4}-\d\d-\d\d\.[^\n]*"
    r")\n</system-reminder>\n?",
    re.DOTALL,
)

_SUBAGENT = re.compile(r"\b(agentId: |agent-|<task-id>|tasks/)(a[0-9a-f]{16})\b")
_SUBAGENT_PLACE = re.compile(r"<output-file>[^<]*</output-file>|<duration_ms>\d+</duration_ms>|duration_ms: \d+")


def semantic_fields(body: Mapping[str, Any], upstream: str) -> dict[str, object]:
    """Take a request apart into the fields that its key is made of.

    Args:
        body: The body of `POST /v1/messages`.
        upstream: The address that it is meant for.

    Returns:
        The endpoint, the model, system texts, tools, messages and everything else, by field.
    """
    names: dict[str, str] = {}
    order: dict[str, int] = {}
    messages = [_message(message, order, names) for message in body.get("messages") or ()]
    rest = {name: value for name, value in body.items() if name not in _NOT_ASKED}
    return {
        "endpoint": endpoint_identity(upstream),
        "model": rest.pop("model", None),
        "system": _system(rest.pop("system", None), names),
        "tools": _clean(rest.pop("tools", None), names),
        "messages": messages if rest.pop("messages", None) is not None else None,
        "settings": _clean(rest, names),
    }


def _system(system: Any, names: dict[str, str]) -> Any:
    if not isinstance(system, list):
        return _clean(system, names)
    return [
        _clean(block, names)
        for block in system
        if not (isinstance(block, dict) and str(block.get("text", "")).startswith(_BILLING))
    ]


def _message(message: Any, order: dict[str, int], names: dict[str, str]) -> Any:
    """One message. Results of one turn are put in the order of its calls: Claude Code sends them as they arrive."""
    content = message.get("content")
    if not isinstance(content, list):
        return _clean(message, names)
    for block in content:
        if block.get("type") == "tool_use":
            order.setdefault(str(block.get("id")), len(order))
    results = [block for block in content if block.get("type") == "tool_result"]
    others = [block for block in content if block.get("type") != "tool_result" and not _is_reminder(block)]
    results.sort(key=lambda block: order.get(str(block.get("tool_use_id")), len(order)))
    blocks = [_clean(_result(block), names) for block in results] + [_clean(block, names) for block in others]
    return {**_clean({name: value for name, value in message.items() if name != "content"}, names), "content": blocks}


def _result(block: dict[str, Any]) -> dict[str, Any]:
    """A tool's result without the reminder behind it, which whichever result came last has."""
    content = block.get("content")
    if not isinstance(content, list):
        return block
    kept = list(content)
    while len(kept) > 1 and _is_reminder(kept[-1]):  # the first is the tool's own
        kept.pop()
        last = kept[-1]
        if isinstance(last, dict) and last.get("type") == "text" and str(last.get("text")).endswith("\n"):
            kept[-1] = {**last, "text": last["text"][:-1]}  # put there to keep the two apart
    return {**block, "content": kept}


def _is_reminder(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") == "text"
        and _REMINDER.fullmatch(str(block.get("text"))) is not None
    )


def _clean(value: Any, names: dict[str, str]) -> Any:
    """A value without cache marks, and with the ids of sub-agents replaced in the order in which they appear."""
    if isinstance(value, str):
        if "a" not in value:
            return value
        text = _SUBAGENT.sub(lambda match: match[1] + names.setdefault(match[2], f"#{len(names)}"), value)
        return _SUBAGENT_PLACE.sub("", text) if text != value else value
    if isinstance(value, dict):
        return {name: _clean(item, names) for name, item in value.items() if name != "cache_control"}
    if isinstance(value, list):
        return [_clean(item, names) for item in value]
    return value
