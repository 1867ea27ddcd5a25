"""The traced functions, one per kind of leaf.

Flyte derives a trace's id from its function's name and body, so a change here changes the ids of every run in flight. They are
tiny, and frozen: what a leaf does is in the recorder.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import flyte

from ._records import Kind

__all__ = ["BODY", "TRACES"]

BODY: ContextVar[Callable[[], Awaitable[str]]] = ContextVar("flyteplugins.agents.leaf")
"""What the traced function of the current leaf is to do."""


@flyte.trace
async def agent_turn(leaf: str) -> str:  # noqa: ARG001 - names the leaf for Flyte
    """One model request and its response."""
    return await BODY.get()()


@flyte.trace
async def agent_tool(leaf: str) -> str:  # noqa: ARG001
    """One call of a tool that runs in the agent's own process."""
    return await BODY.get()()


@flyte.trace
async def agent_tools(leaf: str) -> str:  # noqa: ARG001
    """The tools that a server offers."""
    return await BODY.get()()


@flyte.trace
async def agent_memory(leaf: str) -> str:  # noqa: ARG001
    """The transcript that an agent run starts from."""
    return await BODY.get()()


@flyte.trace
async def agent_approval(leaf: str) -> str:  # noqa: ARG001
    """A person's decision about an action."""
    return await BODY.get()()


TRACES: dict[Kind, Callable[[str], Awaitable[str]]] = {
    "turn": agent_turn,
    "tool": agent_tool,
    "tools": agent_tools,
    "memory": agent_memory,
    "approval": agent_approval,
}


def _prepare(function: Callable[..., object]) -> None:
    """Have at hand what Flyte asks a traced function for in each call: types, signature, docstring to be parsed.

    Looking them up anew takes it a third of the time of the whole trace. Its ids come from the source, which stays as it is.
    """
    function.__annotations__ = typing.get_type_hints(function)
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    function.__doc__ = None


for _trace in TRACES.values():
    _prepare(inspect.unwrap(_trace))
