"""What an agent run does with its memory: start from a recorded transcript, and commit once."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from .._canonical import JSON, canonical_json
from .._errors import MemoryUnavailableError, RecordError
from .._events import MemoryNotice
from .._run import AgentRun
from ._parallel import gather_bounded
from ._paths import check_key
from ._retention import Retention
from ._store import Content, MemoryStore
from ._transcript import Snapshot

if TYPE_CHECKING:
    from ._v0 import ImportV0

__all__ = ["Repair", "RunMemory"]

logger = logging.getLogger("flyteplugins.agents")

GRACE = datetime.timedelta(days=1)
"""How long a run may be in flight, and still be retried, after something that it started from got over a limit."""

Repair = Callable[[list[JSON]], list[JSON]]
"""Makes messages that are kept acceptable to a model: a tool call whose result is missing gets one, say. It has to give the same
for the same messages, since what it gives is part of the keys of turns."""


@dataclass(frozen=True)
class _Start:
    """What a run starts from, as its leaf records it.

    Attributes:
        snapshot: The transcript.
        versions: The paths, with their versions.
    """

    snapshot: Snapshot
    versions: Mapping[str, int]


class _StartCodec:
    def encode(self, value: _Start) -> JSON:
        return {"snapshot": value.snapshot.to_json(), "versions": cast(JSON, dict(value.versions))}

    def decode(self, payload: JSON) -> _Start:
        match payload:
            case {"snapshot": snapshot, "versions": dict() as versions}:
                return _Start(Snapshot.from_json(snapshot), cast("dict[str, int]", versions))
        raise RecordError(
            "The recorded start of a conversation is not one of this version's. Finish the run with the version that began it, "
            "or start a new run."
        )


class RunMemory:
    """The memory of one agent run.

    Attributes:
        store: The memory's store; `None` for a run without memory.
        history: The messages that the run starts from: the same on every attempt. Bytes in them are bytes.
    """

    def __init__(
        self,
        run: AgentRun,
        store: MemoryStore | None,
        sdk: str,
        start: _Start | None = None,
        history: list[JSON] | None = None,
    ) -> None:
        self.store = store
        self.history = history if history is not None else []
        self._run = run
        self._sdk = sdk
        self._start = start

    @classmethod
    async def open(
        cls,
        run: AgentRun,
        key: str | None,
        *,
        sdk: str,
        required: bool = False,
        repair: Repair | None = None,
        import_v0: ImportV0 | None = None,
        files: str | None = None,
        retention: Retention | None = None,
    ) -> RunMemory:
        """Read the transcript of a key; what was read is a leaf.

        Args:
            run: The agent run.
            key: The memory key, or `None` for a conversation that nobody continues.
            sdk: Whose messages.
            required: Whether a missing storage is an error; else the run goes on without memory, and says so.
            repair: Makes the messages acceptable to a model; they are kept as they are.
            import_v0: Makes our content of what Flyte's own store has under the key, on its first use. Without it that is not
                read.
            files: A folder of paths that the run starts from as well, such as `deepagents/files`; see `read_files`.
            retention: What the run does not start from any more. It is removed for good as well, but only when it was over
                the limit for a day, so that runs in flight can be retried.

        Raises:
            ValueError: The key is not one path segment.
            MemoryUnavailableError: There is no storage, and memory is required.
            MemoryDeletedError: An earlier attempt started from what was deleted meanwhile.
            RecordError: What is stored is damaged.
        """
        if key is None:
            return cls(run, None, sdk)
        check_key(key)
        try:
            if run.scope is None:
                raise MemoryUnavailableError(f"There is no place for the memory {key!r} outside of a Flyte task.")
            store = dataclasses.replace(MemoryStore.for_key(key, run.scope), agent=run.id)
        except MemoryUnavailableError as error:
            if required:
                raise
            message = f"{error} The agent goes on without memory."
            logger.warning("%s", message)
            await run.emit(MemoryNotice(run=run.id, agent=run.name, message=message))
            return cls(run, None, sdk)
        own = _commit_id(run)

        async def look() -> _Start:
            await store.begin()
            if import_v0 is not None:
                await store.import_v0(sdk, import_v0)
            if retention is not None:
                await store.apply_retention(retention, grace=GRACE)
            snapshot = await store.snapshot_for(sdk, own, retention)
            versions = await store.current_versions(files) if files is not None else {}
            return _Start(snapshot, versions)

        fields: dict[str, object] = {"memory_key": key, "sdk": sdk}
        if files is not None:
            fields["files"] = files
        recorded = await run.recorder.record("memory", fields, look, codec=_StartCodec())
        start = recorded.value
        if recorded.replayed:
            await store.confirm(start.snapshot)
        history = await store.messages(sdk, start.snapshot)
        if repair is not None:
            history = repair(history)
        if history:
            message = f"The conversation {key!r} goes on after {len(history)} earlier messages."
            await run.emit(MemoryNotice(run=run.id, agent=run.name, message=message, replayed=recorded.replayed))
        return cls(run, store, sdk, start, history)

    async def read_files(self) -> dict[str, bytes]:
        """Read the paths that the run starts from: the same contents on every attempt.

        Returns:
            The content of each path in the folder that `open` was given, by path.

        Raises:
            MemoryDeletedError: One was removed for good meanwhile.
        """
        if self.store is None or self._start is None:
            return {}
        store = self.store
        pinned = self._start.versions.items()
        contents = await gather_bounded(lambda item: store.read_bytes(item[0], version=item[1]), pinned)
        return {path: content for (path, _), content in zip(pinned, contents, strict=True)}

    async def commit(self, messages: Sequence[JSON], *, files: Mapping[str, Content] | None = None) -> None:
        """Add what the run leaves to the memory, once over all attempts.

        Args:
            messages: The new messages: JSON values and bytes, nested in any way.
            files: New contents of paths; `None` deletes a path.

        Raises:
            MemoryDeletedError: The memory was deleted since the run started.
            UnserializableError: A message or a content cannot be written; the error names the path to it.
        """
        self._run.meter.check()  # a run over its budget has no answer, whoever swallowed the error
        if self.store is None or self._start is None or not (messages or files):
            return
        if not await self.store.commit(self._sdk, self._start.snapshot, _commit_id(self._run), messages, files=files):
            logger.info("The memory %r has this run's messages already.", self.store.key)


def _commit_id(run: AgentRun) -> str:
    """What names the agent run among all of any run, on every attempt."""
    assert run.scope is not None
    return hashlib.sha256(canonical_json([*run.scope.identity, run.recorder.number])).hexdigest()
