"""The SDK's conversation store on Flyte's storage.

A record is replaced only if it still has the revision that it was read with, so that of two writers one is told of the other. In
an agent run what is read and written is recorded: a resume sees the conversation that the first attempt saw, and saves once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

from flyteplugins.agents.core import (
    JSON,
    JsonCodec,
    MemoryConflictError,
    MemoryStore,
    current_run,
    idempotency_key,
)
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)

__all__ = ["FlyteConversationStore"]

T = TypeVar("T")

_RECORD = TypeAdapter(ConversationRecord)
_ENTRY = TypeAdapter(ConversationEntry)
_FOLDER = "pydantic_ai"


class FlyteConversationStore(ConversationStore):
    """Keeps conversations in a memory: `store.load(id)`, `agent.run(prompt, conversation=...)`, `await store.save(result)`.

    It works inside of a task. Entries that no conversation reaches any more, after a deletion or a save that was interrupted, are
    kept: whether a save that runs elsewhere is about to use them cannot be told.

    Args:
        key: The memory's key, one path segment.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Read a conversation's record; `None` if there is none."""
        kept = await self._leaf("read record", [conversation_id], lambda: self._stored(conversation_id))
        return _RECORD.validate_python(cast("dict[str, Any]", kept)["record"]) if kept is not None else None

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Read all records, or those of a scope, the latest first.

        Args:
            scope: Whose.
            limit: How many at most.
        """

        async def read() -> JSON:
            store = self._store()
            values: list[JSON] = []
            for path in await store.list_paths(f"{_FOLDER}/conversations"):
                kept = cast("dict[str, JSON] | None", await store.read_json(path, default=None))
                if kept is not None:
                    values.append(kept["record"])
            return values

        values = cast("list[JSON]", await self._leaf("read records", [scope, limit], read))
        records = [_RECORD.validate_python(value) for value in values]
        found = [record for record in records if scope is None or record.scope == scope]
        return sorted(found, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Write a record and its new entries.

        Args:
            record: The record.
            new_entries: The entries that it adds.
            expected_revision: The revision that it replaces; `None` for a new conversation.

        Raises:
            ConversationConflict: Another revision is stored, or an entry that it builds on is gone.
        """

        async def write() -> JSON:
            store = self._store()
            for entry in new_entries:
                await store.write_json(_entry_path(entry.id), cast(JSON, _ENTRY.dump_python(entry, mode="json")))
            new = {entry.id for entry in new_entries}
            head = record.head_id
            if head is not None and head not in new and await store.stat(_entry_path(head)) is None:
                return {"conflict": True}
            path = _record_path(record.conversation_id)
            writer = idempotency_key()
            stored = cast("dict[str, Any] | None", await store.read_json(path, default=None))
            found = await store.stat(path)
            own = stored is not None and stored["writer"] == writer  # an earlier attempt of this very save got that far
            if not own and (stored["record"]["revision"] if stored is not None else None) != expected_revision:
                return {"conflict": True}
            value = {"record": _RECORD.dump_python(record, mode="json"), "writer": writer}
            try:
                await store.write_json(path, cast(JSON, value), expected_version=found.version if found else 0)
            except MemoryConflictError:
                return {"conflict": True}
            return {"conflict": False}

        done = await self._leaf("write record", [record.conversation_id, expected_revision], write)
        if cast("dict[str, bool]", done)["conflict"]:
            raise ConversationConflict(record.conversation_id)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation's record.

        Args:
            conversation_id: The conversation.
            expected_revision: The revision that it has to have.

        Raises:
            ConversationConflict: Another revision is stored, or none.
        """

        async def delete() -> JSON:
            store = self._store()
            path = _record_path(conversation_id)
            found = await store.stat(path)
            stored = cast("dict[str, Any] | None", await store.read_json(path, default=None))
            if found is None or stored is None or stored["record"]["revision"] != expected_revision:
                return {"conflict": True}
            try:
                await store.delete_path(path, expected_version=found.version)
            except MemoryConflictError:
                return {"conflict": True}
            return {"conflict": False}

        done = await self._leaf("delete record", [conversation_id, expected_revision], delete)
        if cast("dict[str, bool]", done)["conflict"]:
            raise ConversationConflict(conversation_id)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Read an entry.

        Args:
            entry_id: Its id.

        Raises:
            KeyError: There is no such entry.
        """
        kept = await self._leaf(
            "read entry", [entry_id], lambda: self._store().read_json(_entry_path(entry_id), default=None)
        )
        if kept is None:
            raise KeyError(f"The memory {self.key!r} has no conversation entry {entry_id!r}.")
        return _ENTRY.validate_python(kept)

    def _store(self) -> MemoryStore:
        return MemoryStore.for_key(self.key)

    async def _stored(self, conversation_id: str) -> JSON:
        return await self._store().read_json(_record_path(conversation_id), default=None)

    async def _leaf(self, operation: str, arguments: list[Any], call: Callable[[], Awaitable[JSON]]) -> JSON:
        """Do something as a leaf of the agent run around it, if there is one."""
        run = current_run()
        if run is None:
            return await call()
        fields: dict[str, object] = {"conversation store": self.key, "operation": operation, "arguments": arguments}
        recorded = await run.recorder.record("memory", fields, call, codec=JsonCodec(), on_unknown=_again)
        return recorded.value


async def _again(_: object) -> None:
    """What an earlier attempt started and left without an outcome is done again; a save knows its own."""


def _record_path(conversation_id: str) -> str:
    return f"{_FOLDER}/conversations/{hashlib.sha256(conversation_id.encode()).hexdigest()[:32]}.json"


def _entry_path(entry_id: str) -> str:
    return f"{_FOLDER}/entries/{hashlib.sha256(entry_id.encode()).hexdigest()[:32]}.json"
