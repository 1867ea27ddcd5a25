"""Interrupts of a graph: a person is asked, and the graph goes on with what they said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.pregel import Pregel
from langgraph.types import Interrupt

from flyteplugins.agents.core import AgentError, AgentRun, ask_person, decide_call, jsonable, sdk_approval

__all__ = ["answer_interrupts", "resumable"]


class _Live:
    """Keeps values as they are: a checkpoint that lives as long as the run need not be written down."""

    def dumps_typed(self, obj: Any) -> tuple[str, Any]:
        return "live", _apart(obj)

    def loads_typed(self, data: tuple[str, Any]) -> Any:
        return _apart(data[1])


def _apart(value: Any) -> Any:
    """A copy of lists and mappings: the SDK goes on changing those that it has kept."""
    kind = type(value)
    if kind is dict:
        return {key: _apart(item) for key, item in value.items()}
    return kind(_apart(item) for item in value) if kind in (list, tuple, set) else value


def resumable(graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
    """A graph that can go on after an interrupt: without a checkpointer of the caller's, a copy with one for this run.

    Args:
        graph: The graph, which stays as it is.
    """
    if graph.checkpointer is not None:
        return graph
    return graph.copy(update={"checkpointer": InMemorySaver(serde=cast(SerializerProtocol, _Live()))})


async def answer_interrupts(run: AgentRun, interrupts: Sequence[Interrupt]) -> dict[str, Any]:
    """Ask a person about each interrupt.

    Args:
        run: The agent run.
        interrupts: What the graph waits for.

    Returns:
        What to resume with, by the interrupts' ids.

    Raises:
        ApprovalPendingError: There is nobody to ask.
    """
    by_id = {one.id: one for one in interrupts}  # a subgraph's are told of by its parents as well
    answers = await asyncio.gather(*(_answer(run, one) for one in by_id.values()))
    return dict(zip(by_id, answers, strict=True))


async def _answer(run: AgentRun, interrupt: Interrupt) -> Any:
    value, schema = interrupt.value, getattr(interrupt, "response_schema", None)
    schema = schema if isinstance(schema, dict) else None
    if isinstance(value, Mapping) and {"action_requests", "review_configs"} <= value.keys():
        return {"decisions": await _review(value)}
    if isinstance(value, Mapping) and value.get("type") == "tool_approval" and schema is not None:
        return await _decide(value, _decisions(schema), schema)

    def check(text: str) -> None:
        if schema is not None:
            _fit(_read(text), schema)

    return _read(await ask_person(f"interrupt of {run.name}", jsonable(value), check=check))


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _review(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answer what `HumanInTheLoopMiddleware` asks in one interrupt: one decision per action, in order."""
    allowed = {one["action_name"]: one["allowed_decisions"] for one in request["review_configs"]}
    return list(await asyncio.gather(*(_decide(one, allowed[one["name"]]) for one in request["action_requests"])))


def _decisions(schema: Mapping[str, Any]) -> Sequence[str]:
    """What the middleware allows, of a call that has an interrupt of its own."""
    if "discriminator" in schema:
        return tuple(schema["discriminator"]["mapping"])
    return (schema["properties"]["type"]["const"],)


async def _decide(
    action: Mapping[str, Any], allowed: Sequence[str], schema: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Have a person decide about one call.

    Args:
        action: The call.
        allowed: Which decisions the middleware takes.
        schema: What it takes as a decision.

    Raises:
        AgentError: The decision is one that the middleware does not take.
    """
    name, arguments = action["name"], action["args"]
    prompt = str(action.get("description") or "")
    if set(allowed) == {"respond"}:  # the person is the tool
        return {"type": "respond", "message": await ask_person(name, jsonable(arguments), prompt=prompt)}

    def edited(arguments: Any) -> dict[str, Any]:
        return {"type": "edit", "edited_action": {"name": name, "args": arguments}}

    def check(arguments: Any) -> Any:
        if not isinstance(arguments, dict):
            raise ValueError("give the arguments as a JSON object")  # noqa: TRY004 - told to the person who typed it
        if schema is not None:
            _fit(edited(arguments), schema)
        return arguments

    decision = await decide_call(name, arguments, sdk_approval(prompt=prompt, edit="edit" in allowed), check=check)
    if not decision.approved:
        answer = {"type": "reject", "message": decision.told}
    elif decision.proposed or "approve" not in allowed:
        answer = edited(decision.arguments if decision.proposed else arguments)
    else:
        answer = {"type": "approve"}
    if answer["type"] not in allowed:
        raise AgentError(
            f"{decision.told} The middleware takes {', '.join(allowed)} of a call of {name}, and no {answer['type']!r}: it was "
            "not done. Add that to its allowed_decisions."
        )
    return answer


def _fit(answer: object, schema: Mapping[str, Any]) -> None:
    """Check an answer as the graph will.

    Raises:
        ValueError: It does not fit.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    problem = best_match(Draft202012Validator(schema).iter_errors(answer))
    if problem is not None:
        raise ValueError(f"{problem.json_path}: {problem.message}")
