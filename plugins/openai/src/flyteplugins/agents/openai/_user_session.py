"""A session of the caller's, in a durable run.

The SDK reads a session when a run begins and saves to it after every turn. A run that dies in the middle would find its own
messages in what it reads the next time, ask other requests than before, and save everything twice. So what a run reads is a
leaf, and what it saves is held back and added when the run has its answer, in one go.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import wrapt
from agents import Session
from agents.memory import OpenAIResponsesCompactionArgs, is_openai_responses_compaction_aware_session
from agents.memory.session import _call_session_method

from flyteplugins.agents.core import JSON, AgentRun, JsonCodec, jsonable

from ._codec import dump_model

if TYPE_CHECKING:
    from agents import RunContextWrapper, TResponseInputItem

__all__ = ["HeldSession", "hold"]


def hold(run: AgentRun, session: Session) -> HeldSession | None:
    """Hold a session's writes back until the run has its answer.

    Args:
        run: The agent run.
        session: The caller's session.

    Returns:
        What the SDK is given; `None` for a run that is not durable, which the SDK gets the session itself for.
    """
    if not run.recorder.durable:
        return None
    return (_CompactingSession if is_openai_responses_compaction_aware_session(session) else HeldSession)(run, session)


class HeldSession(wrapt.ObjectProxy[Session]):
    """To the SDK it is the session that it wraps, class and other methods included.

    Args:
        run: The agent run.
        session: The caller's session.
    """

    def __init__(self, run: AgentRun, session: Session) -> None:
        super().__init__(session)
        self._self_run = run
        self._self_history: list[TResponseInputItem] | None = None
        self._self_added: list[TResponseInputItem] = []
        self._self_context: RunContextWrapper[Any] | None = None

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """The latest messages, oldest first: those that the session had when the run began, and the run's own.

        Args:
            limit: How many; all by default.
            wrapper: The SDK's context, for sessions that take it.
        """
        self._self_context = wrapper or self._self_context
        items = [*await self._read(), *self._self_added]
        if limit is not None:
            items = items[-limit:] if limit > 0 else []
        return copy.deepcopy(items)

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Hold messages back."""
        self._self_context = wrapper or self._self_context
        self._self_added += copy.deepcopy(items)

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:  # noqa: ARG002
        """Take the latest message back, if this run added it.

        Raises:
            NotImplementedError: It was there before the run.
        """
        if self._self_added:
            return self._self_added.pop()
        if await self._read():
            raise NotImplementedError("A durable run cannot take back a message that its session had before.")
        return None

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Refuse: an agent run does not clear its session.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("A durable run does not clear its session. Clear it before the run.")

    async def commit(self) -> None:
        """Add what the run has to the session, once over all attempts."""
        if not self._self_added:
            return
        recorder = self._self_run.recorder

        async def write() -> JSON:
            added = self._self_added
            there = await self._already_there(added) if recorder.resumed else 0
            if there < len(added):
                await self._call("add_items", copy.deepcopy(added[there:]))
            await self._after_commit()
            return len(added)

        await recorder.record("memory", self._fields("commit"), write, codec=JsonCodec())

    async def _after_commit(self) -> None:
        """What follows once the messages are in the session."""

    async def _read(self) -> list[TResponseInputItem]:
        if self._self_history is None:

            async def read() -> JSON:
                return [jsonable(dump_model(item)) for item in await self._call("get_items")]

            recorded = await self._self_run.recorder.record("memory", self._fields("history"), read, codec=JsonCodec())
            self._self_history = cast("list[TResponseInputItem]", recorded.value)
        return self._self_history

    async def _already_there(self, added: list[TResponseInputItem]) -> int:
        """How many of the run's messages an attempt that died while it added them had added."""
        history = await self._read()
        kept = await self._call("get_items")
        if [jsonable(dump_model(item)) for item in kept[: len(history)]] == history:
            kept = kept[len(history) :]  # else the session gives back only the latest
        for count in range(len(added), 0, -1):
            ends = range(count, len(kept) + 1) if count == len(added) else (len(kept),)
            for end in ends:
                tail = kept[end - count : end]
                if len(tail) == count and all(_holds(one, own) for one, own in zip(tail, added, strict=False)):
                    return count
        return 0

    async def _call(self, method: str, *args: Any) -> Any:
        return await _call_session_method(getattr(self.__wrapped__, method), *args, wrapper=self._self_context)

    def _fields(self, what: str) -> dict[str, object]:
        kind = type(self.__wrapped__)
        return {"session": f"{kind.__module__}.{kind.__qualname__}", "what": what}


class _CompactingSession(HeldSession):
    """A session that makes its history shorter after turns: once, when the run's messages are in it."""

    def __init__(self, run: AgentRun, session: Session) -> None:
        super().__init__(run, session)
        self._self_compaction: tuple[OpenAIResponsesCompactionArgs | None] | None = None

    async def run_compaction(
        self, args: OpenAIResponsesCompactionArgs | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Note that the history is to be made shorter.

        Args:
            args: The SDK's; those of the last turn count.
            wrapper: The SDK's context, for sessions that take it.
        """
        self._self_context = wrapper or self._self_context
        self._self_compaction = (args,)

    async def _after_commit(self) -> None:
        if self._self_compaction is not None:
            await self._call("run_compaction", *self._self_compaction)


def _holds(kept: object, own: object) -> bool:
    """Whether a message that a session gives back is one that was added: it may have more in it, such as an id."""
    kept, own = jsonable(dump_model(kept)), jsonable(dump_model(own))
    if isinstance(kept, Mapping) and isinstance(own, Mapping):
        return all(name in kept and kept[name] == value for name, value in own.items())
    return kept == own
