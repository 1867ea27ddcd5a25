"""The model seam: each turn passes the agent run, which records it or answers it from its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from flyteplugins.agents.core import JSON, AgentRun, Codec, JsonCodec, TurnFacts, Usage, endpoint_identity

from .sdk import Message, Model

__all__ = ["DurableModel", "request_fields"]


class DurableModel(Model):
    """A model whose turns are recorded.

    Args:
        model: The model that is asked.
        run: The agent run.
        streaming: Whether the answer is asked for in pieces, for whoever listens.
    """

    def __init__(self, model: Model, run: AgentRun, *, streaming: bool) -> None:
        super().__init__(model.name, model.base_url)
        self._model = model
        self._run = run
        self._streaming = streaming

    async def respond(self, request: Mapping[str, Any]) -> Message:
        """Ask, or answer from the record."""
        fields = request_fields(self._model, request)
        if not self._streaming:
            recorded = await self._run.turn(
                fields,
                lambda: self._model.respond(request),
                codec=cast("Codec[Message]", JsonCodec()),
                facts=_facts,
                model=self.name,
            )
            return recorded.value
        pieces: list[Message] = []
        async for piece in self._run.stream_turn(
            fields,
            lambda: self._model.stream(request),
            codec=_PiecesCodec(),
            facts=lambda pieces: _facts(_joined(pieces)),
            delta=lambda piece: next((one["delta"].get("content") or "" for one in piece["choices"]), ""),
            is_last=lambda piece: any(one.get("finish_reason") for one in piece["choices"]),
            model=self.name,
        ):
            pieces.append(piece)
        return _joined(pieces)


def request_fields(model: Model, request: Mapping[str, Any]) -> dict[str, object]:
    """Collect what the model would be asked, by field, without what it is not told."""
    said = list(request["messages"])
    system = said.pop(0)["content"] if said and said[0]["role"] == "system" else None
    return {
        "model": {"name": model.name, "base_url": endpoint_identity(model.base_url)},
        "settings": {"temperature": request.get("temperature")},
        "instructions": system,
        "tools": request.get("tools", []),
        "output_type": request.get("response_format"),
        "messages": said,
    }


class _PiecesCodec:
    """Keeps a stream as the whole answer that it amounts to, so that either form of a turn answers from one record."""

    def encode(self, value: list[Message]) -> JSON:
        return cast(JSON, _joined(value))

    def decode(self, payload: JSON) -> list[Message]:
        answer = cast(Message, payload)
        message = answer["choices"][0]["message"]
        end = {"delta": {}, "finish_reason": "stop"}
        return [{**answer, "choices": [{"delta": message}]}, {"choices": [end], "usage": answer.get("usage")}]


def _joined(pieces: Sequence[Message]) -> Message:
    message: Message = {"role": "assistant", "content": None}
    calls: dict[int, Message] = {}
    answer: Message = {}
    for piece in pieces:
        answer = {**answer, **{name: value for name, value in piece.items() if name != "choices" and value is not None}}
        for choice in piece["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                message["content"] = (message["content"] or "") + delta["content"]
            for number, part in enumerate(delta.get("tool_calls") or []):
                known = calls.setdefault(part.get("index", number), {"function": {"name": "", "arguments": ""}})
                known.update({name: part[name] for name in ("id", "type") if part.get(name)})
                for name, text in part["function"].items():
                    known["function"][name] += text or ""
    if calls:
        message["tool_calls"] = [calls[number] for number in sorted(calls)]
    return {**answer, "choices": [{"message": message}]}


def _facts(answer: Message) -> TurnFacts:
    message, usage = answer["choices"][0]["message"], answer.get("usage") or {}
    return TurnFacts(
        text=message.get("content") or "",
        tool_calls=tuple(call["function"]["name"] for call in message.get("tool_calls") or []),
        usage=Usage(1, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)),
        messages=[message],
    )
