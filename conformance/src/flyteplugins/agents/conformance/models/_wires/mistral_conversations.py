"""Mistral Conversations: start, append, restart and history, with agents, hand-offs and confirmations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flyteplugins.agents.conformance.models._checks import check_pairing
from flyteplugins.agents.conformance.models._conversation import (
    Conversation,
    Message,
    OfferedTool,
    PastCall,
    PastResult,
    argument_text,
)
from flyteplugins.agents.conformance.models._errors import Refusal
from flyteplugins.agents.conformance.models._json import JsonObject, canonical, digest, parse_arguments
from flyteplugins.agents.conformance.models._reply import Answer, Ids, IssuedCall, Usage

from . import _mistral as mistral
from ._base import CREATED_AT_ISO, HttpCall, SideRoute, Wire, need, parts_text, sse

_TEXT = frozenset({"text"})
_HAND_OFFS = 10
_MADE_BY_MODEL = frozenset({"message.output", "function.call", "agent.handoff", "tool.execution"})


@dataclass
class Stored:
    """A conversation that the server keeps.

    Args:
        settings: Model, instructions, tools, completion arguments, agent and version: frozen when it starts.
        entries: Its entries, oldest first.
        agent: The agent whose turn it is; hand-offs change it.
    """

    settings: JsonObject
    entries: list[JsonObject]
    agent: str | None = None


@dataclass(frozen=True)
class Turn(Conversation):
    """A request to a conversation.

    Args:
        target: Id of the conversation that it changes.
        state: The conversation's state once the request's own entries are in it.
        store: Whether to keep it.
        outputs: Entries that this request has put out already: hand-offs.
        spent: Token counts of the turns before those hand-offs.
    """

    target: str = ""
    state: Stored = field(default_factory=lambda: Stored({}, []))
    store: bool = True
    outputs: tuple[JsonObject, ...] = ()
    spent: Usage = field(default_factory=lambda: Usage(0, 0))


class MistralConversations(Wire):
    """The Conversations protocol, with the agents that it starts from."""

    name = "mistral-conversations"
    prefix = "/mistral"
    paths = ("/v1/conversations", "/v1/conversations/{id}", "/v1/conversations/{id}/restart")

    def __init__(self, *, strict: bool) -> None:
        super().__init__(strict=strict)
        kinds = zip(self.paths, ("", "Append", "Restart"), strict=True)
        self._types = {
            (path, streamed): mistral.model_type(f"Conversation{kind}{'Stream' if streamed else ''}Request")
            for path, kind in kinds
            for streamed in (False, True)
        }
        self._agent_types = {
            "POST": mistral.model_type("CreateAgentRequest"),
            "PATCH": mistral.model_type("UpdateAgentRequest"),
        }
        self.clear()

    def clear(self) -> None:
        """Forget conversations and agents."""
        self._conversations: dict[str, Stored] = {}
        self._agents: dict[str, JsonObject] = {}
        self._begun = 0
        self._created = 0

    def call_id(self, ids: Ids, index: int) -> str:
        """Return the id of a call in Mistral's form."""
        return mistral.call_id(ids, index)

    # -- requests

    def decode(self, call: HttpCall) -> Turn:
        """Read a request, with the conversation that the server keeps for it."""
        body = call.body
        if call.path == self.paths[0]:
            state = self._started(body)
            target = ""
        else:
            kept = self._stored(call.params["id"])
            state = Stored(kept.settings, list(kept.entries), kept.agent)
            target = call.params["id"]
            if call.path == self.paths[2]:
                state = self._branched(state, need(body, "from_entry_id", str))
                target = ""
            state.settings = {**state.settings, **_given(body, "completion_args")}
        self._confirm(state, body.get("tool_confirmations") or ())
        seed = digest(state.settings, [_bare(e) for e in state.entries])
        state.entries += self._with_ids(seed, _inputs(body.get("inputs")))
        if not target:
            target = "conv_" + digest(seed, self._begun)[:32]  # conversations that start alike are still two
        return self._turn(state, body, target)

    def _turn(self, state: Stored, body: JsonObject, target: str, **more: Any) -> Turn:
        settings = state.settings
        agent = self._agent(state.agent) if state.agent else {}
        messages = read_entries(state.entries)
        arguments = {**(agent.get("completion_args") or {}), **(settings.get("completion_args") or {})}
        schema, name = mistral.output_schema(arguments.get("response_format"))
        first = state.agent == settings.get("agent_id")
        tools = mistral.function_tools(agent.get("tools") or ())
        tools += mistral.function_tools(settings.get("tools") or ()) if first else ()
        return Turn(
            wire=self.name,
            model=str(agent.get("model") or settings.get("model") or ""),
            system="\n\n".join(
                t for t in (agent.get("instructions"), settings.get("instructions") if first else "") if t
            ),
            messages=messages,
            tools=tools + self._hand_off_tools(agent),
            tool_choice=mistral.read_tool_choice(arguments.get("tool_choice")),
            output_schema=schema,
            output_name=name,
            streamed=bool(body.get("stream")),
            body=body,
            extra=canonical([state.agent, settings.get("agent_version")]),
            target=target,
            state=state,
            store=body.get("store") is not False,
            **more,
        )

    def _started(self, body: JsonObject) -> Stored:
        need(body, "inputs", (str, list))
        agent_id = body.get("agent_id")
        if bool(agent_id) == bool(body.get("model")):
            raise Refusal(422, "model: give `model` or `agent_id`, one of them", param="model")
        if agent_id:
            self._agent(str(agent_id))
        fields = (
            "model",
            "agent_id",
            "agent_version",
            "instructions",
            "tools",
            "completion_args",
            "name",
            "description",
        )
        entries = [e for e in _inputs(body["inputs"]) if e.get("type") == "agent.handoff"]
        current = str(entries[-1]["next_agent_id"]) if entries else agent_id
        return Stored(_given(body, *fields), [], current)

    def _branched(self, state: Stored, entry_id: str) -> Stored:
        ids = [e["id"] for e in state.entries]
        if entry_id not in ids:
            raise Refusal(404, f"The conversation has no entry {entry_id!r} to restart from.", kind="not_found")
        entries = state.entries[: ids.index(entry_id) + 1]
        taken = [e for e in entries if e["type"] == "agent.handoff"]
        agent = str(taken[-1]["next_agent_id"]) if taken else state.settings.get("agent_id")
        return Stored(state.settings, entries, agent)

    def _confirm(self, state: Stored, confirmations: Sequence[Mapping[str, Any]]) -> None:
        for given in confirmations:
            wanted = given.get("tool_call_id")
            for place, entry in enumerate(state.entries):
                if entry.get("tool_call_id") == wanted and entry.get("confirmation_status") == "pending":
                    status = "allowed" if given.get("confirmation") == "allow" else "denied"
                    state.entries[place] = {**entry, "confirmation_status": status}
                    break
            else:
                waiting = [e.get("tool_call_id") for e in state.entries if e.get("confirmation_status") == "pending"]
                raise Refusal(
                    400,
                    f"The tool call {wanted!r} does not wait for a confirmation; these do: {waiting or 'none'}.",
                    param="tool_confirmations",
                )

    def validate(self, call: HttpCall) -> None:
        """Check field names and types."""
        mistral.invalid(self._types[call.path, bool(call.body.get("stream"))], call.body)

    def check(self, call: HttpCall, conversation: Conversation) -> None:
        """Check that something was put in, results against calls, and thinking."""
        body = call.body
        appends = call.path == self.paths[1]
        if not body.get("inputs") and not (appends and body.get("tool_confirmations")) and call.path != self.paths[2]:
            raise Refusal(422, "inputs: the list or text is empty, so there is nothing to answer", param="inputs")
        assert isinstance(conversation, Turn)
        for place, entry in enumerate(conversation.state.entries):
            mistral.check_thinking(entry.get("content"), f"entry {place} ({entry['type']})")
            if entry.get("confirmation_status") == "pending":
                raise Refusal(
                    400,
                    f"The tool call {entry['tool_call_id']!r} waits for a confirmation; append `tool_confirmations`.",
                    param="tool_confirmations",
                )
        check_pairing(conversation, adjacent=False)

    # -- hand-offs

    def _hand_off_tools(self, agent: Mapping[str, Any]) -> tuple[OfferedTool, ...]:
        """Offer the agents that an agent may hand over to, as the provider does: as tools that only it sees."""
        others = [self._agent(str(other)) for other in agent.get("handoffs") or ()]
        return tuple(OfferedTool(_hand_off_name(o), str(o.get("description") or "")) for o in others)

    def hand_over(self, conversation: Conversation, answer: Answer) -> Turn | None:
        """Return the next agent's turn when the answer hands over and the server executes hand-offs."""
        assert isinstance(conversation, Turn)
        next_agent = self._next_agent(conversation, answer)
        if next_agent is None or conversation.body.get("handoff_execution") == "client":
            return None
        if len(conversation.outputs) >= _HAND_OFFS:
            raise Refusal(400, f"The agents handed over {_HAND_OFFS} times in one request; one of them has to answer.")
        entry = self._hand_off_entry(conversation, answer, next_agent)
        state = conversation.state
        after = Stored(state.settings, [*state.entries, entry], str(next_agent["id"]))
        return self._turn(
            after,
            conversation.body,
            conversation.target,
            outputs=(*conversation.outputs, entry),
            spent=conversation.spent + answer.usage,
        )

    def _next_agent(self, conversation: Turn, answer: Answer) -> JsonObject | None:
        agent = self._agents.get(conversation.state.agent or "")
        names = {_hand_off_name(o): o for i in (agent or {}).get("handoffs") or () if (o := self._agents.get(str(i)))}
        return next((names[c.name] for c in answer.calls if c.name in names), None)

    def _hand_off_entry(self, conversation: Turn, answer: Answer, next_agent: JsonObject) -> JsonObject:
        previous = self._agent(str(conversation.state.agent))
        return {
            **_entry("agent.handoff", answer.ids.make("hand_", "hand-off")),
            "previous_agent_id": previous["id"],
            "previous_agent_name": previous["name"],
            "next_agent_id": next_agent["id"],
            "next_agent_name": next_agent["name"],
        }

    # -- responses

    def _outputs(self, conversation: Turn, answer: Answer) -> list[JsonObject]:
        out = list(conversation.outputs)
        made_by = {"model": conversation.model}
        if conversation.state.agent:
            made_by["agent_id"] = conversation.state.agent
        if next_agent := self._next_agent(conversation, answer):
            return [*out, self._hand_off_entry(conversation, answer, next_agent)]
        own = [i for i in answer.reply.items if "." in str(i.get("type"))]  # entries; the rest is message content
        inner = replace(answer, reply=replace(answer.reply, items=tuple(i for i in answer.reply.items if i not in own)))
        out += [
            {**_entry(str(i["type"]), str(i.get("id") or answer.ids.make("ent_", n))), **i} for n, i in enumerate(own)
        ]
        if answer.text or answer.thinking or not (answer.calls or own):
            message = _entry("message.output", answer.ids.make("msg_"))
            out.append({**message, **made_by, "role": "assistant", "content": mistral.content_of(inner)})
        for index, made in enumerate(answer.calls):
            out.append(
                {**_entry("function.call", answer.ids.make("fc_", index)), **made_by, **_call_fields(answer, made)}
            )
        return out

    def encode(self, conversation: Conversation, answer: Answer) -> JsonObject:
        """Return the response object."""
        assert isinstance(conversation, Turn)
        return {
            "object": "conversation.response",
            "conversation_id": conversation.target,
            "outputs": self._outputs(conversation, answer),
            "usage": _usage(conversation.spent + answer.usage),
        }

    def commit(self, conversation: Conversation, answer: Answer) -> str:
        """Keep the conversation, unless the client said `store: false`."""
        assert isinstance(conversation, Turn)
        fresh = self._outputs(conversation, answer)[len(conversation.outputs) :]
        state = conversation.state
        if next_agent := self._next_agent(conversation, answer):
            state = replace(state, agent=str(next_agent["id"]))
        if conversation.store:
            kept = Stored(state.settings, [*state.entries, *fresh], state.agent)
            self._begun += conversation.target not in self._conversations
            self._conversations[conversation.target] = kept
        return conversation.target

    def events(self, conversation: Conversation, answer: Answer) -> Iterator[bytes]:
        """Yield the events of a streamed response."""
        assert isinstance(conversation, Turn)

        def event(kind: str, **fields: object) -> bytes:
            return sse({"type": kind, "created_at": CREATED_AT_ISO, **fields}, kind)

        yield event("conversation.response.started", conversation_id=conversation.target)
        for index, entry in enumerate(self._outputs(conversation, answer)):
            kind = entry["type"]
            at = {"id": entry["id"], "output_index": index}
            made_by = {k: entry[k] for k in ("model", "agent_id") if k in entry}
            if kind == "message.output":
                for piece in mistral.content_pieces(answer) or [""]:
                    for part in piece if isinstance(piece, list) else [piece]:
                        yield event(
                            "message.output.delta", **at, **made_by, role="assistant", content=part, content_index=0
                        )
            elif kind == "function.call":
                status = {k: entry[k] for k in ("confirmation_status",) if k in entry}
                fields = {"name": entry["name"], "tool_call_id": entry["tool_call_id"], **made_by, **status}
                for text in answer.pieces(argument_text(entry["arguments"])) or [""]:
                    yield event("function.call.delta", **at, **fields, arguments=text)
            elif kind == "agent.handoff":
                before = {k: v for k, v in entry.items() if k.startswith("previous_")}
                after = {k: v for k, v in entry.items() if k.startswith("next_")}
                yield event("agent.handoff.started", **at, **before)
                yield event("agent.handoff.done", **at, **after)
            elif kind == "tool.execution":
                yield event("tool.execution.started", **at, name=entry["name"], arguments=entry.get("arguments", ""))
                yield event("tool.execution.done", **at, name=entry["name"], info=entry.get("info"))
        yield event("conversation.response.done", usage=_usage(conversation.spent + answer.usage))

    def error(self, problem: Refusal) -> JsonObject:
        """Return an error body as Mistral sends it."""
        return mistral.mistral_error(problem)

    # -- stored state

    def side_routes(self) -> Sequence[SideRoute]:
        """Return the endpoints of stored conversations and agents."""
        return (
            SideRoute("GET", "/v1/conversations", self._list_conversations),
            SideRoute("GET", "/v1/conversations/{id}", self._get_conversation),
            SideRoute("DELETE", "/v1/conversations/{id}", self._delete_conversation),
            SideRoute("GET", "/v1/conversations/{id}/history", self._history),
            SideRoute("GET", "/v1/conversations/{id}/messages", self._messages),
            SideRoute("POST", "/v1/agents", self._create_agent),
            SideRoute("GET", "/v1/agents", lambda _: list(self._agents.values())),
            SideRoute("GET", "/v1/agents/{id}", lambda c: self._agent(c.params["id"])),
            SideRoute("PATCH", "/v1/agents/{id}", self._update_agent),
            SideRoute("DELETE", "/v1/agents/{id}", self._delete_agent),
        )

    def _stored(self, conversation_id: str) -> Stored:
        if conversation_id not in self._conversations:
            raise Refusal(404, f"Conversation {conversation_id!r} not found.", kind="not_found")
        return self._conversations[conversation_id]

    def _agent(self, agent_id: str) -> JsonObject:
        if agent_id not in self._agents:
            raise Refusal(404, f"Agent {agent_id!r} not found.", kind="not_found", param="agent_id")
        return self._agents[agent_id]

    def _list_conversations(self, _call: HttpCall) -> object:
        return [self._described(cid, stored) for cid, stored in self._conversations.items()]

    def _get_conversation(self, call: HttpCall) -> object:
        return self._described(call.params["id"], self._stored(call.params["id"]))

    def _described(self, conversation_id: str, stored: Stored) -> JsonObject:
        times = {"created_at": CREATED_AT_ISO, "updated_at": CREATED_AT_ISO}
        return {"object": "conversation", "id": conversation_id, **times, **stored.settings}

    def _delete_conversation(self, call: HttpCall) -> None:
        self._stored(call.params["id"])
        del self._conversations[call.params["id"]]

    def _history(self, call: HttpCall) -> object:
        entries = self._stored(call.params["id"]).entries
        return {"object": "conversation.history", "conversation_id": call.params["id"], "entries": entries}

    def _messages(self, call: HttpCall) -> object:
        entries = self._stored(call.params["id"]).entries
        messages = [e for e in entries if str(e["type"]).startswith("message.")]
        return {"object": "conversation.messages", "conversation_id": call.params["id"], "messages": messages}

    def _create_agent(self, call: HttpCall) -> object:
        if self.strict:
            mistral.invalid(self._agent_types["POST"], call.body)
        agent_id = "ag_" + digest("agent", self._created, call.body)[:32]
        agent: JsonObject = {
            "object": "agent",
            "id": agent_id,
            "version": 0,
            "versions": [0],
            "created_at": CREATED_AT_ISO,
            "updated_at": CREATED_AT_ISO,
            "deployment_chat": False,
            "source": "api",
            **_bare(call.body),
        }
        for other in agent.get("handoffs") or ():
            self._agent(str(other))
        self._created += 1
        self._agents[agent_id] = agent
        return agent

    def _update_agent(self, call: HttpCall) -> object:
        agent = self._agent(call.params["id"])
        if self.strict:
            mistral.invalid(self._agent_types["PATCH"], call.body)
        version = int(agent["version"]) + 1
        agent |= {**_bare(call.body), "version": version, "versions": [*agent["versions"], version]}
        return agent

    def _delete_agent(self, call: HttpCall) -> None:
        self._agent(call.params["id"])
        del self._agents[call.params["id"]]

    @staticmethod
    def _with_ids(seed: str, entries: Sequence[JsonObject]) -> list[JsonObject]:
        out = []
        for place, entry in enumerate(entries):
            kind = str(entry.get("type") or "message.input")
            out.append({**_entry(kind, "in_" + digest(seed, place)[:32]), **_bare(entry), "type": kind})
        return out


def read_entries(entries: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Read a conversation's entries."""
    out: list[Message] = []
    for place, entry in enumerate(entries):
        kind, content = entry["type"], entry.get("content")
        text, others = parts_text(mistral.without_thinking(content), _TEXT)
        data = digest(others) if others else ""
        if kind == "message.input" and entry.get("role", "user") == "user":
            out.append(Message("user", text, data=data))
        elif kind in ("message.input", "message.output"):
            out.append(Message("assistant", text, (), (), mistral.thinking_of(content), data))
        elif kind == "function.call":
            made = PastCall(str(entry.get("tool_call_id", "")), str(entry.get("name", "")), _arguments(entry))
            out.append(Message("assistant", calls=(made,)))
            if status := entry.get("confirmation_status"):  # the provider runs such a call, once it may
                out.append(Message("tool", results=(PastResult(made.id, str(status), made.name),)))
        elif kind == "function.result":
            result = str(entry.get("result", ""))
            out.append(Message("tool", results=(PastResult(str(entry.get("tool_call_id", "")), result),)))
        elif kind == "agent.handoff":
            made = PastCall(f"hand-off.{place}..", f"transfer_to_{_plain(str(entry['next_agent_name']))}", {})
            out.append(Message("assistant", calls=(made,)))
            out.append(Message("tool", results=(PastResult(made.id, "handed over", made.name),)))
        else:
            out.append(Message("assistant", data=digest({k: v for k, v in entry.items() if k != "id"})))
    return tuple(out)


def _inputs(inputs: object) -> list[JsonObject]:
    if inputs is None:
        return []
    if isinstance(inputs, str):
        return [{"type": "message.input", "role": "user", "content": inputs}] if inputs else []
    if not isinstance(inputs, list) or not all(isinstance(e, dict) for e in inputs):
        raise Refusal(422, "inputs: a text or a list of entries is needed", param="inputs")
    return inputs


def _entry(kind: str, entry_id: str) -> JsonObject:
    times = {"created_at": CREATED_AT_ISO, "completed_at": CREATED_AT_ISO}
    return {"object": "entry", "type": kind, "id": entry_id, **times}


def _call_fields(answer: Answer, made: IssuedCall) -> JsonObject:
    confirm = next((c.confirm for c, i in zip(answer.reply.calls, answer.calls, strict=True) if i is made), False)
    status = {"confirmation_status": "pending"} if confirm else {}
    return {"tool_call_id": made.id, "name": made.name, "arguments": made.arguments, **status}


def _arguments(entry: Mapping[str, Any]) -> object:
    return parse_arguments(entry.get("arguments"))


def _given(body: Mapping[str, Any], *names: str) -> JsonObject:
    return {n: body[n] for n in names if body.get(n) is not None}


def _bare(entry: Mapping[str, Any]) -> JsonObject:
    return {k: v for k, v in entry.items() if v is not None}


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower()


def _hand_off_name(agent: Mapping[str, Any]) -> str:
    return f"transfer_to_{_plain(str(agent['name']))}"


def _usage(usage: Usage) -> JsonObject:
    return {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total}
