"""Memory as the SDK's `Session`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, cast

from agents.memory import SessionABC
from pydantic import BaseModel

from flyteplugins.agents.core import JSON, MemoryStore, RunMemory, import_v0_list

from ._repair import repair_items

if TYPE_CHECKING:
    from agents import TResponseInputItem

    from flyteplugins.agents.core import Snapshot

__all__ = ["SDK", "FlyteSession", "RunSession"]

SDK = "openai"
"""Whose messages the transcript holds."""


class RunSession(SessionABC):
    """What one agent run reads and adds. The SDK saves after every turn; the memory gets it once, when the run has finished.

    Args:
        session_id: The session's id.
        history: The messages that the run starts from.
    """

    def __init__(self, session_id: str, history: list[JSON]) -> None:
        self.session_id = session_id
        self.session_settings = None
        self._history = cast("list[TResponseInputItem]", history)
        self._added: list[TResponseInputItem] = []

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The latest messages, oldest first.

        Args:
            limit: How many; all by default.
        """
        items = [*self._history, *self._added]
        if limit is not None:
            items = items[-limit:] if limit > 0 else []
        return copy.deepcopy(items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add messages."""
        self._added += copy.deepcopy(items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the latest message back, if this run added it.

        Raises:
            NotImplementedError: It was there before the run: earlier runs' messages are not taken back.
        """
        if self._added:
            return self._added.pop()
        if self._history:
            raise NotImplementedError("A message of an earlier run cannot be taken back from a memory.")
        return None

    async def clear_session(self) -> None:
        """Refuse: an agent run does not delete a memory.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("An agent run does not delete a memory.")

    def added(self) -> list[JSON]:
        """What the run adds, as JSON values."""
        return [_plain(item) for item in self._added]

    async def commit(self, memory: RunMemory) -> None:
        """Append what the run added to its memory."""
        await memory.commit(self.added())


def _plain(item: object) -> JSON:
    if isinstance(item, BaseModel):
        return cast(JSON, item.model_dump(mode="json", exclude_unset=True, by_alias=True))
    return cast(JSON, item)


class FlyteSession(SessionABC):
    """A memory as the SDK's `Session`, for code that runs agents by itself, or to give to `run_agent(session=...)`.

    `run_agent(memory_key=...)` does the same without it.

    Args:
        store: The memory, such as `MemoryStore.for_key("ada")`.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.session_id = f"flyte:{store.key}"
        self.session_settings = None
        self._store = store
        self._looked = False

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The latest messages, oldest first, with no tool call or output left alone.

        Args:
            limit: How many; all by default.
        """
        items = repair_items((await self._read())[1])
        if limit is not None:
            items = items[-limit:] if limit > 0 else []
        return cast("list[TResponseInputItem]", items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add messages."""
        if items:
            await self._store.append(SDK, [_plain(item) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the latest message back. The memory keeps it in what it was before, as it keeps what was compacted.

        Raises:
            MemoryConflictError: Somebody else wrote meanwhile.
        """
        snapshot, items = await self._read()
        if not items:
            return None
        await self._store.compact(SDK, items[:-1], snapshot, reason="pop_item")
        return cast("TResponseInputItem", items[-1])

    async def clear_session(self) -> None:
        """Remove the messages for good."""
        await self._store.delete_transcript(SDK)

    async def _read(self) -> tuple[Snapshot, list[JSON]]:
        if not self._looked:
            await self._store.import_v0(SDK, import_v0_list)
            self._looked = True
        snapshot = await self._store.snapshot(SDK)
        return snapshot, await self._store.messages(SDK, snapshot)
