"""How the API's answers are kept in records, and go back to Claude Code as they came.

A streamed answer is kept as the text of its server-sent events, a whole one as the text of its body, so that fields and events
nobody here knows of survive. Claude Code may ask for an answer again in the other form (it does when a stream broke off), and a
turn is one leaf in either: each codec reads what the other wrote.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from flyteplugins.agents.core import JSON, TurnFacts, Usage

__all__ = [
    "BodyCodec",
    "EventsCodec",
    "body_of",
    "event_data",
    "events_of",
    "facts_of_body",
    "facts_of_events",
    "is_held",
]

SDK_PROVIDER = "anthropic"


class BodyCodec:
    """The text of a whole answer."""

    def encode(self, value: str) -> JSON:
        """Keep the text."""
        return {"body": value}

    def decode(self, payload: JSON) -> str:
        """Give the text back."""
        kept = cast("dict[str, Any]", payload)
        return str(kept["body"]) if "body" in kept else body_of(cast("list[str]", kept["events"]))


class EventsCodec:
    """The texts of the events of a streamed answer."""

    def encode(self, value: list[str]) -> JSON:
        """Keep the texts."""
        return {"events": cast(JSON, value)}

    def decode(self, payload: JSON) -> list[str]:
        """Give the texts back."""
        kept = cast("dict[str, Any]", payload)
        return [str(event) for event in kept["events"]] if "events" in kept else events_of(str(kept["body"]))


def event_data(event: str) -> dict[str, Any]:
    """Read what an event carries; nothing of a comment, or of what is no JSON object.

    Args:
        event: Its text, without the empty line behind it.
    """
    lines = [line[5:].removeprefix(" ") for line in event.splitlines() if line.startswith("data:")]
    try:
        data = json.loads("\n".join(lines)) if lines else None
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def is_held(event: str) -> bool:
    """Whether an event has to wait for the record: something is done on it, or the answer is over.

    Claude Code may run a tool as soon as the call's block is complete, before the answer is.

    Args:
        event: Its text.
    """
    if "tool_use" in event:
        data = event_data(event)
        if data.get("type") == "content_block_start" and data["content_block"].get("type") == "tool_use":
            return True
    return "message_delta" in event[:40] or "message_stop" in event[:40]


def body_of(events: Sequence[str]) -> str:
    """Put the events of an answer together to the whole answer.

    Args:
        events: Their texts, all of them.
    """
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    partial: dict[int, str] = {}
    for event in events:
        data = event_data(event)
        match data.get("type"):
            case "message_start":
                message = {**data["message"], "usage": dict(data["message"].get("usage") or {})}
            case "content_block_start":
                blocks[data["index"]] = dict(data["content_block"])
            case "content_block_delta":
                _add(blocks[data["index"]], data["delta"], partial, data["index"])
            case "content_block_stop" if data["index"] in partial:
                blocks[data["index"]]["input"] = json.loads(partial[data["index"]] or "{}")
            case "message_delta":
                message.update(data.get("delta") or {})
                said = {name: number for name, number in (data.get("usage") or {}).items() if number is not None}
                message["usage"].update(said)
    message["content"] = [blocks[index] for index in sorted(blocks)]
    return json.dumps(message, ensure_ascii=False)


def _add(block: dict[str, Any], delta: dict[str, Any], partial: dict[int, str], index: int) -> None:
    match delta.get("type"):
        case "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
        case "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
        case "signature_delta":
            block["signature"] = block.get("signature", "") + delta["signature"]
        case "input_json_delta":
            partial[index] = partial.get(index, "") + delta["partial_json"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]


def events_of(body: str) -> list[str]:
    """Make the events of a whole answer.

    Args:
        body: Its text.
    """
    message = json.loads(body)
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    events = [_event("message_start", message=begun)]
    for index, block in enumerate(message.get("content") or ()):
        opened, deltas = _open(block)
        events.append(_event("content_block_start", index=index, content_block=opened))
        events += [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
        events.append(_event("content_block_stop", index=index))
    delta = {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
    events.append(_event("message_delta", delta=delta, usage=message.get("usage") or {}))
    events.append(_event("message_stop"))
    return events


def _open(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    match block.get("type"):
        case "text":
            cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations") or ()]
            opened = {**block, "text": ""} | ({"citations": []} if cited else {})
            return opened, [{"type": "text_delta", "text": block["text"]}, *cited]
        case "thinking":
            said = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block.get("signature", "")}
            return {**block, "thinking": "", "signature": ""}, [said, signed]
        case "tool_use" | "server_tool_use":
            text = json.dumps(block.get("input") or {}, ensure_ascii=False)
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
    return block, []


def _event(kind: str, **fields: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields}, ensure_ascii=False)}"


def facts_of_events(events: Sequence[str], prefix: str = "") -> TurnFacts:
    """Say what people and budgets want to know of a streamed answer.

    Args:
        events: Their texts.
        prefix: What Claude Code puts before the names of the run's tools.
    """
    return facts_of_body(body_of(events), prefix)


def facts_of_body(body: str, prefix: str = "") -> TurnFacts:
    """Say what people and budgets want to know of a whole answer.

    Args:
        body: Its text.
        prefix: What Claude Code puts before the names of the run's tools.
    """
    message = json.loads(body)
    content = message.get("content") or []
    used = message.get("usage") or {}
    cached = int(used.get("cache_read_input_tokens") or 0)
    written = int(used.get("cache_creation_input_tokens") or 0)
    return TurnFacts(
        text="".join(str(block.get("text", "")) for block in content if block.get("type") == "text"),
        tool_calls=tuple(
            str(block.get("name")).removeprefix(prefix) for block in content if block.get("type") == "tool_use"
        ),
        usage=Usage(
            requests=1,
            input_tokens=int(used.get("input_tokens") or 0) + cached + written,
            output_tokens=int(used.get("output_tokens") or 0),
            cached_tokens=cached,
            reasoning_tokens=int((used.get("output_tokens_details") or {}).get("thinking_tokens") or 0),
            cache_write_tokens=written,
        ),
        messages=[{"role": "assistant", "content": content}],
        provider=SDK_PROVIDER,
    )
