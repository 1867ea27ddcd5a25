"""OpenAI Responses: `POST /v1/responses`, stored responses and conversations."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flyteplugins.agents.conformance.models._checks import check_pairing
from flyteplugins.agents.conformance.models._conversation import Conversation, Message, PastCall, PastResult
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject, canonical, digest, parse_arguments
from flyteplugins.agents.conformance.models._reply import Answer
from flyteplugins.agents.conformance.models._sdk_types import BodyType, sdk_type

from ._base import CREATED_AT, HttpCall, SideRoute, Wire, need, parts_text, result_text, sse
from ._openai import function_tools, openai_error, read_tool_choice

_TEXT = frozenset({"input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text"})
_CALLS = frozenset(
    {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"}
)
_PARAMS = "openai.types.responses.response_create_params:ResponseCreateParams"


@dataclass
class StoredResponse:
    """A response that the server keeps.

    Args:
        items: The conversation up to and including its output.
        given: The items that its request brought.
        body: The response as it was sent.
    """

    items: list[JsonObject]
    given: list[JsonObject]
    body: JsonObject


@dataclass
class StoredConversation:
    """A conversation that the server keeps."""

    items: list[JsonObject]
    metadata: object


class OpenAIResponses(Wire):
    """The Responses protocol, with `previous_response_id`, `conversation` and item references."""

    name = "openai-responses"
    prefix = "/openai"
    paths = ("/v1/responses",)

    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        self._types = {
            False: BodyType(sdk_type(_PARAMS + "NonStreaming")),
            True: BodyType(sdk_type(_PARAMS + "Streaming")),
        }
        self.clear()

    def clear(self) -> None:
        """Forget responses, conversations and issued items."""
        self._responses: dict[str, StoredResponse] = {}
        self._conversations: dict[str, StoredConversation] = {}
        self._items: dict[str, JsonObject] = {}
        self._follows: dict[str, str] = {}  # id of an issued item -> id of the reasoning item right before it
        self._created = 0
        self._own_forms: set[str] = set()  # canonical forms of items that came from a script

    # -- requests

    def decode(self, call: HttpCall) -> Conversation:
        """Read a request, with the items that the server keeps for it."""
        body = call.body
        model = need(body, "model", str) if "prompt" not in body else str(body.get("model") or "prompt")
        items = self._history(body) + self._given(body)
        messages, inline = read_items(items)
        texts = [t for t in (body.get("instructions"), inline) if isinstance(t, str) and t]
        output = (body.get("text") or {}).get("format") or {}
        return Conversation(
            wire=self.name,
            model=model,
            system="\n\n".join(texts),
            messages=messages,
            tools=function_tools(body.get("tools") or ()),
            tool_choice=read_tool_choice(body.get("tool_choice")),
            output_schema=output.get("schema") if output.get("type") == "json_schema" else None,
            output_name=str(output.get("name") or ""),
            streamed=bool(body.get("stream")),
            body=body,
            extra=canonical([body.get("prompt"), body.get("previous_response_id"), _conversation_id(body)]),
        )

    def _given(self, body: JsonObject) -> list[JsonObject]:
        given = body.get("input")
        if given is None:
            if body.get("previous_response_id") or body.get("conversation") or body.get("prompt"):
                return []
            need(body, "input", (str, list))
        if isinstance(given, str):
            return [{"type": "message", "role": "user", "content": given}]
        items = []
        for place, item in enumerate(need(body, "input", (str, list))):
            if not isinstance(item, dict):
                raise Refusal(
                    400, f"Invalid type for 'input[{place}]': expected an object, got {item!r}.", param="input"
                )
            if item.get("type") == "item_reference" or set(item) == {"id"}:
                if item.get("id") not in self._items:
                    raise Refusal(404, f"Item with id {item.get('id')!r} not found.", kind="not_found", param="input")
                item = self._items[str(item["id"])]
            items.append(item)
        return items

    def _history(self, body: JsonObject) -> list[JsonObject]:
        previous, conversation = body.get("previous_response_id"), _conversation_id(body)
        if previous and conversation:
            raise Refusal(400, "Give `previous_response_id` or `conversation`, not both.", param="conversation")
        if previous:
            return list(self._stored(str(previous), "previous_response_id").items)
        if conversation:
            return list(self._conversation(conversation).items)
        return []

    def _stored(self, response_id: str, param: str | None = None) -> StoredResponse:
        if response_id not in self._responses:
            message = f"Response with id {response_id!r} not found"
            if param:
                raise Refusal(
                    400, f"Previous response with id {response_id!r} not found.", param=param,
                    code="previous_response_not_found",
                )  # fmt: skip
            raise Refusal(404, message + ".", kind="not_found")
        return self._responses[response_id]

    def _conversation(self, conversation_id: str) -> StoredConversation:
        if conversation_id not in self._conversations:
            raise Refusal(404, f"Conversation with id {conversation_id!r} not found.", kind="not_found")
        return self._conversations[conversation_id]

    def check(self, call: HttpCall, conversation: Conversation) -> None:
        """Check calls against outputs, and that reasoning comes back as it was sent."""
        check_pairing(conversation, adjacent=False)
        self._check_reasoning(self._history(call.body) + self._given(call.body))

    def validate(self, call: HttpCall) -> None:
        """Check field names and types."""
        body = call.body
        given = body.get("input")
        if isinstance(given, list):
            # What a script sent in a form of its own is fine as long as it comes back unchanged.
            known = [
                {"type": "item_reference", "id": "known"} if canonical(_bare(i)) in self._own_forms else _completed(i)
                for i in given
            ]
            body = {**body, "input": known}
        if isinstance(body.get("tools"), list):
            # The type requires `strict`; the provider takes a function without it, and clients leave it out.
            body = {**body, "tools": [_with_strict(t) for t in body["tools"]]}
        if problem := self._types[bool(body.get("stream"))].problem(body):
            where, what = problem
            raise Refusal(400, f"Invalid request at '{where}': {what}.", param=where)

    def _check_reasoning(self, items: Sequence[JsonObject]) -> None:
        for place, item in enumerate(items):
            before = items[place - 1] if place else {}
            if item.get("type") == "reasoning":
                self._check_unchanged(item, place)
                after = items[place + 1] if place + 1 < len(items) else {}
                if not (after.get("type") in _CALLS or after.get("role") == "assistant" or _is_output(after)):
                    raise Refusal(
                        400,
                        f"Item {item.get('id')!r} of type 'reasoning' was provided without its required following item "
                        f"(input item {place}); send the model's items back in their order.",
                        param="input",
                    )
            elif (needed := self._follows.get(str(item.get("id")))) and before.get("id") != needed:
                raise Refusal(
                    400,
                    f"Item {item.get('id')!r} of type {item.get('type')!r} was provided without its required "
                    f"'reasoning' item: {needed!r} (input item {place}); send the model's items back in their order.",
                    param="input",
                )

    def _check_unchanged(self, item: JsonObject, place: int) -> None:
        item_id = str(item.get("id"))
        text = "".join(str(s.get("text", "")) for s in item.get("summary") or ())
        if item.get("encrypted_content"):
            if item["encrypted_content"] == _seal(item_id, text):
                return
            why = "its summary or encrypted content is not what the server sent"
        elif (sent := self._items.get(item_id)) is None:
            why = "the server did not send it, or does not keep it (send `encrypted_content` back)"
        elif sent.get("summary") == item.get("summary"):
            return
        else:
            why = "its summary is not what the server sent"
        raise Refusal(
            400,
            f"The reasoning item {item_id!r} (input item {place}) was altered: {why}. Send reasoning back unchanged.",
            param="input",
            code="invalid_encrypted_content",
        )

    # -- responses

    def encode(self, conversation: Conversation, answer: Answer) -> JsonObject:
        """Return the response object."""
        body = conversation.body
        usage = answer.usage
        cut = answer.stop == "length"
        return {
            "id": answer.ids.make("resp_"),
            "object": "response",
            "created_at": CREATED_AT,
            "status": "incomplete" if cut else "completed",
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "max_tool_calls": body.get("max_tool_calls"),
            "model": conversation.model,
            "output": self._output(conversation, answer),
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": body.get("previous_response_id"),
            **({"conversation": {"id": _conversation_id(body)}} if _conversation_id(body) else {}),
            "prompt_cache_key": body.get("prompt_cache_key"),
            "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or {})},
            "safety_identifier": body.get("safety_identifier"),
            "service_tier": "default",
            "store": body.get("store") is not False,
            "temperature": body.get("temperature", 1.0),
            "text": {"format": {"type": "text"}, "verbosity": "medium", **(body.get("text") or {})},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": body.get("tools") or [],
            "top_logprobs": body.get("top_logprobs") or 0,
            "top_p": body.get("top_p", 1.0),
            "truncation": body.get("truncation") or "disabled",
            "usage": {
                "input_tokens": usage.input,
                "input_tokens_details": {
                    "cached_tokens": usage.cached,
                    "cache_write_tokens": usage.cache_written,
                },
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.total,
            },
            "user": body.get("user"),
            "metadata": body.get("metadata") or {},
        }

    def _output(self, conversation: Conversation, answer: Answer) -> list[JsonObject]:
        ids = answer.ids
        out: list[JsonObject] = []
        if answer.thinking:
            reasoning_id = ids.make("rs_")
            out.append(
                {
                    "id": reasoning_id,
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": answer.thinking}],
                    "encrypted_content": _seal(reasoning_id, answer.thinking),
                }
            )
        out += copy.deepcopy(list(answer.reply.items))
        if answer.text or not (answer.calls or answer.reply.items):
            part: JsonObject = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
            if answer.stop == "refusal":
                part = {"type": "refusal", "refusal": answer.text}
            out.append(
                {
                    "id": ids.make("msg_"),
                    "type": "message",
                    "status": "incomplete" if answer.stop == "length" else "completed",
                    "role": "assistant",
                    "content": [part],
                }
            )
        custom = {t.get("name") for t in conversation.body.get("tools") or () if t.get("type") == "custom"}
        for index, made in enumerate(answer.calls):
            item: JsonObject = {"id": ids.make("fc_", index), "type": "function_call", "status": "completed"}
            item |= {"call_id": made.id, "name": made.name}
            if made.name in custom:
                item |= {"id": ids.make("ctc_", index), "type": "custom_tool_call", "input": made.arguments}
            else:
                item["arguments"] = made.arguments
            out.append(item)
        return out

    def commit(self, conversation: Conversation, answer: Answer) -> str:
        """Keep the response, unless the client said `store: false`, and remember the items that were issued."""
        response = self.encode(conversation, answer)
        body = conversation.body
        given = self._given(body)
        history = self._history(body)
        before = ""
        for item in response["output"]:
            self._items[str(item.get("id"))] = item
            if before:
                self._follows[str(item.get("id"))] = before
            before = str(item["id"]) if item.get("type") == "reasoning" else ""
        for own in answer.reply.items:
            self._own_forms.add(canonical(_bare(own)))
        kept = self._with_ids(answer.ids.seed, given)
        if body.get("store") is not False:
            self._responses[response["id"]] = StoredResponse(history + kept + response["output"], kept, response)
        if conversation_id := _conversation_id(body):
            self._conversation(conversation_id).items += kept + response["output"]
        return str(response["id"])

    def events(self, conversation: Conversation, answer: Answer) -> Iterator[bytes]:
        """Yield the events of a streamed response."""
        final = self.encode(conversation, answer)
        number = 0

        def event(kind: str, **fields: object) -> bytes:
            nonlocal number
            frame = sse({"type": kind, "sequence_number": number, **fields}, kind)
            number += 1
            return frame

        begun = {**final, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        yield event("response.created", response=begun)
        yield event("response.in_progress", response=begun)
        for index, item in enumerate(final["output"]):
            own = canonical(_bare(item)) in {canonical(_bare(i)) for i in answer.reply.items}
            yield event("response.output_item.added", output_index=index, item=item if own else _opened(item))
            if not own:
                yield from self._item_events(event, index, item, answer)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.incomplete" if answer.stop == "length" else "response.completed", response=final)

    def _item_events(self, event: Any, index: int, item: JsonObject, answer: Answer) -> Iterator[bytes]:
        where = {"item_id": item["id"], "output_index": index}
        if item["type"] == "reasoning":
            part = item["summary"][0]
            at = {**where, "summary_index": 0}
            yield event("response.reasoning_summary_part.added", **at, part={**part, "text": ""})
            for piece in answer.pieces(part["text"]):
                yield event("response.reasoning_summary_text.delta", **at, delta=piece)
            yield event("response.reasoning_summary_text.done", **at, text=part["text"])
            yield event("response.reasoning_summary_part.done", **at, part=part)
        elif item["type"] == "message":
            part = item["content"][0]
            field = "refusal" if part["type"] == "refusal" else "text"
            name = "refusal" if field == "refusal" else "output_text"
            more: JsonObject = {} if field == "refusal" else {"logprobs": []}
            at = {**where, "content_index": 0}
            yield event("response.content_part.added", **at, part={**part, field: ""})
            for piece in answer.pieces(part[field]):
                yield event(f"response.{name}.delta", **at, delta=piece, **more)
            yield event(f"response.{name}.done", **at, **{field: part[field]}, **more)
            yield event("response.content_part.done", **at, part=part)
        else:
            field = "input" if item["type"] == "custom_tool_call" else "arguments"
            name = "custom_tool_call_input" if field == "input" else "function_call_arguments"
            for piece in answer.pieces(item[field]):
                yield event(f"response.{name}.delta", **where, delta=piece)
            named: JsonObject = {} if field == "input" else {"name": item["name"]}
            yield event(f"response.{name}.done", **where, **{field: item[field]}, **named)

    def error(self, problem: Refusal) -> JsonObject:
        """Return an error body as OpenAI sends it."""
        return openai_error(problem)

    # -- stored state

    def side_routes(self) -> Sequence[SideRoute]:
        """Return the endpoints of stored responses and conversations, and the model list."""
        return (
            SideRoute("GET", "/v1/models", lambda _: {"object": "list", "data": []}),
            SideRoute("GET", "/v1/responses/{id}", lambda c: self._stored(c.params["id"]).body),
            SideRoute("DELETE", "/v1/responses/{id}", self._delete_response),
            SideRoute("GET", "/v1/responses/{id}/input_items", lambda c: _page(self._stored(c.params["id"]).given)),
            SideRoute("POST", "/v1/conversations", self._create_conversation),
            SideRoute("GET", "/v1/conversations/{id}", self._get_conversation),
            SideRoute("DELETE", "/v1/conversations/{id}", self._delete_conversation),
            SideRoute("GET", "/v1/conversations/{id}/items", self._list_items),
            SideRoute("POST", "/v1/conversations/{id}/items", self._add_items),
            SideRoute("DELETE", "/v1/conversations/{id}/items/{item}", self._delete_item),
        )

    def _delete_response(self, call: HttpCall) -> object:
        self._stored(call.params["id"])
        del self._responses[call.params["id"]]
        return {"id": call.params["id"], "object": "response", "deleted": True}

    def _create_conversation(self, call: HttpCall) -> object:
        # Two conversations that start alike are still two: the id counts them.
        new = "conv_" + digest("conversation", self._created, call.body.get("items"))[:32]
        self._created += 1
        self._conversations[new] = StoredConversation(
            self._with_ids(new, call.body.get("items") or []), call.body.get("metadata") or {}
        )
        return self._get_conversation(HttpCall(call.path, {"id": new}))

    def _get_conversation(self, call: HttpCall) -> object:
        stored = self._conversation(call.params["id"])
        return {
            "id": call.params["id"],
            "object": "conversation",
            "created_at": CREATED_AT,
            "metadata": stored.metadata,
        }

    def _delete_conversation(self, call: HttpCall) -> object:
        self._conversation(call.params["id"])
        del self._conversations[call.params["id"]]
        return {"id": call.params["id"], "object": "conversation.deleted", "deleted": True}

    def _list_items(self, call: HttpCall) -> object:
        items = list(self._conversation(call.params["id"]).items)
        if call.query.get("order", "desc") == "desc":
            items.reverse()
        return _page(items)

    def _add_items(self, call: HttpCall) -> object:
        stored = self._conversation(call.params["id"])
        new = self._with_ids(f"{call.params['id']}/{len(stored.items)}", need(call.body, "items", list))
        stored.items += new
        return _page(new)

    def _delete_item(self, call: HttpCall) -> object:
        stored = self._conversation(call.params["id"])
        stored.items = [i for i in stored.items if i.get("id") != call.params["item"]]
        return self._get_conversation(call)

    def _with_ids(self, seed: str, items: Sequence[JsonObject]) -> list[JsonObject]:
        out = [{**i, "id": i.get("id") or "item_" + digest(seed, n)[:32]} for n, i in enumerate(items)]
        self._items |= {str(i["id"]): i for i in out}
        return out


def read_items(items: Sequence[Mapping[str, Any]]) -> tuple[tuple[Message, ...], str]:
    """Read input items: the conversation, and the joined system and developer texts in it."""
    messages: list[Message] = []
    system: list[str] = []
    for item in items:
        kind, role = item.get("type") or "message", item.get("role")
        if kind == "message":
            text, others = parts_text(item.get("content"), _TEXT)
            if role in ("system", "developer"):
                system.append(text)
                continue
            data = digest(others) if others else ""
            messages.append(Message("assistant" if role == "assistant" else "user", text, data=data))
        elif kind in _CALLS:
            arguments = item.get("arguments", item.get("input", item.get("action", item.get("operation"))))
            made = PastCall(str(item.get("call_id", "")), str(item.get("name") or kind), parse_arguments(arguments))
            messages.append(Message("assistant", calls=(made,)))
        elif str(kind).endswith("_output"):
            result = PastResult(str(item.get("call_id", "")), result_text(item.get("output"), _TEXT))
            messages.append(Message("tool", results=(result,)))
        elif kind == "reasoning":
            text, _ = parts_text(item.get("summary"), _TEXT)
            messages.append(Message("assistant", thinking=text or "reasoning"))
        elif kind == "mcp_approval_response":
            messages.append(Message("tool", data=canonical(_bare(item))))
        else:
            messages.append(Message("assistant", data=digest({k: v for k, v in _bare(item).items() if k != "id"})))
    return tuple(messages), "\n\n".join(system)


def _completed(item: Any) -> Any:
    # The type requires fields of a past answer that the provider does not need, and clients leave out.
    if not (isinstance(item, dict) and item.get("role") == "assistant" and isinstance(item.get("content"), list)):
        return item
    content = [
        {"annotations": [], **p} if isinstance(p, dict) and p.get("type") == "output_text" else p
        for p in item["content"]
    ]
    return {"type": "message", "id": "msg_", "status": "completed", **item, "content": content}


def _with_strict(tool: Any) -> Any:
    return {"strict": None, **tool} if isinstance(tool, dict) and tool.get("type") == "function" else tool


def _conversation_id(body: Mapping[str, Any]) -> str:
    given = body.get("conversation")
    return str(given.get("id", "")) if isinstance(given, Mapping) else str(given or "")


def _bare(item: Mapping[str, Any]) -> JsonObject:
    return {k: v for k, v in item.items() if v is not None}


def _is_output(item: Mapping[str, Any]) -> bool:
    kind = str(item.get("type") or "message")
    return kind != "message" and not kind.endswith("_output") and kind != "mcp_approval_response"


def _seal(item_id: str, text: str) -> str:
    return "sealed_" + digest("reasoning", item_id, text)


def _opened(item: JsonObject) -> JsonObject:
    """Return an output item as it looks before its content arrives."""
    empty: JsonObject = {"message": {"content": []}, "reasoning": {"summary": []}}.get(item["type"], {})
    for field in ("arguments", "input"):
        if field in item:
            empty = {field: ""}
    return {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}


def _page(items: Sequence[JsonObject]) -> JsonObject:
    first, last = (items[0].get("id"), items[-1].get("id")) if items else (None, None)
    return {"object": "list", "data": list(items), "first_id": first, "last_id": last, "has_more": False}
