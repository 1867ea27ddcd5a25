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

from flyteplugins.agents.core import AgentRun, ask_person, decide_call, jsonable, sdk_approval

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
    answers = await asyncio.gather(*(_answer(run, one.value) for one in by_id.values()))
    return dict(zip(by_id, answers, strict=True))


async def _answer(run: AgentRun, value: Any) -> Any:
    if isinstance(value, Mapping) and {"action_requests", "review_configs"} <= value.keys():
        return {"decisions": await _review(value)}
    said = await ask_person(f"interrupt of {run.name}", jsonable(value))
    try:
        return json.loads(said)
    except ValueError:
        return said


async def _review(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answer what `HumanInTheLoopMiddleware` asks: one decision per action, in order."""
    allowed = {one["action_name"]: one.get("allowed_decisions", ()) for one in request["review_configs"]}
    return list(
        await asyncio.gather(*(_decide(one, allowed.get(one["name"], ())) for one in request["action_requests"]))
    )


async def _decide(action: Mapping[str, Any], allowed: Sequence[str]) -> dict[str, Any]:
    arguments = action.get("args", action.get("arguments"))
    decision = await decide_call(
        action["name"],
        arguments,
        sdk_approval(prompt=str(action.get("description") or ""), edit="edit" in allowed),
        check=_checked,
    )
    if not decision.approved:
        return {"type": "reject", "message": decision.told}
    if decision.proposed:
        return {"type": "edit", "edited_action": {"name": action["name"], "args": decision.arguments}}
    return {"type": "approve"}


def _checked(edited: Any) -> Any:
    if not isinstance(edited, dict):
        raise ValueError("give the arguments as a JSON object")  # noqa: TRY004 - told to the person who typed it
    return edited
