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

__all__ = ["in_order_of_calls", "semantic_fields"]

_NOT_ASKED = frozenset({"metadata", "stream", "context_management"})
"""The session's and device's ids; how the answer is delivered; how the provider trims what was thought before."""

_BILLING = "x-anthropic-billing-header:"

_ENVIRONMENT = r"# Environment\nYou have been invoked in the following environment: ?\n.*?"
_LINES = (
    r"You are powered by the model [^\n]*",
    r"<total_tokens>\d+ tokens left</total_tokens>",
    r"Today's date is \d{4}-\d\d-\d\d\.",
    r"The date has changed\. Today's date is now \d{4}-\d\d-\d\d\.[^\n]*",
)

_REMINDER = re.compile(rf"<system-reminder>\n(?:{'|'.join((_ENVIRONMENT, *_LINES))})\n</system-reminder>\n?", re.DOTALL)
"""A block of the user's message, as models up to Claude 4.5 are told."""

_PARAGRAPH = re.compile("|".join((_ENVIRONMENT, *_LINES)), re.DOTALL)
"""A paragraph of a message of the system's among the others, as later models are told."""

_CONTEXT = "<system-reminder>\nAs you answer the user's questions, you can use the following context:\n"

_GIT = re.compile(
    r"# gitStatus\nThis is the git status at the start of the conversation\. Note that .*?"
    r"(?=\n# (?:claudeMd|currentDate|userEmail)\n|\n\n *(?:Claude Code attached this context|IMPORTANT: this context)"
    r"|\n</system-reminder>)\n*",
    re.DOTALL,
)
"""What git says of the folder: a branch, changed files, the latest commits. Another checkout, or none, is no other question."""

_NO_CONTEXT = re.compile(
    re.escape(_CONTEXT)
    + r"\s*(?:(?:Claude Code attached this context|IMPORTANT: this context)[^\n]*)?\s*</system-reminder>\n?"
)

_SUBAGENT = re.compile(r"\b(agentId: |agent-|<task-id>|tasks/)(a[0-9a-f]{16})\b")
_SUBAGENT_PLACE = re.compile(r"<output-file>[^<]*</output-file>|<duration_ms>\d+</duration_ms>|duration_ms: \d+")


_APART = "\n\n"
"""What Claude Code writes between an error's text and a reminder."""


def in_order_of_calls(body: dict[str, Any]) -> bool:
    """Put the results of each turn in the order of its calls: Claude Code sends them as they arrive.

    The model is asked the same then, however long each tool took. What stands behind the last result (a reminder, a mark for the
    provider's cache) stays behind the last one.

    Args:
        body: The body of `POST /v1/messages`, which is changed.

    Returns:
        Whether anything was moved.
    """
    order: dict[str, int] = {}
    moved = False
    for message in body.get("messages") or ():
        content = message.get("content")
        if not isinstance(content, list):
            continue
        for block in content:
            if block.get("type") == "tool_use":
                order.setdefault(str(block.get("id")), len(order))
        results = [block for block in content if block.get("type") == "tool_result"]
        ordered = sorted(results, key=lambda block: order.get(str(block.get("tool_use_id")), len(order)))
        if ordered == results:
            continue
        moved = True
        marked = [block.pop("cache_control") for block in ordered if "cache_control" in block]
        reminders = [reminder for block in ordered for reminder in _take_reminders(block)]
        if reminders:
            _put_reminders(ordered[-1], reminders)
        if marked:
            ordered[-1]["cache_control"] = marked[-1]
        message["content"] = [*ordered, *(block for block in content if block.get("type") != "tool_result")]
    return moved


def _take_reminders(block: dict[str, Any]) -> list[Any]:
    """Take the reminders off a tool's result, and the line's end that was put there to keep the two apart."""
    content = block.get("content")
    taken: list[Any] = []
    if isinstance(content, str):  # an error's: Claude Code writes the reminder behind it
        own, apart, reminder = content.rpartition(_APART)
        while apart and own and _is_reminder(said := {"type": "text", "text": reminder}):
            content = own
            taken.insert(0, said)
            own, apart, reminder = content.rpartition(_APART)
    while isinstance(content, list) and len(content) > 1 and _is_reminder(content[-1]):  # the first is the tool's own
        *content, reminder = content
        last = content[-1]
        if isinstance(last, dict) and last.get("type") == "text" and str(last.get("text")).endswith("\n"):
            content[-1] = {**last, "text": last["text"][:-1]}
        taken.insert(0, reminder)
    block["content"] = content
    return taken


def _put_reminders(block: dict[str, Any], reminders: list[Any]) -> None:
    content = block.get("content")
    if isinstance(content, str):
        block["content"] = _APART.join([content, *(str(reminder["text"]) for reminder in reminders)])
        return
    blocks = list(content or ())
    if blocks and blocks[-1].get("type") == "text":
        blocks[-1] = {**blocks[-1], "text": f"{blocks[-1]['text']}\n"}
    block["content"] = [*blocks, *reminders]


def semantic_fields(body: Mapping[str, Any], upstream: str) -> dict[str, object]:
    """Take a request apart into the fields that its key is made of.

    Args:
        body: The body of `POST /v1/messages`.
        upstream: The address that it is meant for.

    Returns:
        The endpoint, the model, system texts, tools, messages and everything else, by field.
    """
    names: dict[str, str] = {}
    told = [_without_made_up(message) for message in body.get("messages") or ()]
    messages = [_message(message, names) for message in told if message is not None]
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


def _without_made_up(message: Any) -> Any:
    """A message of the system's among the others without what Claude Code tells of itself; `None` where nothing else is in it."""
    if message.get("role") != "system":
        return message
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kept = []
    for block in blocks or ():
        if not isinstance(block, dict) or block.get("type") != "text":
            kept.append(block)
            continue
        paragraphs = str(block.get("text")).split(_APART)
        if left := _APART.join(paragraph for paragraph in paragraphs if not _PARAGRAPH.fullmatch(paragraph)):
            kept.append({**block, "text": left})
    rest = {name: value for name, value in message.items() if name != "content"}  # such as how much effort to make
    return {**rest, "content": kept} if kept or len(rest) > 1 else None


def _message(message: Any, names: dict[str, str]) -> Any:
    content = message.get("content")
    if isinstance(content, str):  # the same to the model; which of the two it is depends on what else is told
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return _clean(message, names)
    kept = [block for block in map(_without_git, content) if not _is_reminder(block)]
    results = [block for block in kept if block.get("type") == "tool_result"]
    blocks = [_clean(_without_reminders(block) if block in results else block, names) for block in kept]
    return {**_clean({name: value for name, value in message.items() if name != "content"}, names), "content": blocks}


def _without_reminders(block: dict[str, Any]) -> dict[str, Any]:
    """A tool's result as the tool gave it."""
    copied = dict(block)
    _take_reminders(copied)
    return copied


def _without_git(block: Any) -> Any:
    """A block of context without what git says of the folder; other context in it stays."""
    if isinstance(block, dict) and block.get("type") == "text" and str(block.get("text")).startswith(_CONTEXT):
        return {**block, "text": _GIT.sub("", block["text"], count=1)}
    return block


def _is_reminder(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    text = str(block.get("text"))
    return _REMINDER.fullmatch(text) is not None or _NO_CONTEXT.fullmatch(text) is not None


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
