"""Graph nodes that run again: an interrupted node starts from its beginning, and so does one with a retry policy.

What such a node asks again in the same attempt of the task has been answered, and is not paid for twice. Which execution of
which node something belongs to is told by the SDK's callbacks: each execution has a run id, and each node of a graph's run a
checkpoint namespace that stays the same when it runs again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig, ensure_config

from flyteplugins.agents.core import JSON, AgentRun, fingerprint

__all__ = ["NODES", "agent_name", "made_before", "note_made", "request_key"]


@dataclass(frozen=True)
class _Execution:
    parent: UUID | None
    node: str | None
    """The node's namespace, if this is the execution of a node."""


# ruff: noqa: ARG002  # the signatures are the SDK's


class _NodeExecutions(BaseCallbackHandler):
    """Knows the executions that are on, and what each is part of. One for the process: ids are unique."""

    run_inline = True
    raise_error = True

    def __init__(self) -> None:
        self._executions: dict[UUID, _Execution] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note that something of a graph begins."""
        place = metadata or {}
        node = place.get("langgraph_checkpoint_ns") if kwargs.get("name") == place.get("langgraph_node") else None
        self._executions[run_id] = _Execution(parent_run_id, node)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Note that it has ended. A node that came to its end does not run again."""
        ended = self._executions.pop(run_id, None)
        if ended is None or ended.node is None:
            return
        outer = self._executions.get(ended.parent) if ended.parent is not None else None
        if outer is None or outer.node != ended.node:
            with _LOCK:
                for known in _MEMOS.values():
                    known.pop(ended.node, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Note that it has ended."""
        self._executions.pop(run_id, None)

    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note that a tool begins, which may run a graph."""
        self._executions[run_id] = _Execution(parent_run_id, None)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Note that it has ended."""
        self._executions.pop(run_id, None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Note that it has ended."""
        self._executions.pop(run_id, None)

    def chain(self) -> list[tuple[str, UUID]]:
        """The nodes that the running code is in, outermost first: the namespace of each, and its execution."""
        found: list[tuple[str, UUID]] = []
        current: UUID | None = getattr(ensure_config().get("callbacks"), "parent_run_id", None)
        while current is not None and (execution := self._executions.get(current)) is not None:
            if execution.node is not None and (not found or found[-1][0] != execution.node):
                found.append((execution.node, current))
            elif execution.node is not None:
                found[-1] = (execution.node, current)  # the outermost of the node's own runnables
            current = execution.parent
        return found[::-1]


@dataclass
class _NodeMemo:
    """What one node of a graph's run was answered: in its executions before, and in the one that is on."""

    execution: UUID | None = None
    left: dict[str, list[JSON]] = field(default_factory=dict)
    made: dict[str, list[JSON]] = field(default_factory=dict)


_LOCK = threading.Lock()
_MEMOS: weakref.WeakKeyDictionary[Any, dict[str, _NodeMemo]] = weakref.WeakKeyDictionary()
"""By what the leaves of one attempt of a task share."""


NODES = _NodeExecutions()


def request_key(run: AgentRun, fields: Mapping[str, object]) -> str:
    """The key of a request, if a node asks it that may run again; else an empty text, since keys of long requests cost time.

    Args:
        run: The agent run.
        fields: The whole request, by field.
    """
    return fingerprint(fields)[0] if run.scope is not None and run.recorder.durable and NODES.chain() else ""


def _memos(run: AgentRun) -> list[_NodeMemo]:
    if run.scope is None or not run.recorder.durable:
        return []
    known = _MEMOS.setdefault(run.scope.state, {})
    memos = []
    for node, execution in NODES.chain():
        memo = known.setdefault(node, _NodeMemo())
        if memo.execution != execution:
            memo.left = {key: [*memo.made.get(key, []), *memo.left.get(key, [])] for key in {*memo.made, *memo.left}}
            memo.made = {}
            memo.execution = execution
        memos.append(memo)
    return memos


def made_before(run: AgentRun, key: str) -> JSON:
    """Find what an earlier execution of this node was answered, and take it.

    Args:
        run: The agent run.
        key: The request's key.

    Returns:
        The payload, or `None` where the request is a new one.
    """
    if not key:
        return None
    with _LOCK:
        memos = _memos(run)
        for memo in memos:
            if waiting := memo.left.get(key):
                payload = waiting.pop(0)
                for other in memos:
                    other.made.setdefault(key, []).append(payload)
                return payload
        return None


def note_made(run: AgentRun, key: str, payload: Callable[[], JSON]) -> None:
    """Keep what a request of this node was answered, in case that it runs again.

    Args:
        run: The agent run.
        key: The request's key.
        payload: The answer, as JSON values.
    """
    if not key:
        return
    kept = payload()
    with _LOCK:
        for memo in _memos(run):
            memo.made.setdefault(key, []).append(kept)


def agent_name(default: str, config: RunnableConfig | None = None) -> str:
    """The agent that the running code belongs to.

    Args:
        default: What to call it if it has no name.
        config: The configuration of the running code.
    """
    metadata: Mapping[str, Any] = (config if config is not None else ensure_config()).get("metadata") or {}
    found = metadata.get("lc_agent_name")
    return found if isinstance(found, str) and found else default
