"""Entries of a conversation as JSON values, and what a turn's events come to as entries, and the other way round."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from mistralai.client.models import (
    ConversationEvents,
    ConversationResponse,
    UnknownConversationEventsData,
)
from mistralai.client.models.conversationevents import ConversationEventsData
from pydantic import BaseModel

from flyteplugins.agents.core import JSON

__all__ = [
    "Entry",
    "event_values",
    "events_of",
    "input_entries",
    "message_text",
    "plain",
    "response_of",
    "sendable",
]

Entry = dict[str, Any]
"""An entry as JSON values, `type` included."""

_SERVER_ONLY = frozenset({"id", "object", "created_at", "completed_at"})
"""What the server notes on an entry, and no model sees."""


def plain(entry: BaseModel | Mapping[str, Any]) -> Entry:
    """Turn an entry into JSON values, as they were sent.

    Args:
        entry: One of the SDK's entry models, or a mapping.
    """
    if isinstance(entry, BaseModel):
        values = entry.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {"type": entry.type, **values} if hasattr(entry, "type") else values
    return {"type": "message.input", **entry}


def input_entries(input: object) -> list[Entry]:
    """Read what `run_agent` was given as the user's words.

    Args:
        input: Text, or a list of entries: the SDK's models, or mappings as in its `...TypedDict`s.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(input, str):
        return [{"type": "message.input", "role": "user", "content": input}]
    if not isinstance(input, (list, tuple)):
        raise TypeError(f"input is a {type(input).__qualname__}; give text, or a list of conversation entries.")
    for place, entry in enumerate(input):
        if not isinstance(entry, (BaseModel, Mapping)):
            raise TypeError(f"input[{place}] is a {type(entry).__qualname__}; give conversation entries.")
    return [plain(entry) for entry in input]


def sendable(entries: Iterable[Entry]) -> list[Entry]:
    """Leave out of entries what only the server that made them can know."""
    return [{name: value for name, value in entry.items() if name not in _SERVER_ONLY} for entry in entries]


def message_text(entry: Mapping[str, Any]) -> str:
    """The text of a message, without thinking; files and references in the words that the SDK has for them."""
    content = entry.get("content")
    if isinstance(content, str):
        return content
    return "".join(_chunk_text(chunk) for chunk in content or ())


def _chunk_text(chunk: object) -> str:
    if isinstance(chunk, str):
        return chunk
    if not isinstance(chunk, Mapping):
        return ""
    match chunk.get("type"):
        case "text":
            return str(chunk.get("text", ""))
        case "tool_file":
            return f"<File id={chunk.get('file_id')} name={chunk.get('file_name')}>"
        case "tool_reference":
            return f"<Reference title={chunk.get('title')}>"
    return ""


# -- a streamed turn


def response_of(events: Sequence[ConversationEvents]) -> ConversationResponse:
    """Put together the response that a turn's events come to.

    The SDK's own function for this knows messages and calls; this one keeps hand-offs, the executions of built-in tools and the
    state of a confirmation as well, and joins thinking that came in pieces: its signature is one over all of them.

    Args:
        events: All events of one turn.

    Raises:
        ValueError: The events do not say which conversation they are of.
    """
    outputs: dict[int, list[ConversationEventsData]] = defaultdict(list)
    conversation_id: str | None = None
    usage: JSON = {}
    for event in events:
        data = event.data
        if data.type == "conversation.response.started":
            conversation_id = data.conversation_id
        elif data.type == "conversation.response.done":
            usage = data.usage.model_dump(mode="json", exclude_unset=True)
        elif (index := getattr(data, "output_index", None)) is not None:
            outputs[index].append(data)
    if conversation_id is None:
        raise ValueError("The stream has no conversation.response.started event.")
    return ConversationResponse.model_validate(
        {
            "object": "conversation.response",
            "conversation_id": conversation_id,
            "outputs": [entry for _, pieces in sorted(outputs.items()) if (entry := _entry_of(pieces)) is not None],
            "usage": usage,
        }
    )


def _entry_of(pieces: Sequence[ConversationEventsData]) -> Entry | None:
    first, *_ = values = [piece.model_dump(mode="json", by_alias=True, exclude_unset=True) for piece in pieces]
    entry: Entry = {"object": "entry"} | {
        name: first[name] for name in ("id", "created_at", "model", "agent_id") if first.get(name) is not None
    }
    kind = pieces[0].type
    if kind == "message.output.delta":
        chunks = [value["content"] for value in values]
        return entry | {"type": "message.output", "role": "assistant", "content": _joined(chunks)}
    if kind == "function.call.delta":
        names = ("name", "tool_call_id", "confirmation_status")
        entry |= {name: first[name] for name in names if first.get(name) is not None}
        return entry | {"type": "function.call", "arguments": "".join(value["arguments"] for value in values)}
    if kind.startswith("agent.handoff"):
        merged = {name: value for piece in values for name, value in piece.items()}
        parties = ("previous_agent_id", "previous_agent_name", "next_agent_id", "next_agent_name")
        return entry | {"type": "agent.handoff"} | {name: merged[name] for name in parties if name in merged}
    if kind.startswith("tool.execution"):
        arguments = "".join(value.get("arguments", "") for value in values)
        info = next((value["info"] for value in values if value.get("info") is not None), None)
        entry |= {"type": "tool.execution", "name": first["name"], "arguments": arguments}
        return entry if info is None else entry | {"info": info}
    return None


def _joined(chunks: Sequence[Any]) -> str | list[Entry]:
    if all(isinstance(chunk, str) for chunk in chunks):
        return "".join(chunks)
    content: list[Entry] = []
    for piece in chunks:
        chunk: Entry = {"type": "text", "text": piece} if isinstance(piece, str) else dict(piece)
        last = content[-1] if content else {}
        if chunk.get("type") == last.get("type") == "text":
            last["text"] += chunk["text"]
        elif chunk.get("type") == last.get("type") == "thinking" and not last.get("signature"):
            content[-1] = _joined_thinking(last, chunk)
        else:
            content.append(chunk)
    return content


def _joined_thinking(one: Entry, two: Entry) -> Entry:
    parts = [dict(part) for part in one["thinking"]]
    for part in two["thinking"]:
        if part.get("type") == "text" and parts and parts[-1].get("type") == "text":
            parts[-1]["text"] += part["text"]
        else:
            parts.append(dict(part))
    return {**one, **two, "thinking": parts}


def events_of(response: ConversationResponse) -> list[ConversationEvents]:
    """Make the events that a stream of a response would have had, each output in one piece.

    Args:
        response: A response that was not streamed.
    """
    events: list[Entry] = [{"type": "conversation.response.started", "conversation_id": response.conversation_id}]
    for index, output in enumerate(response.outputs):
        events += _pieces_of(plain(output), index)
    events.append(
        {"type": "conversation.response.done", "usage": response.usage.model_dump(mode="json", exclude_unset=True)}
    )
    return [ConversationEvents.model_validate({"event": event["type"], "data": event}) for event in events]


def _pieces_of(entry: Entry, index: int) -> list[Entry]:
    at = {"id": entry.get("id") or "", "output_index": index}
    at |= {name: entry[name] for name in ("created_at", "model", "agent_id") if name in entry}
    match entry["type"]:
        case "message.output":
            content = entry["content"]
            chunks = content if isinstance(content, list) else [content]
            return [
                at | {"type": "message.output.delta", "role": "assistant", "content_index": place, "content": chunk}
                for place, chunk in enumerate(chunks)
            ]
        case "function.call":
            kept = {name: entry[name] for name in ("name", "tool_call_id", "confirmation_status") if name in entry}
            return [at | kept | {"type": "function.call.delta", "arguments": _argument_text(entry["arguments"])}]
        case "agent.handoff":
            before = {name: value for name, value in entry.items() if name.startswith("previous_")}
            after = {name: value for name, value in entry.items() if name.startswith("next_")}
            return [at | before | {"type": "agent.handoff.started"}, at | after | {"type": "agent.handoff.done"}]
        case "tool.execution":
            name = {"name": entry["name"]}
            info = {"info": entry["info"]} if entry.get("info") is not None else {}
            return [
                at | name | {"type": "tool.execution.started", "arguments": entry["arguments"]},
                at | name | info | {"type": "tool.execution.done"},
            ]
    raise ValueError(f"A stream has no events for a {entry['type']}.")


def _argument_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def event_values(event: ConversationEvents) -> JSON:
    """Turn an event into JSON values; one of a type that the SDK does not know, too."""
    data = event.data
    if isinstance(data, UnknownConversationEventsData):
        return {"event": event.event, "data": cast(JSON, data.raw)}
    values = data.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {"event": event.event, "data": cast(JSON, {"type": data.type, **values})}
