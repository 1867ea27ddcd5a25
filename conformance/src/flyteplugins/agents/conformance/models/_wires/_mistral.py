"""What Mistral's two protocols share: the error format, ids of calls, tools and content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flyteplugins.agents.conformance.models._conversation import OfferedTool
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject, digest
from flyteplugins.agents.conformance.models._reply import Answer, Ids
from flyteplugins.agents.conformance.models._sdk_types import BodyType, sdk_type

CALL_ID_LENGTH = 9
"""Mistral's tool call ids have nine letters and digits; the chat endpoint refuses others."""

_TYPES = {
    400: "invalid_request_error",
    401: "unauthorized",
    404: "not_found",
    409: "conflict",
    429: "rate_limited",
    500: "internal_server_error",
    503: "service_unavailable",
}
_MESSAGES = {
    401: "Unauthorized",
    409: "The conversation is being updated; try again later.",
    429: "Requests rate limit exceeded",
    500: "Internal server error",
    503: "Service unavailable",
}


def model_type(name: str) -> BodyType:
    """Return a request type of the SDK by its class name."""
    return BodyType(sdk_type(f"mistralai.client.models:{name}"))


def mistral_error(problem: Refusal) -> JsonObject:
    """Return an error body as Mistral sends it: 422 lists what is invalid, other statuses have a message."""
    message = problem.message or _MESSAGES.get(problem.status, "The request failed.")
    if problem.status == 422:
        where = [p for p in (problem.param or "body").replace("[", ".").replace("]", "").split(".") if p]
        return {"detail": [{"type": problem.code or "value_error", "loc": ["body", *where], "msg": message}]}
    kind = _TYPES.get(problem.status, "server_error" if problem.status >= 500 else "invalid_request_error")
    return {"object": "error", "message": message, "type": kind, "param": problem.param, "code": problem.code or None}


def invalid(body_type: BodyType, body: JsonObject) -> None:
    """Refuse a body that does not fit its type, with the 422 of the provider's own validation."""
    if problem := body_type.problem(body):
        where, what = problem
        raise Refusal(422, f"{where}: {what}", param=where)


def call_id(ids: Ids, index: int) -> str:
    """Return the id of a call in Mistral's form."""
    return ids.call(index, "", CALL_ID_LENGTH)


def function_tools(tools: Iterable[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
    """Read the function tools among `tools`."""
    specs = [t.get("function") or {} for t in tools if t.get("type", "function") == "function"]
    return tuple(
        OfferedTool(str(s.get("name", "")), str(s.get("description") or ""), s.get("parameters") or {}) for s in specs
    )


def output_schema(response_format: Mapping[str, Any] | None) -> tuple[Mapping[str, object] | None, str]:
    """Read a response format: the JSON schema, if it has one, and its name."""
    spec = (response_format or {}).get("json_schema") or {}
    return spec.get("schema"), str(spec.get("name") or "")


def read_tool_choice(choice: object) -> str:
    """Read a tool choice: `auto`, `none`, `required` or a tool's name."""
    if isinstance(choice, Mapping):
        return str((choice.get("function") or {}).get("name") or "auto")
    return {"any": "required"}.get(str(choice or "auto"), str(choice or "auto"))


def thinking_of(content: object) -> str:
    """Return the thinking in message content, joined."""
    parts = content if isinstance(content, list) else []
    return "".join(
        str(t.get("text", ""))
        for p in parts
        if isinstance(p, Mapping) and p.get("type") == "thinking"
        for t in p.get("thinking") or ()
        if isinstance(t, Mapping)
    )


def without_thinking(content: object) -> object:
    """Return message content without its thinking."""
    if not isinstance(content, list):
        return content
    return [p for p in content if not (isinstance(p, Mapping) and p.get("type") == "thinking")]


def check_thinking(content: object, where: str) -> None:
    """Refuse thinking that was altered: a signed chunk has to come back as it was sent."""
    for part in content if isinstance(content, list) else ():
        signature = part.get("signature") if isinstance(part, Mapping) and part.get("type") == "thinking" else None
        if signature and signature != sign(thinking_of([part])):
            raise Refusal(
                400,
                f"{where}: the thinking does not match its signature: it was altered. Send thinking back exactly as it "
                "came.",
                param=where,
            )


def sign(thinking: str) -> str:
    """Return the signature of a thinking chunk."""
    return "sig_" + digest("thinking", thinking)


def content_of(answer: Answer) -> str | list[JsonObject]:
    """Return the content that an answer's message carries: its text, or chunks when there is thinking or own items."""
    if not answer.thinking and not answer.reply.items:
        return answer.text
    chunks: list[JsonObject] = []
    if answer.thinking:
        chunks.append(thinking_chunk(answer.thinking, sign(answer.thinking)))
    chunks += answer.reply.items
    if answer.text:
        chunks.append({"type": "text", "text": answer.text})
    return chunks


def thinking_chunk(text: str, signature: str | None = None) -> JsonObject:
    """Return a thinking chunk."""
    signed = {"signature": signature, "closed": True} if signature else {}
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], **signed}


def content_pieces(answer: Answer) -> list[str | list[JsonObject]]:
    """Cut the content of an answer's message into what a stream sends piece by piece."""
    if not answer.thinking and not answer.reply.items:
        return list(answer.pieces(answer.text))
    out: list[str | list[JsonObject]] = []
    for chunk in content_of(answer):
        assert isinstance(chunk, dict)
        if chunk["type"] == "text":
            out += answer.pieces(chunk["text"])
        elif chunk["type"] == "thinking":
            pieces = answer.pieces(answer.thinking)
            out += [[thinking_chunk(p)] for p in pieces[:-1]]
            out.append([thinking_chunk(pieces[-1], sign(answer.thinking))])
        else:
            out.append([chunk])
    return out
