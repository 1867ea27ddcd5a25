"""Mistral chat: `POST /v1/chat/completions`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from flyteplugins.agents.conformance.models._checks import check_pairing
from flyteplugins.agents.conformance.models._conversation import Conversation, Message, PastCall, PastResult
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject, digest, parse_arguments
from flyteplugins.agents.conformance.models._reply import Answer, Ids

from . import _mistral as mistral
from ._base import CREATED_AT, HttpCall, SideRoute, Wire, need, parts_text, result_text, sse

_TEXT = frozenset({"text"})
_FINISH = {"end": "stop", "length": "length", "refusal": "stop"}


class MistralChat(Wire):
    """Mistral's chat protocol. It keeps no state."""

    name = "mistral-chat"
    prefix = "/mistral"
    paths = ("/v1/chat/completions",)

    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        self._types = {
            False: mistral.model_type("ChatCompletionRequest"),
            True: mistral.model_type("ChatCompletionStreamRequest"),
        }

    def call_id(self, ids: Ids, index: int) -> str:
        """Return the id of a call in Mistral's form."""
        return mistral.call_id(ids, index)

    def decode(self, call: HttpCall) -> Conversation:
        """Read a request."""
        body = call.body
        messages, system = read_messages(need(body, "messages", list))
        schema, name = mistral.output_schema(body.get("response_format"))
        return Conversation(
            wire=self.name,
            model=need(body, "model", str),
            system=system,
            messages=messages,
            tools=mistral.function_tools(body.get("tools") or ()),
            tool_choice=mistral.read_tool_choice(body.get("tool_choice")),
            output_schema=schema,
            output_name=name,
            streamed=bool(body.get("stream")),
            body=body,
        )

    def validate(self, call: HttpCall) -> None:
        """Check field names and types."""
        mistral.invalid(self._types[bool(call.body.get("stream"))], call.body)

    def check(self, call: HttpCall, conversation: Conversation) -> None:
        """Check call ids, results against calls, the last role and thinking."""
        messages = call.body["messages"]
        if not messages:
            raise Refusal(422, "messages: at least one message is required", param="messages")
        for place, message in enumerate(messages):
            for made in message.get("tool_calls") or ():
                if not re.fullmatch(rf"[a-zA-Z0-9]{{{mistral.CALL_ID_LENGTH}}}", str(made.get("id"))):
                    raise Refusal(
                        400,
                        f"messages[{place}]: Tool call id was {made.get('id')} but must be a-z, A-Z, 0-9, with a length "
                        f"of {mistral.CALL_ID_LENGTH}.",
                        param="messages",
                    )
            mistral.check_thinking(message.get("content"), f"messages[{place}].content")
        last = messages[-1]
        if last["role"] not in ("user", "tool") and not last.get("prefix"):
            raise Refusal(
                400,
                f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {last['role']}.",
                param="messages",
            )
        check_pairing(conversation, adjacent=True)

    def encode(self, conversation: Conversation, answer: Answer) -> JsonObject:
        """Return the completion object."""
        message: JsonObject = {"role": "assistant", "content": mistral.content_of(answer), "tool_calls": None}
        if answer.calls:
            message["tool_calls"] = self._calls(answer)
        choice = {"index": 0, "message": message, "finish_reason": self._finish(answer)}
        head = self._head(conversation, answer, "chat.completion")
        return {**head, "choices": [choice], "usage": _usage(answer)}

    def events(self, conversation: Conversation, answer: Answer) -> Iterator[bytes]:
        """Yield the chunks of a streamed completion."""
        head = self._head(conversation, answer, "chat.completion.chunk")

        def chunk(delta: JsonObject, finish: str | None = None, **more: object) -> bytes:
            return sse({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})

        yield chunk({"role": "assistant", "content": ""})
        for piece in mistral.content_pieces(answer):
            yield chunk({"content": piece})
        # Calls come whole, and the usage with the last chunk.
        last: JsonObject = {"content": "", "tool_calls": self._calls(answer)} if answer.calls else {"content": ""}
        yield chunk(last, self._finish(answer), usage=_usage(answer))
        yield b"data: [DONE]\n\n"

    def error(self, problem: Refusal) -> JsonObject:
        """Return an error body as Mistral sends it."""
        return mistral.mistral_error(problem)

    def side_routes(self) -> Sequence[SideRoute]:
        """Return the model list."""
        return (SideRoute("GET", "/v1/models", lambda _: {"object": "list", "data": []}),)

    def _head(self, conversation: Conversation, answer: Answer, kind: str) -> JsonObject:
        return {
            "id": answer.ids.make("", "completion"),
            "object": kind,
            "created": CREATED_AT,
            "model": conversation.model,
        }

    def _calls(self, answer: Answer) -> list[JsonObject]:
        return [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}, "index": n}
            for n, c in enumerate(answer.calls)
        ]

    def _finish(self, answer: Answer) -> str:
        return "tool_calls" if answer.calls and answer.stop == "end" else _FINISH[answer.stop]


def read_messages(messages: Sequence[Any]) -> tuple[tuple[Message, ...], str]:
    """Read chat messages: the conversation, and the joined system texts in it."""
    out: list[Message] = []
    system: list[str] = []
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise Refusal(422, f"messages[{place}]: an object is needed; got {message!r}", param="messages")
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            name = str(message.get("name") or "")
            result = PastResult(str(message.get("tool_call_id", "")), result_text(content or "", _TEXT), name)
            out.append(Message("tool", results=(result,)))
            continue
        thinking = mistral.thinking_of(content)
        text, others = parts_text(mistral.without_thinking(content), _TEXT)
        data = digest(others) if others else ""
        if role == "system":
            system.append(text)
        elif role == "assistant":
            calls = tuple(
                PastCall(str(c.get("id", "")), str(f.get("name", "")), parse_arguments(f.get("arguments")))
                for c in message.get("tool_calls") or ()
                if (f := c.get("function") or {}) is not None
            )
            out.append(Message("assistant", text, calls, (), thinking, data))
        else:
            out.append(Message("user", text, data=data))
    return tuple(out), "\n\n".join(system)


def _usage(answer: Answer) -> JsonObject:
    usage = answer.usage
    cached = {"prompt_tokens_details": {"cached_tokens": usage.cached}} if usage.cached else {}
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        **cached,
    }
