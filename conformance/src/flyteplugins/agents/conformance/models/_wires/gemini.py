"""Google Gemini: `models/{model}:generateContent` and `:streamGenerateContent`."""

from __future__ import annotations

import ast
import base64
import binascii
import copy
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from flyteplugins.agents.conformance.models._json import JsonObject, canonical, compact, digest
from flyteplugins.agents.conformance.models._reply import Answer
from flyteplugins.agents.conformance.models._sdk_types import BodyType

from ._base import HttpCall, SideRoute, Wire, need, sse

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_MESSAGES = {
    401: "API key not valid. Please pass a valid API key.",
    429: "You exceeded your current quota.",
    500: "An internal error has occurred.",
    503: "The model is overloaded. Please try again later.",
    529: "The model is overloaded. Please try again later.",
}
_MODES = {"ANY": "required", "NONE": "none", "AUTO": "auto", "VALIDATED": "auto"}
# What clients send for a call that another model made; the provider then checks nothing.
_NO_SIGNATURE = (b"skip_thought_signature_validator", b"context_engineering_is_the_way_to_go")
_RESULT_KEYS = frozenset({"result", "output", "error", "return_value"})
_FINISH = {"end": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
# What Google ADK tells an agent of another agent's work, as a user's message.
_TOLD = "For context:"
_TOLD_CALL = re.compile(
    r"\[(?P<agent>[^\]]+)\] called tool `(?P<tool>[^`]+)` with parameters:\s*(?P<arguments>.*)", re.DOTALL
)
_TOLD_RESULT = re.compile(r"\[[^\]]+\] `(?P<tool>[^`]+)` tool returned result:\s*(?P<result>.*)", re.DOTALL)
_QUOTE_MARKS = re.compile(r"<<<(?:BEGIN|END)_QUOTED_AGENT_CONTENT>>>\n?")


def _request_type() -> object:
    """Return the request body's type, put together from the SDK's types (which describe its parts only)."""
    from pydantic import create_model

    types: Any = importlib.import_module("google.genai.types")
    optional: dict[str, Any] = {
        "model": str,
        "tools": list[types.Tool],
        "toolConfig": types.ToolConfig,
        "systemInstruction": types.Content,
        "generationConfig": types.GenerationConfig,
        "safetySettings": list[types.SafetySetting],
        "cachedContent": str,
        "labels": dict[str, str],
        "serviceTier": str,
    }
    fields: dict[str, Any] = {name: (kind | None, None) for name, kind in optional.items()}
    fields["contents"] = (list[types.Content], ...)
    return create_model("GenerateContentRequest", **fields)


class Gemini(Wire):
    """The Gemini protocol of the developer API. It keeps no state: thought signatures sign themselves."""

    name = "gemini"
    prefix = "/gemini"
    paths = ("/{version}/models/{model}:generateContent", "/{version}/models/{model}:streamGenerateContent")
    auth_headers = ("x-goog-api-key",)

    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        self._type = BodyType(_request_type)

    def key(self, call: HttpCall) -> str:
        """Return the API key from its header or from `?key=`."""
        return super().key(call) or call.query.get("key", "")

    def decode(self, call: HttpCall) -> Conversation:
        """Read a request."""
        body = call.body
        config = body.get("generationConfig") or {}
        schema = config.get("responseJsonSchema") or config.get("responseSchema")
        system = "\n".join(_texts((body.get("systemInstruction") or {}).get("parts") or ()))
        return Conversation(
            wire=self.name,
            model=call.params.get("model", ""),
            system=system,
            messages=read_contents(need(body, "contents", list)),
            tools=tuple(_tools(body.get("tools") or ())),
            tool_choice=_tool_choice(body),
            output_schema=schema if isinstance(schema, Mapping) else None,
            streamed="stream" in call.path.rpartition(":")[2],
            body=body,
        )

    def validate(self, call: HttpCall) -> None:
        """Check field names and types."""
        if problem := self._type.problem(call.body):
            where, what = problem
            raise Refusal(400, f"Invalid JSON payload received at '{where}': {what}.", param=where)

    def check(self, call: HttpCall, conversation: Conversation) -> None:
        """Check calls against responses, and that thought signatures are unchanged."""
        contents = call.body["contents"]
        if not contents:
            raise Refusal(400, "contents is not specified: at least one content is required.", param="contents")
        for place, content in enumerate(contents):
            if not content.get("parts"):
                raise Refusal(400, f"contents[{place}].parts must not be empty.", param="contents")
            if content.get("role", "user") not in ("user", "model", "function"):
                raise Refusal(400, f"contents[{place}].role is {content['role']!r}; valid roles: user, model.")
            self._check_signatures(content, place, conversation.model)
        check_pairing(conversation, adjacent=True)

    def _check_signatures(self, content: Mapping[str, Any], place: int, model: str) -> None:
        calls = 0
        for index, part in enumerate(content["parts"]):
            signature = part.get("thoughtSignature")
            if signature is not None and _plain(signature) not in (_plain(sign(part)), *_NO_SIGNATURE):
                raise Refusal(
                    400,
                    f"contents[{place}].parts[{index}]: Corrupted thought signature: the part or its signature was "
                    "altered. Send parts back exactly as they came.",
                    param="contents",
                )
            if "functionCall" in part:
                if calls == 0 and signature is None and signs_calls(model):
                    raise Refusal(
                        400,
                        f"contents[{place}].parts[{index}]: Function call is missing a thought_signature in functionCall "
                        "parts; this model needs it back on the first call of each turn.",
                        param="contents",
                    )
                calls += 1

    def encode(self, conversation: Conversation, answer: Answer) -> JsonObject:
        """Return the response object."""
        return self._chunk(conversation, answer, self._parts(conversation, answer), last=True)

    def _parts(self, conversation: Conversation, answer: Answer) -> list[JsonObject]:
        parts: list[JsonObject] = []
        config = (conversation.body.get("generationConfig") or {}).get("thinkingConfig") or {}
        # google-genai sends this one in either spelling, and the API takes both
        if answer.thinking and (config.get("includeThoughts") or config.get("include_thoughts")):
            parts.append({"text": answer.thinking, "thought": True})
        parts += copy.deepcopy(list(answer.reply.items))
        if answer.text and answer.stop != "refusal":
            parts.append({"text": answer.text})
        for index, made in enumerate(answer.calls):
            if not isinstance(made.parsed, dict):
                raise Refusal(
                    400,
                    f"The reply calls {made.name!r} with {made.arguments!r}, which is no JSON object; this wire carries "
                    "arguments as an object.",
                    kind="unscripted",
                )
            call: JsonObject = {"name": made.name, "args": made.parsed}
            if signs_calls(conversation.model):
                call["id"] = made.id
            part: JsonObject = {"functionCall": call}
            if index == 0 and (answer.thinking or signs_calls(conversation.model)):
                part["thoughtSignature"] = sign(part)
            parts.append(part)
        return parts

    def _chunk(
        self, conversation: Conversation, answer: Answer, parts: Sequence[JsonObject], *, last: bool
    ) -> JsonObject:
        usage = answer.usage
        candidate: JsonObject = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        if last:
            candidate["finishReason"] = _FINISH[answer.stop]
        counts = {
            "promptTokenCount": usage.input,
            "candidatesTokenCount": usage.output - usage.reasoning,
            "totalTokenCount": usage.total,
            **({"cachedContentTokenCount": usage.cached} if usage.cached else {}),
            **({"thoughtsTokenCount": usage.reasoning} if usage.reasoning else {}),
        }
        return {
            "candidates": [candidate],
            "modelVersion": conversation.model,
            "responseId": answer.ids.make("", "response", 22),
            **({"usageMetadata": counts} if last else {}),
        }

    def commit(self, conversation: Conversation, answer: Answer) -> str:
        """Return the response's id."""
        return str(self.encode(conversation, answer)["responseId"])

    def events(self, conversation: Conversation, answer: Answer) -> Iterator[bytes]:
        """Yield the chunks of a streamed response."""
        pieces: list[JsonObject] = []
        for part in self._parts(conversation, answer):
            if set(part) <= {"text", "thought"}:
                pieces += [{**part, "text": p} for p in answer.pieces(part["text"])]
            else:
                pieces.append(part)
        for place, piece in enumerate(pieces or [{"text": ""}]):
            last = place >= len(pieces) - 1
            yield sse(self._chunk(conversation, answer, [piece], last=last))

    def error(self, problem: Refusal) -> JsonObject:
        """Return an error body as Google sends it."""
        status = problem.status
        name = _STATUS.get(status, "UNAVAILABLE" if status >= 500 else "INVALID_ARGUMENT")
        text = problem.message or _MESSAGES.get(status, "The request failed.")
        return {"error": {"code": status, "message": text, "status": name}}

    def side_routes(self) -> Sequence[SideRoute]:
        """Return token counting."""

        def count(call: HttpCall) -> object:
            body = call.body.get("generateContentRequest") or call.body
            return {"totalTokens": self.decode(replace(call, body=body)).prompt_tokens}

        return (SideRoute("POST", "/{version}/models/{model}:countTokens", count),)


def signs_calls(model: str) -> bool:
    """Say whether a model gives ids and thought signatures to its calls, and needs them back (Gemini 3 and later)."""
    match = re.match(r"gemini-(\d+)", model)
    return bool(match and int(match[1]) >= 3)


def sign(part: Mapping[str, Any]) -> str:
    """Return the thought signature of a part, in base 64."""
    rest = {k: v for k, v in part.items() if k != "thoughtSignature"}
    if call := rest.get("functionCall"):
        rest["functionCall"] = [call.get("name"), call.get("args") or {}]
    return base64.b64encode(digest("thought", rest).encode()).decode()


def _plain(signature: object) -> bytes:
    try:
        text = str(signature).replace("-", "+").replace("_", "/")
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        return b""


def read_contents(contents: Sequence[Any]) -> tuple[Message, ...]:
    """Read contents. Calls and responses without ids are paired by name and order, as the protocol does."""
    out: list[Message] = []
    waiting: list[PastCall] = []
    for place, content in enumerate(contents):
        if not isinstance(content, dict):
            raise Refusal(400, f"contents[{place}] is an object; got {content!r}.", param="contents")
        parts = [p for p in content.get("parts") or () if isinstance(p, dict)]
        said = _texts(p for p in parts if not p.get("thought"))
        if content.get("role") != "model" and said and said[0].startswith(_TOLD):
            out += _told_messages(said[1:], place)
            continue
        calls = []
        for index, part in enumerate(parts):
            if (made := part.get("functionCall")) is not None:
                call_id = str(made.get("id") or f"{place}.{index}..")
                calls.append(PastCall(call_id, str(made.get("name", "")), made.get("args") or {}))
        results = []
        for part in parts:
            if (given := part.get("functionResponse")) is not None:
                results.append(_result(given, waiting))
        if calls:
            waiting = list(calls)
        thinking = "".join(_texts(p for p in parts if p.get("thought")))
        others = [p for p in parts if not {"text", "functionCall", "functionResponse"} & set(p)]
        data = digest(others) if others else ""
        if content.get("role") == "model":
            out.append(Message("assistant", "\n".join(said), tuple(calls), (), thinking, data))
            continue
        if results:
            out.append(Message("tool", results=tuple(results)))
        if said or data or not results:
            out.append(Message("user", "\n".join(said), data=data))
    return tuple(out)


def _result(given: Mapping[str, Any], waiting: list[PastCall]) -> PastResult:
    name = str(given.get("name", ""))
    call_id = given.get("id")
    match = next((c for c in waiting if c.id == call_id), None) if call_id else None
    match = match or next((c for c in waiting if c.name == name and (not call_id or ".." in c.id)), None)
    if match:
        waiting.remove(match)
    response = given.get("response")
    is_error = isinstance(response, dict) and set(response) == {"error"}
    if isinstance(response, dict) and len(response) == 1 and set(response) <= _RESULT_KEYS:
        response = next(iter(response.values()))
    text = response if isinstance(response, str) else compact(response)
    return PastResult(match.id if match else str(call_id or f"{name} (no id)"), text, name, is_error)


def _told_messages(lines: Sequence[str], place: int) -> list[Message]:
    """Read what ADK tells of another agent: its calls and results, or its words."""
    out: list[Message] = []
    for index, quoted in enumerate(lines):
        line = _QUOTE_MARKS.sub("", quoted).strip()
        if match := _TOLD_CALL.match(line):
            call_id = f"told.{place}.{index}"
            made = PastCall(call_id, match["tool"], _python_value(match["arguments"]))
            out.append(Message("assistant", calls=(made,)))
            out.append(Message("tool", results=(PastResult(call_id, "", match["tool"]),)))
        elif match := _TOLD_RESULT.match(line):
            out.append(Message("tool", data=canonical([match["tool"], match["result"]])))
        else:
            out.append(Message("assistant", line))
    return out


def _python_value(text: str) -> object:
    """Read a dict as Python prints it; other text stays text."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text


def _texts(parts: Any) -> list[str]:
    return [str(p["text"]) for p in parts if isinstance(p, Mapping) and p.get("text")]


def _tools(tools: Sequence[Mapping[str, Any]]) -> Iterator[OfferedTool]:
    for tool in tools:
        for spec in tool.get("functionDeclarations") or ():
            schema = _schema(spec)
            yield OfferedTool(str(spec.get("name", "")), str(spec.get("description") or ""), schema)


def _schema(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    # The SDK sends this field's name in snake case.
    names = ("parametersJsonSchema", "parameters_json_schema", "parameters")
    return next((spec[n] for n in names if isinstance(spec.get(n), Mapping)), {})


def _tool_choice(body: Mapping[str, Any]) -> str:
    config = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    allowed = config.get("allowedFunctionNames") or []
    if config.get("mode") == "ANY" and len(allowed) == 1:
        return str(allowed[0])
    return _MODES.get(str(config.get("mode", "AUTO")), "auto")
