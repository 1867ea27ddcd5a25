"""What an agent run does with its memory: start from a recorded transcript, and commit once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import cast

from .._canonical import JSON, canonical_json
from .._errors import MemoryUnavailableError
from .._events import MemoryNotice
from .._run import AgentRun
from ._paths import check_key
from ._store import MemoryStore, Snapshot

__all__ = ["RunMemory"]

logger = logging.getLogger("flyteplugins.agents")


class _SnapshotCodec:
    def encode(self, value: Snapshot) -> JSON:
        return list(value.segments)

    def decode(self, payload: JSON) -> Snapshot:
        return Snapshot(tuple(cast("list[str]", payload)))


class RunMemory:
    """The memory of one agent run.

    Attributes:
        history: The messages that the run starts from: the same on every attempt.
    """

    def __init__(
        self, run: AgentRun, store: MemoryStore | None, sdk: str, snapshot: Snapshot, history: list[JSON]
    ) -> None:
        self._run = run
        self._store = store
        self._sdk = sdk
        self._snapshot = snapshot
        self.history = history

    @classmethod
    async def open(cls, run: AgentRun, key: str | None, *, sdk: str, required: bool = False) -> RunMemory:
        """Read the transcript of a key; what was read is a leaf.

        Args:
            run: The agent run.
            key: The memory key, or `None` for a conversation that nobody continues.
            sdk: Whose messages.
            required: Whether a missing storage is an error; else the run goes on without memory, and says so.

        Raises:
            ValueError: The key is not one path segment.
            MemoryUnavailableError: There is no storage, and memory is required.
        """
        if key is None:
            return cls(run, None, sdk, Snapshot(), [])
        check_key(key)
        try:
            if run.scope is None:
                raise MemoryUnavailableError(f"There is no place for the memory {key!r} outside of a Flyte task.")
            store = MemoryStore.for_key(key, run.scope)
        except MemoryUnavailableError as error:
            if required:
                raise
            message = f"{error} The agent goes on without memory."
            logger.warning("%s", message)
            await run.emit(MemoryNotice(run=run.id, agent=run.name, message=message))
            return cls(run, None, sdk, Snapshot(), [])
        own = _commit_id(run)

        async def earlier() -> Snapshot:
            """What other runs left: this one's own messages may be there, if an attempt of it got that far."""
            found = await store.snapshot(sdk)
            return Snapshot(tuple(name for name in found.segments if own not in name))

        recorded = await run.recorder.record("memory", {"memory_key": key, "sdk": sdk}, earlier, codec=_SnapshotCodec())
        history = await store.messages(sdk, recorded.value)
        if history:
            message = f"The conversation {key!r} goes on after {len(history)} earlier messages."
            await run.emit(MemoryNotice(run=run.id, agent=run.name, message=message, replayed=recorded.replayed))
        return cls(run, store, sdk, recorded.value, history)

    async def commit(self, messages: Sequence[JSON]) -> None:
        """Append what the run adds to the transcript, once over all attempts.

        Args:
            messages: The new messages.
        """
        if self._store is None or not messages:
            return
        commit = _commit_id(self._run)
        if not await self._store.commit(self._sdk, self._snapshot, commit, messages):
            logger.info("The memory %r has this run's messages already.", self._store.key)


def _commit_id(run: AgentRun) -> str:
    """What names the agent run among all of any run, on every attempt."""
    assert run.scope is not None
    return hashlib.sha256(canonical_json([*run.scope.identity, run.recorder.number])).hexdigest()
