"""Anthropic Messages: `POST /v1/messages` and token counting, good enough for the Claude Code CLI."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flyteplugins.agents.conformance.models._checks import check_pairing
from flyteplugins.agents.conformance.models._conversation import (
    Conversation,
    Message,
    OfferedTool,
    PastCall,
    PastResult,
)
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject, digest
from flyteplugins.agents.conformance.models._reply import Answer, Ids
from flyteplugins.agents.conformance.models._sdk_types import BodyType, sdk_type

from ._base import HttpCall, SideRoute, Wire, need, parts_text, result_text, sse

_TEXT = frozenset({"text"})
_ERRORS = {
    400: ("invalid_request_error", "The request is invalid."),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "The key may not use this resource."),
    404: ("not_found_error", "Not found."),
    413: ("request_too_large", "The request is too large."),
    429: ("rate_limit_error", "This request would exceed your rate limit."),
    500: ("api_error", "Internal server error"),
    503: ("api_error", "Service unavailable"),
    529: ("overloaded_error", "Overloaded"),
}
# Parameters of the protocol that newer SDKs no longer list, and the Claude Code CLI sends.
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_STOPS = {"end": "end_turn", "length": "max_tokens", "refusal": "refusal"}
# Claude Code names tools in a reminder, to be searched for with a tool of its own.
_SEARCH = "ToolSearch"
_DEFERRED = re.compile(r"deferred tools are now available[^\n]*\n(.*?)</system-reminder>", re.DOTALL)
# What Claude Code adds to the user's own words.
_REMINDERS = re.compile(r"<(system-reminder|total_tokens|new-diagnostics)>.*?</\1>", re.DOTALL)
# What it tells later models in a message of the system's among the others.
_ENVIRONMENT = "# Environment\nYou have been invoked in the following environment:"


class AnthropicMessages(Wire):
    """The Messages protocol, beta requests included. It remembers which thinking it signed."""

    name = "anthropic-messages"
    prefix = "/anthropic"
    paths = ("/v1/messages",)
    auth_headers = ("x-api-key", "authorization")

    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        self._types = {
            (beta, streamed): BodyType(
                sdk_type(
                    f"anthropic.types{'.beta' if beta else ''}.message_create_params:"
                    f"MessageCreateParams{'Streaming' if streamed else 'NonStreaming'}"
                ),
                also=_SAMPLING,
            )
            for beta in (False, True)
            for streamed in (False, True)
        }
        self.clear()

    def call_id(self, ids: Ids, index: int) -> str:
        """Return the id of a call: `toolu_` and 24 characters."""
        return ids.call(index, "toolu_", 24)

    def clear(self) -> None:
        """Forget which turns had thinking."""
        self._thinking: dict[str, str] = {}  # id of a call -> signature of the thinking that came before it

    def decode(self, call: HttpCall) -> Conversation:
        """Read a request."""
        body = call.body
        system, _ = parts_text(body.get("system"), _TEXT)
        messages, inline = read_messages(need(body, "messages", list))
        output = body.get("output_format") or (body.get("output_config") or {}).get("format") or {}
        return Conversation(
            wire=self.name,
            model=need(body, "model", str),
            system="\n\n".join(t for t in (system, inline) if t),
            messages=messages,
            tools=read_tools(body),
            tool_choice=_tool_choice(body.get("tool_choice")),
            output_schema=output.get("schema") if output.get("type") == "json_schema" else None,
            streamed=bool(body.get("stream")),
            body=body,
        )

    def validate(self, call: HttpCall) -> None:
        """Check field names and types, of the beta where the request is one."""
        body = call.body
        if problem := self._types["beta" in call.query, bool(body.get("stream"))].problem(body):
            where, what = problem
            raise Refusal(400, f"{where}: {what}", param=where)

    def check(self, call: HttpCall, conversation: Conversation) -> None:
        """Check that results follow their calls, and that thinking is unchanged."""
        body = call.body
        messages = body["messages"]
        if not messages:
            raise Refusal(400, "messages: at least one message is required", param="messages")
        for place, message in enumerate(messages):
            self._check_blocks(message, place)
        check_pairing(conversation, adjacent=True)
        self._check_thinking(body, messages)

    def _check_blocks(self, message: Mapping[str, Any], place: int) -> None:
        content = message.get("content")
        if not isinstance(content, list):
            return
        kinds = [b.get("type") for b in content]
        results = [i for i, kind in enumerate(kinds) if kind == "tool_result"]
        if results and results != list(range(len(results))):
            raise Refusal(400, f"messages.{place}: tool_result blocks come first in a user message", param="messages")
        for index, block in enumerate(content):
            if block.get("type") == "text" and not str(block.get("text", "")).strip():
                raise Refusal(400, f"messages.{place}.content.{index}: text content blocks must be non-empty")
            if block.get("type") == "thinking" and block.get("signature") != sign(str(block.get("thinking", ""))):
                raise Refusal(
                    400,
                    f"messages.{place}.content.{index}: Invalid `signature` in `thinking` block: the thinking was altered."
                    " Send thinking blocks back exactly as they came.",
                    param="messages",
                )

    def _check_thinking(self, body: JsonObject, messages: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a turn that had thinking before its calls and comes back without it, while its tool loop goes on."""
        if not _thinks(body):
            return
        open_turns = []
        for message in reversed(messages):
            content = message.get("content")
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            if message["role"] == "user" and any(b["type"] != "tool_result" and _own_words(b) for b in blocks):
                break
            open_turns.append(blocks)
        for blocks in open_turns:
            signatures = {b.get("signature") for b in blocks if b["type"] == "thinking"}
            for block in blocks:
                signature = self._thinking.get(str(block.get("id"))) if block["type"] == "tool_use" else None
                if signature and signature not in signatures:
                    raise Refusal(
                        400,
                        f"The turn with the call {block['id']!r} began with a thinking block, and the thinking is "
                        "missing. When thinking is on, an assistant message goes back with its thinking blocks while "
                        "its tool calls are answered.",
                        param="messages",
                    )

    def encode(self, conversation: Conversation, answer: Answer) -> JsonObject:
        """Return the message object."""
        return {
            "id": answer.ids.make("msg_", length=24),
            "type": "message",
            "role": "assistant",
            "model": conversation.model,
            "content": self._blocks(answer),
            "stop_reason": "tool_use" if answer.calls and answer.stop == "end" else _STOPS[answer.stop],
            "stop_sequence": None,
            "usage": _usage(answer),
        }

    def _blocks(self, answer: Answer) -> list[JsonObject]:
        out: list[JsonObject] = []
        if answer.thinking:
            out.append({"type": "thinking", "thinking": answer.thinking, "signature": sign(answer.thinking)})
        out += copy.deepcopy(list(answer.reply.items))
        if answer.text:
            out.append({"type": "text", "text": answer.text})
        for made in answer.calls:
            if not isinstance(made.parsed, dict):
                raise Refusal(
                    400,
                    f"The reply calls {made.name!r} with {made.arguments!r}, which is no JSON object; this wire carries "
                    "arguments as an object.",
                    kind="unscripted",
                )
            out.append({"type": "tool_use", "id": made.id, "name": made.name, "input": made.parsed})
        return out

    def admit(self, conversation: Conversation, answer: Answer) -> None:
        """Refuse a reply with thinking to a request that does not ask for it."""
        if self.strict and answer.thinking and not _thinks(conversation.body):
            raise Refusal(
                400,
                "The reply thinks, but the request does not ask for thinking: set `thinking` in the request.",
                kind="unscripted",
            )

    def commit(self, conversation: Conversation, answer: Answer) -> str:
        """Remember the thinking that came before each call."""
        if answer.thinking:
            self._thinking |= {c.id: sign(answer.thinking) for c in answer.calls}
        return super().commit(conversation, answer)

    def events(self, conversation: Conversation, answer: Answer) -> Iterator[bytes]:
        """Yield the events of a streamed message."""
        final = self.encode(conversation, answer)
        usage = final["usage"]

        def event(kind: str, **fields: object) -> bytes:
            return sse({"type": kind, **fields}, kind)

        begun = {**final, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield event("message_start", message=begun)
        yield event("ping")
        for index, block in enumerate(final["content"]):
            kind = block["type"]
            deltas: list[JsonObject] = []
            opened = block
            if kind == "text":
                opened = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": p} for p in answer.pieces(block["text"])]
            elif kind == "thinking":
                opened = {**block, "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": p} for p in answer.pieces(block["thinking"])]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            elif kind == "tool_use":
                opened = {**block, "input": {}}
                text = next(c.arguments for c in answer.calls if c.id == block["id"])
                deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *answer.pieces(text)]]
            yield event("content_block_start", index=index, content_block=opened)
            for delta in deltas:
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        stopped = {"stop_reason": final["stop_reason"], "stop_sequence": None}
        yield event("message_delta", delta=stopped, usage=usage)
        yield event("message_stop")

    def error(self, problem: Refusal) -> JsonObject:
        """Return an error body as Anthropic sends it."""
        fallback = "api_error" if problem.status >= 500 else "invalid_request_error"
        name, text = _ERRORS.get(problem.status, (fallback, "The request failed."))
        return {"type": "error", "error": {"type": name, "message": problem.message or text}, "request_id": None}

    def side_routes(self) -> Sequence[SideRoute]:
        """Return token counting and the model list."""
        return (
            SideRoute("POST", "/v1/messages/count_tokens", lambda c: {"input_tokens": self.decode(c).prompt_tokens}),
            SideRoute("GET", "/api/hello", lambda _: {"message": "hello"}),  # Claude Code asks when it starts
            SideRoute(
                "GET", "/v1/models", lambda _: {"data": [], "has_more": False, "first_id": None, "last_id": None}
            ),
        )


def read_messages(messages: Sequence[Any]) -> tuple[tuple[Message, ...], str]:
    """Read messages: the conversation, and system texts in the middle of it."""
    out: list[Message] = []
    system: list[str] = []
    searches: set[object] = set()
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Refusal(400, f"messages.{place}: an object is needed; got {message!r}")
        # A search for deferred tools is no turn of its own: the same turn is asked for again once they are there.
        blocks = [b for b in _blocks(message) if b.get("name") != _SEARCH and b.get("tool_use_id") not in searches]
        searches |= {b.get("id") for b in _blocks(message) if b.get("name") == _SEARCH}
        if len(blocks) < len(_blocks(message)):  # Claude Code adds "Tool loaded." to the result
            blocks = [b for b in blocks if b.get("type") != "text"]
            if not blocks:
                continue
        role = message.get("role")
        if role == "system":
            text = parts_text(blocks, _TEXT)[0]
            system += [] if text.startswith(_ENVIRONMENT) else [text]
            continue
        results = tuple(
            PastResult(str(b.get("tool_use_id", "")), _said(result_text(b.get("content") or "", _TEXT)),
                       is_error=bool(b.get("is_error")))
            for b in blocks if b.get("type") == "tool_result"
        )  # fmt: skip
        calls = tuple(
            PastCall(str(b.get("id", "")), str(b.get("name", "")), b.get("input"))
            for b in blocks
            if b.get("type") == "tool_use"
        )
        thinking = "".join(str(b.get("thinking", "")) for b in blocks if b.get("type") == "thinking")
        others = [
            {k: v for k, v in b.items() if k != "cache_control"}
            for b in blocks
            if b.get("type") not in ("text", "tool_result", "tool_use", "thinking")
        ]
        text = "\n".join(filter(None, (_own_words(b) for b in blocks)))
        data = digest(others) if others else ""
        if role == "assistant":
            out.append(Message("assistant", text, calls, (), thinking, data))
            continue
        if results:
            out.append(Message("tool", results=results))
        if text or data or not results:
            out.append(Message("user", text, data=data))
    return tuple(out), "\n\n".join(system)


def read_tools(body: Mapping[str, Any]) -> tuple[OfferedTool, ...]:
    """Read the tools that the client runs, and those that Claude Code only names and lets the model search for."""
    out = [
        OfferedTool(str(t.get("name", "")), str(t.get("description") or ""), t.get("input_schema") or {})
        for t in body.get("tools") or ()
        if t.get("type", "custom") in ("custom", None) and t.get("name") != "DeferredToolPlaceholder"
    ]
    names = {t.name for t in out}
    if _SEARCH in names:
        texts = [b.get("text", "") for m in body["messages"] for b in _blocks(m) if b.get("type") == "text"]
        named = [name for text in texts for match in _DEFERRED.finditer(str(text)) for name in match[1].split()]
        out += [OfferedTool(name, deferred=True) for name in dict.fromkeys(named) if name not in names]
    return tuple(out)


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _own_words(block: Mapping[str, Any]) -> str:
    """Return a text block's text without what Claude Code adds to it."""
    return _said(str(block.get("text") or "")) if block.get("type") == "text" else ""


def _said(text: str) -> str:
    return _REMINDERS.sub("", text).strip()


def _thinks(body: Mapping[str, Any]) -> bool:
    return (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")


def sign(thinking: str) -> str:
    """Return the signature of a thinking block's text."""
    return "sig_" + digest("thinking", thinking)


def _tool_choice(choice: Mapping[str, Any] | None) -> str:
    kind = (choice or {}).get("type", "auto")
    return {"any": "required", "tool": str((choice or {}).get("name", ""))}.get(kind, str(kind))


def _usage(answer: Answer) -> JsonObject:
    usage = answer.usage
    return {
        "input_tokens": usage.input - usage.cached - usage.cache_written,
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "service_tier": "standard",
    }
