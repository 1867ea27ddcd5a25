"""OpenAI Chat Completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flyteplugins.agents.conformance.models._checks import check_pairing
from flyteplugins.agents.conformance.models._conversation import Conversation, Message, PastCall, PastResult
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject, canonical, digest, parse_arguments
from flyteplugins.agents.conformance.models._reply import Answer
from flyteplugins.agents.conformance.models._sdk_types import BodyType, sdk_type

from ._base import CREATED_AT, HttpCall, Wire, need, parts_text, result_text, sse
from ._openai import function_tools, openai_error, read_tool_choice

_TEXT = frozenset({"text", "refusal", "input_text", "output_text"})
_PARAMS = "openai.types.chat.completion_create_params:CompletionCreateParams"
_FINISH = {"end": "stop", "length": "length", "refusal": "stop"}


class OpenAIChat(Wire):
    """The Chat Completions protocol. It keeps no state."""

    name = "openai-chat"
    prefix = "/openai"
    paths = ("/v1/chat/completions",)

    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        self._types = {
            False: BodyType(sdk_type(_PARAMS + "NonStreaming")),
            True: BodyType(sdk_type(_PARAMS + "Streaming")),
        }

    def decode(self, call: HttpCall) -> Conversation:
        """Read a request."""
        body = call.body
        messages, system = read_messages(need(body, "messages", list))
        output = body.get("response_format") or {}
        schema = output.get("json_schema") or {}
        return Conversation(
            wire=self.name,
            model=need(body, "model", str),
            system=system,
            messages=messages,
            tools=function_tools(body.get("tools") or ()),
            tool_choice=read_tool_choice(body.get("tool_choice")),
            output_schema=schema.get("schema"),
            output_name=str(schema.get("name") or ""),
            streamed=bool(body.get("stream")),
            body=body,
        )

    def validate(self, call: HttpCall) -> None:
        """Check field names and types."""
        body = {**call.body, "messages": [_without_reasoning(m) for m in call.body["messages"]]}
        if problem := self._types[bool(body.get("stream"))].problem(body):
            where, what = problem
            raise Refusal(400, f"Invalid request at '{where}': {what}.", param=where)

    def check(self, call: HttpCall, conversation: Conversation) -> None:
        """Check that the results follow their calls."""
        if not call.body["messages"]:
            raise Refusal(400, "Invalid 'messages': empty array. Expected at least one message.", param="messages")
        check_pairing(conversation, adjacent=True)

    def encode(self, conversation: Conversation, answer: Answer) -> JsonObject:
        """Return the completion object."""
        message: JsonObject = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
        if answer.stop == "refusal":
            message |= {"content": None, "refusal": answer.text}
        if answer.thinking:
            message["reasoning_content"] = answer.thinking  # as DeepSeek, vLLM and others spell it on this protocol
        if answer.calls:
            message["tool_calls"] = self._calls(answer)
        for item in answer.reply.items:
            message |= item
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(answer)}
        return {**self._head(conversation, answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)}

    def events(self, conversation: Conversation, answer: Answer) -> Iterator[bytes]:
        """Yield the chunks of a streamed completion."""
        head = self._head(conversation, answer, "chat.completion.chunk")
        wants_usage = bool((conversation.body.get("stream_options") or {}).get("include_usage"))
        more: JsonObject = {"usage": None} if wants_usage else {}

        def chunk(delta: JsonObject, finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return sse({**head, "choices": [choice], **more})

        yield chunk({"role": "assistant", "content": "" if answer.text or not answer.calls else None, "refusal": None})
        for piece in answer.pieces(answer.thinking):
            yield chunk({"reasoning_content": piece})
        for item in answer.reply.items:
            yield chunk(item)
        field = "refusal" if answer.stop == "refusal" else "content"
        for piece in answer.pieces(answer.text):
            yield chunk({field: piece})
        for index, made in enumerate(self._calls(answer)):
            function = made["function"]
            opened = {"index": index, **made, "function": {"name": function["name"], "arguments": ""}}
            yield chunk({"tool_calls": [opened]})
            for piece in answer.pieces(function["arguments"]):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, self._finish(answer))
        if wants_usage:
            yield sse({**head, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def error(self, problem: Refusal) -> JsonObject:
        """Return an error body as OpenAI sends it."""
        return openai_error(problem)

    def _head(self, conversation: Conversation, answer: Answer, kind: str) -> JsonObject:
        return {
            "id": answer.ids.make("chatcmpl-"),
            "object": kind,
            "created": CREATED_AT,
            "model": conversation.model,
            "service_tier": "default",
            "system_fingerprint": "fp_offline",
        }

    def _calls(self, answer: Answer) -> list[JsonObject]:
        return [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in answer.calls
        ]

    def _finish(self, answer: Answer) -> str:
        return "tool_calls" if answer.calls and answer.stop == "end" else _FINISH[answer.stop]


def read_messages(messages: list[Any]) -> tuple[tuple[Message, ...], str]:
    """Read chat messages: the conversation, and the joined system and developer texts in it."""
    out: list[Message] = []
    system: list[str] = []
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Refusal(400, f"Invalid type for 'messages[{place}]': expected an object, got {message!r}.")
        role = message.get("role")
        if role == "tool":
            text = result_text(message.get("content"), _TEXT)
            result = PastResult(str(message.get("tool_call_id", "")), text, str(message.get("name") or ""))
            out.append(Message("tool", results=(result,)))
            continue
        text, others = parts_text(message.get("content"), _TEXT)
        if role in ("system", "developer"):
            system.append(text)
            continue
        calls = tuple(
            PastCall(
                str(c.get("id", "")),
                str((c.get("function") or c.get("custom") or {}).get("name", "")),
                parse_arguments((c.get("function") or {}).get("arguments", (c.get("custom") or {}).get("input"))),
            )
            for c in message.get("tool_calls") or ()
        )
        thinking = message.get("reasoning_content") or ""
        data = digest(others) if others else ""
        speaker = "assistant" if role == "assistant" else "user"
        text = text or str(message.get("refusal") or "")
        out.append(Message("assistant", text, calls, (), canonical(thinking) if thinking else "", data)
                   if speaker == "assistant" else Message("user", text, data=data))  # fmt: skip
    return tuple(out), "\n\n".join(system)


def _without_reasoning(message: Any) -> Any:
    # Not OpenAI's own, but sent by `encode`, and clients send it back.
    return {k: v for k, v in message.items() if k != "reasoning_content"} if isinstance(message, dict) else message


def _usage(answer: Answer) -> JsonObject:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_written},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
