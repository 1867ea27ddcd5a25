"""The store of one memory key: transcripts, and a path-addressed key-value space.

Everything is files that are created once, under names that only one writer can take. So two writers at once lose nothing, a
write that is made twice is found to be there, and the bytes written do not grow with what is there already. See `_log.py`
for how, and `_generation.py` for deletion.
"""

from __future__ import annotations

import datetime
import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast, overload

from .._canonical import JSON, canonical_json
from .._errors import RecordError
from .._scope import TaskScope, current_scope
from .._storage import Folder
from ._audit import AuditAction, AuditEntry
from ._entry import Writer
from ._files import FileSpace, FileVersion, Media
from ._generation import Generations
from ._names import check_path, decode_name
from ._parallel import gather_bounded
from ._paths import check_key, memory_folder
from ._retention import Cutoff, Removed, Retention
from ._transcript import Snapshot, Transcript
from ._v0 import V0_FILES, ImportV0, read_v0, v0_folder
from ._values import dump_value, load_value

__all__ = ["Content", "MemoryStore", "Snapshot"]

T = TypeVar("T")
DefaultT = TypeVar("DefaultT")

Content: TypeAlias = "bytes | str | JSON"
"""What a path can hold: bytes, text, or JSON values."""

_V0_WAS_READ = "v0-is-not-read.json"
"""Stands beside a deleted memory, so that its next first use does not bring Flyte's own store's content back."""


class _Missing:
    pass


_MISSING = _Missing()


@dataclass(frozen=True)
class MemoryStore:
    """What is kept under one memory key.

    **Transcripts** hold messages, in segments of one agent run each: `snapshot`, `messages`, `append`, `compact`. **Paths** hold
    text, JSON or bytes, with all their versions: `read_text`, `write_text`, `list_paths`, `delete_path`, `versions`, and the
    like. `audit` tells who wrote what. `apply_retention` and `delete` remove for good.

    Every method is safe beside other writers of the same key, in other tasks and on other machines. From a sync task, wait for a
    method with `run_coro_sync(store.read_text("notes.md"))`.

    A bucket that keeps old versions of its objects keeps those of a memory too, whatever is removed here: give it a lifecycle
    rule.

    Attributes:
        key: The memory key.
        folder: Where it is.
        scope: The task that uses it; `None` outside of one.
        agent: The agent run that uses it, for the audit log; empty where a task does so by itself.
    """

    key: str
    folder: Folder
    scope: TaskScope | None = field(default=None, repr=False)
    agent: str = ""

    @classmethod
    def for_key(cls, key: str, scope: TaskScope | None = None) -> MemoryStore:
        """Open the store of a key, which need not exist.

        Args:
            key: One path segment.
            scope: The task that asks; the running one by default. Its organization, project and domain are part of where it is.

        Raises:
            ValueError: The key is not one path segment.
            RuntimeError: There is no running task.
            MemoryUnavailableError: Flyte does not say where data is kept.
        """
        check_key(key)
        scope = scope or current_scope()
        if scope is None:
            raise RuntimeError(
                "MemoryStore.for_key was called outside of a Flyte task, which has no storage to keep it on."
            )
        return cls(key, memory_folder(key, scope), scope)

    @classmethod
    async def delete(cls, key: str, scope: TaskScope | None = None, *, flyte_memory: bool = False) -> None:
        """Remove the memory of a key for good.

        A later run starts empty. A run in flight that started from the memory, or adds to it, gets a `MemoryDeletedError`, and
        what it writes is removed as well.

        Args:
            key: One path segment.
            scope: The task that asks; the running one by default.
            flyte_memory: Whether Flyte's own store of the same key (`flyte.ai.agents.MemoryStore`) is removed too. By default it
                stays, and a file without content says that it is not to be read again.

        Raises:
            ValueError: The key is not one path segment.
            RuntimeError: There is no running task.
            MemoryUnavailableError: Flyte does not say where data is kept.
        """
        await cls.for_key(key, scope).delete_all(flyte_memory=flyte_memory)

    async def delete_all(self, *, flyte_memory: bool = False) -> None:
        """Remove this memory for good; see `delete`.

        Args:
            flyte_memory: See `delete`.
        """
        v0 = v0_folder(self.key, self.scope) if self.scope is not None else None
        if v0 is not None and flyte_memory:
            await v0.delete_all("")
            await self.folder.delete(_V0_WAS_READ)
        elif v0 is not None and await v0.names():
            await self.folder.create(_V0_WAS_READ, b"{}")
        await self._generations.delete()

    # transcripts

    async def snapshot(self, sdk: str) -> Snapshot:
        """See which messages of a transcript a reader gets now.

        Args:
            sdk: Whose messages: each SDK has its own transcript, since their messages are not each other's. Any other name
                makes a transcript of its own too; see `check_path` for what a name may be.
        """
        check_path(sdk)
        generation = await self._generations.current()
        return await self._transcript(generation, sdk).snapshot() if generation is not None else Snapshot()

    async def messages(self, sdk: str, snapshot: Snapshot | None = None, *, original: bool = False) -> list[JSON]:
        """Read a transcript.

        Args:
            sdk: Whose messages.
            snapshot: As of when; now by default.
            original: Whether to read what a compaction stands for in place of its summary.

        Returns:
            The messages as they were given, oldest first; bytes in them are bytes.

        Raises:
            MemoryDeletedError: What the snapshot saw was deleted meanwhile.
            RecordError: A segment is gone, damaged or of another format.
        """
        check_path(sdk)
        while True:
            seen = snapshot if snapshot is not None else await self.snapshot(sdk)
            if seen.generation is None:
                return []
            try:
                return await self._transcript(seen.generation, sdk).messages(seen, original=original)
            except RecordError:
                if snapshot is not None:
                    await self._generations.confirm(seen.generation)
                elif await self.snapshot(sdk) != seen:
                    continue  # it was deleted or removed while we read: there is another transcript now
                raise

    async def append(
        self, sdk: str, messages: Sequence[JSON], *, expected_runs: int | None = None, reason: str = ""
    ) -> int:
        """Add messages to a transcript, as one segment that readers see whole or not at all.

        A call that is repeated adds them again: what an agent run adds is committed by its adapter, once over all attempts.

        Args:
            sdk: Whose messages.
            messages: JSON values and bytes, nested in any way.
            expected_runs: How many segments the transcript has to have (`Snapshot.upto`); any number by default.
            reason: Why, for the audit log.

        Returns:
            The segment's number, from 0.

        Raises:
            MemoryConflictError: The transcript has another number of segments.
            MemoryDeletedError: The memory was deleted meanwhile.
            UnserializableError: A message holds something else; the error names the path to it.
        """
        check_path(sdk)
        write_id = uuid.uuid4().hex

        async def write(generation: str) -> int:
            transcript = self._transcript(generation, sdk)
            end = (await transcript.snapshot()).upto
            if expected_runs is None:
                return (await transcript.append(write_id, messages, op="append", end=end, reason=reason))[0]
            if end != expected_runs or not await transcript.append_at(
                write_id, messages, end, op="append", reason=reason
            ):
                raise transcript.conflict(expected_runs)
            return end

        return await self._writing(write)

    async def commit(
        self,
        sdk: str,
        snapshot: Snapshot,
        commit: str,
        messages: Sequence[JSON],
        *,
        files: Mapping[str, Content] | None = None,
        op: AuditAction = "append",
    ) -> bool:
        """Add what one agent run leaves, once, however often it is called and wherever a call before it died.

        Args:
            sdk: Whose messages.
            snapshot: What the run started from. If the memory was deleted since, nothing is added.
            commit: Names the agent run among all: 64 hexadecimal digits.
            messages: What it adds to the transcript.
            files: New contents of paths; `None` deletes a path. They are written before the messages.
            op: What it is to the audit log.

        Returns:
            Whether this call added the messages; without messages, whether it was the first.

        Raises:
            MemoryDeletedError: The memory was deleted since the snapshot.
            UnserializableError: A message or a content cannot be written; the error names the path to it.
        """
        check_path(sdk)
        contents = {check_path(path): _to_bytes(path, content) for path, content in (files or {}).items()}
        await self.confirm(snapshot)

        async def write(generation: str) -> bool:
            transcript = self._transcript(generation, sdk)
            end = (await transcript.snapshot()).upto
            space = self._files(generation)
            lengths = await gather_bounded(lambda path: space.log(path).length(), contents)
            base, added = await transcript.claim(commit, end)
            fresh = added  # then nothing of it was written when we counted; else some may have been, at any time before

            async def write_file(item: tuple[str, int]) -> None:
                path, length = item
                content, media = contents[path]
                await space.write_once(path, content, media, commit, examined=length if fresh else 0, end=length)

            await gather_bounded(write_file, zip(contents, lengths, strict=True))
            if messages:
                _, added = await transcript.append(commit, messages, op=op, examined=base, end=max(base, end))
            return added

        return await self._writing(write, generation=snapshot.generation)

    async def compact(
        self, sdk: str, summary: Sequence[JSON], snapshot: Snapshot, *, keep_runs: int = 0, reason: str = ""
    ) -> Snapshot:
        """Have readers get a summary in place of earlier messages.

        The messages stay as they are: `messages(..., original=True)` reads them, and a run that started from them still does.
        What others add meanwhile comes after the summary.

        Args:
            sdk: Whose messages.
            summary: Messages of the SDK that stand for what the snapshot saw.
            snapshot: What was summarized.
            keep_runs: How many of the latest runs in the snapshot stay as they are.
            reason: Why, for the audit log.

        Returns:
            What a reader gets now.

        Raises:
            ValueError: There is nothing to compact.
            MemoryConflictError: Somebody else did it meanwhile.
            MemoryDeletedError: The memory was deleted since the snapshot.
        """
        check_path(sdk)
        if snapshot.generation is None:
            raise ValueError(f"There is nothing to compact in the memory {self.key!r}: it has no messages.")
        if keep_runs < 0:
            raise ValueError(f"compact was given keep_runs={keep_runs}; give 0 or more.")
        await self._generations.confirm(snapshot.generation)
        write_id = uuid.uuid4().hex

        async def write(generation: str) -> Snapshot:
            transcript = self._transcript(generation, sdk)
            await transcript.compact(write_id, summary, snapshot, keep_runs, reason)
            return await transcript.snapshot()

        return await self._writing(write, generation=snapshot.generation)

    async def transcripts(self) -> list[str]:
        """Name the transcripts that have messages."""
        generation = await self._generations.current()
        if generation is None:
            return []
        names = [
            name for name in await self._transcript_names(generation) if await self._has_messages(generation, name)
        ]
        return sorted(names)

    async def delete_transcript(self, sdk: str) -> None:
        """Remove the messages of a transcript for good, those of compactions included. What is added later begins anew.

        Args:
            sdk: Whose messages.
        """
        check_path(sdk)

        async def write(generation: str) -> None:
            transcript = self._transcript(generation, sdk)
            end = (await transcript.snapshot()).upto
            if end:
                await transcript.remove_before(end, uuid.uuid4().hex)

        if await self._generations.current() is not None:
            await self._writing(write)

    # paths

    @overload
    async def read_bytes(self, path: str, *, version: int | None = None) -> bytes: ...
    @overload
    async def read_bytes(self, path: str, *, version: int | None = None, default: DefaultT) -> bytes | DefaultT: ...
    async def read_bytes(self, path: str, *, version: int | None = None, default: object = _MISSING) -> object:
        """Read what a path holds, whatever was written.

        Args:
            path: A relative path such as `notes/today.md`.
            version: Which version, from 1; the current one by default.
            default: What to return if there is nothing; without it that is an error.

        Raises:
            FileNotFoundError: The path was never written, or it was deleted.
            MemoryDeletedError: The content of that version was removed for good.
            RecordError: It is damaged, or of another format.
        """
        found = await self._read(path, version)
        return found[0] if found is not None else self._nothing(path, version, default)

    @overload
    async def read_text(self, path: str, *, version: int | None = None) -> str: ...
    @overload
    async def read_text(self, path: str, *, version: int | None = None, default: DefaultT) -> str | DefaultT: ...
    async def read_text(self, path: str, *, version: int | None = None, default: object = _MISSING) -> object:
        """Read a path's text.

        Args:
            path: A relative path such as `notes/today.md`.
            version: Which version, from 1; the current one by default.
            default: What to return if there is nothing; without it that is an error.

        Raises:
            FileNotFoundError: The path was never written, or it was deleted.
            ValueError: It holds bytes that are no text.
            MemoryDeletedError: The content of that version was removed for good.
            RecordError: It is damaged, or of another format.
        """
        found = await self._read(path, version)
        if found is None:
            return self._nothing(path, version, default)
        try:
            return found[0].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"The memory path {path!r} holds {found[1].media}, and it is no text: {error}. Use read_bytes."
            ) from error

    @overload
    async def read_json(self, path: str, *, version: int | None = None) -> JSON: ...
    @overload
    async def read_json(self, path: str, *, version: int | None = None, default: DefaultT) -> JSON | DefaultT: ...
    async def read_json(self, path: str, *, version: int | None = None, default: object = _MISSING) -> object:
        """Read a path's JSON values; bytes in them come back as bytes.

        Args:
            path: A relative path such as `profile.json`.
            version: Which version, from 1; the current one by default.
            default: What to return if there is nothing; without it that is an error.

        Raises:
            FileNotFoundError: The path was never written, or it was deleted.
            ValueError: It holds no JSON.
            MemoryDeletedError: The content of that version was removed for good.
            RecordError: It is damaged, or of another format.
        """
        found = await self._read(path, version)
        if found is None:
            return self._nothing(path, version, default)
        try:
            return load_value(found[0])
        except ValueError as error:
            raise ValueError(
                f"The memory path {path!r} holds {found[1].media}, and it is no JSON: {error}. Use read_text or read_bytes."
            ) from error

    async def write_bytes(
        self, path: str, data: bytes, *, expected_version: int | None = None, reason: str = ""
    ) -> FileVersion:
        """Write bytes to a path, as its next version.

        Of two writers at once, one writes the later version, and every reader agrees on which.

        Args:
            path: A relative path such as `images/cat.png`.
            data: The bytes.
            expected_version: Which version has to be the current one, such as `(await stat(path)).version`; 0 if nothing was ever
                written. By default it does not matter.
            reason: Why, for the audit log.

        Returns:
            The version that was written.

        Raises:
            MemoryConflictError: Another version is the current one, and nothing was written.
            MemoryDeletedError: The memory was deleted meanwhile.
            ValueError: The path is not a relative path.
        """
        return await self._write(path, bytes(data), "bytes", expected_version, reason)

    async def write_text(
        self, path: str, text: str, *, expected_version: int | None = None, reason: str = ""
    ) -> FileVersion:
        """Write text to a path, as its next version.

        Args:
            path: A relative path such as `notes/today.md`.
            text: The text.
            expected_version: See `write_bytes`.
            reason: Why, for the audit log.

        Returns:
            The version that was written.

        Raises:
            MemoryConflictError: Another version is the current one, and nothing was written.
            MemoryDeletedError: The memory was deleted meanwhile.
            ValueError: The path is not a relative path.
        """
        return await self._write(path, text.encode("utf-8", "surrogatepass"), "text", expected_version, reason)

    async def write_json(
        self, path: str, value: JSON, *, expected_version: int | None = None, reason: str = ""
    ) -> FileVersion:
        """Write JSON values to a path, as its next version.

        Args:
            path: A relative path such as `profile.json`.
            value: JSON values and bytes, nested in any way.
            expected_version: See `write_bytes`.
            reason: Why, for the audit log.

        Returns:
            The version that was written.

        Raises:
            MemoryConflictError: Another version is the current one, and nothing was written.
            MemoryDeletedError: The memory was deleted meanwhile.
            UnserializableError: It holds something else; the error names the path to it.
            ValueError: The path is not a relative path.
        """
        return await self._write(path, dump_value(value, path=path), "json", expected_version, reason)

    async def delete_path(
        self, path: str, *, expected_version: int | None = None, reason: str = "", purge: bool = False
    ) -> FileVersion | None:
        """Delete a path: its next version says so.

        Args:
            path: A relative path.
            expected_version: See `write_bytes`.
            reason: Why, for the audit log.
            purge: Whether the contents of its earlier versions are removed for good. That the path was there remains in the
                audit log.

        Returns:
            The version that says so; `None` if there was nothing to delete.

        Raises:
            MemoryConflictError: Another version is the current one, and nothing was deleted.
            MemoryDeletedError: The memory was deleted meanwhile.
            ValueError: The path is not a relative path.
        """
        check_path(path)

        async def write(generation: str) -> FileVersion | None:
            space = self._files(generation)
            current = await space.stat(path)
            there = current is not None and not current.deleted
            if there or (expected_version is not None and expected_version != (current.version if current else 0)):
                current = await space.write(path, None, "bytes", expected_version=expected_version, reason=reason)
            if current is not None and purge:
                await space.remove_versions(path, current.version)
            return current if there else None

        if await self._generations.current() is None and not expected_version:
            return None
        return await self._writing(write)

    async def list_paths(self, prefix: str = "") -> list[str]:
        """List the paths that hold something, sorted. Nothing is read but names.

        Args:
            prefix: Only those in this folder, such as `notes`; all by default.
        """
        return list(await self.current_versions(prefix))

    async def current_versions(self, prefix: str = "") -> dict[str, int]:
        """List the paths that hold something, with their current versions, sorted. Nothing is read but names.

        Args:
            prefix: Only those in this folder, such as `notes`; all by default.
        """
        prefix = prefix.removesuffix("/")
        if prefix:
            check_path(prefix)
        generation = await self._generations.current()
        return await self._files(generation).current(prefix) if generation is not None else {}

    async def stat(self, path: str, *, version: int | None = None) -> FileVersion | None:
        """Say what is known of a path without reading its content.

        Args:
            path: A relative path.
            version: Which version, from 1; the current one by default, which may say that the path was deleted.

        Returns:
            `None` if there is no such version.
        """
        check_path(path)
        _check_version(version)
        generation = await self._generations.current()
        return await self._files(generation).stat(path, version) if generation is not None else None

    async def versions(self, path: str) -> list[FileVersion]:
        """List all versions of a path, oldest first, deletions among them.

        Args:
            path: A relative path.
        """
        check_path(path)
        generation = await self._generations.current()
        return await self._files(generation).versions(path) if generation is not None else []

    # everything

    async def audit(self) -> list[AuditEntry]:
        """Say who did what, oldest first: every append, compaction and removal, and every version of every path.

        An entry stays when the content is removed for good, without the content's digest.
        """
        generation = await self._generations.current()
        if generation is None:
            return []
        entries = [
            AuditEntry(
                version.when,
                "delete" if version.deleted else "write",
                version.path,
                version.version,
                version.size,
                version.sha256,
                version.writer,
                version.reason,
                version.removed,
            )
            for version in await self._files(generation).all_versions()
        ]
        for name in await self._transcript_names(generation):
            entries += [
                AuditEntry(
                    head.when,
                    cast(AuditAction, head.op),
                    name,
                    number,
                    head.size,
                    head.sha256,
                    head.writer,
                    head.reason,
                    head.removed,
                )
                for number, head in await self._transcript(generation, name).entries()
            ]
        return sorted(entries, key=lambda entry: (entry.when, entry.what, entry.number))

    async def apply_retention(
        self, retention: Retention, *, grace: datetime.timedelta = datetime.timedelta()
    ) -> Removed:
        """Remove for good what is over a limit.

        A run in flight that started from something that is removed gets a `MemoryDeletedError` if it is retried.

        Args:
            retention: The limits.
            grace: How long a thing has to have been over a limit.

        Returns:
            How much was removed.

        Raises:
            MemoryDeletedError: The memory was deleted meanwhile.
        """
        if await self._generations.current() is None:
            return Removed()
        cutoff = Cutoff.of(retention, grace)
        return await self._writing(lambda generation: self._apply(retention, cutoff, generation))

    async def _apply(self, retention: Retention, cutoff: Cutoff, generation: str) -> Removed:
        runs = versions = 0
        for name in await self._transcript_names(generation):
            transcript = self._transcript(generation, name)
            first = await transcript.first_kept(retention, cutoff)
            if first > 0:
                runs += await transcript.remove_before(first, uuid.uuid4().hex)
        space = self._files(generation)
        for path, (current, old) in (await space.superseded()).items():
            first = await space.first_kept(path, current, old, retention, cutoff)
            versions += await space.remove_versions(path, first) if first else 0
        return Removed(runs, versions)

    async def import_v0(
        self, sdk: str, convert: ImportV0, *, paths: tuple[str, ...] | None = None, folder: Folder | None = None
    ) -> bool:
        """Take over what Flyte's own store has under the same key, if this transcript has no messages yet.

        It may be called any number of times, also by two runs at once: one import is kept.

        Args:
            sdk: Whose messages.
            convert: Makes messages and contents of paths of the files.
            paths: Which files of Flyte's own store; those of `V0_FILES` by default.
            folder: Where Flyte's own store of the key is; found by default.

        Returns:
            Whether this call added messages.

        Raises:
            RecordError: The files are not what the adapter expected.
        """
        if folder is None:
            folder = v0_folder(self.key, self.scope) if self.scope is not None else None
        snapshot = await self.snapshot(sdk)
        if folder is None or snapshot.upto or await self._reads_no_v0():
            return False
        content = await read_v0(folder, paths if paths is not None else V0_FILES[sdk], convert)
        if not content.messages and not content.files:
            return False
        commit = hashlib.sha256(canonical_json(["v0", sdk])).hexdigest()
        return await self.commit(sdk, snapshot, commit, content.messages, files=content.files, op="import")

    async def _reads_no_v0(self) -> bool:
        try:
            await self.folder.read(_V0_WAS_READ)
        except FileNotFoundError:
            return False
        return True

    async def begin(self) -> str:
        """Have the key begin a memory if it has none, and say which it is: a run that begins now notices if it is deleted."""
        return await self._generations.current_or_new(self._writer)

    async def confirm(self, snapshot: Snapshot) -> None:
        """Make sure that the memory of a snapshot was not deleted.

        Raises:
            MemoryDeletedError: It was.
        """
        if snapshot.generation is not None:
            await self._generations.confirm(snapshot.generation)

    async def snapshot_for(self, sdk: str, commit: str, retention: Retention | None = None) -> Snapshot:
        """See what an agent run starts from: what was there before its own commit, if an attempt of it has made that already.

        Args:
            sdk: Whose messages.
            commit: Names the agent run among all.
            retention: What is over these limits is not seen.
        """
        generation = await self.begin()
        transcript = self._transcript(generation, sdk)
        first = await transcript.first_kept(retention, Cutoff.of(retention)) if retention is not None else 0
        return await transcript.snapshot(before=await transcript.claimed(commit), first=first)

    # parts

    @property
    def _generations(self) -> Generations:
        return Generations(self.folder, self.key)

    @property
    def _writer(self) -> Writer:
        if self.scope is None:
            return Writer(agent=self.agent)
        return Writer(self.scope.run, self.scope.action, self.agent)

    def _transcript(self, generation: str, sdk: str) -> Transcript:
        return Transcript(self.folder, generation, self._generations.path(generation), sdk, self._writer)

    def _files(self, generation: str) -> FileSpace:
        return FileSpace(self.folder, self._generations.path(generation), self._writer)

    async def _writing(self, write: Callable[[str], Awaitable[T]], generation: str | None = None) -> T:
        """Write to the current generation, or to the one that is given, and see that it has not ended meanwhile."""
        generation = generation or await self.begin()
        try:
            result = await write(generation)
        except Exception:
            await self._generations.confirm(generation)  # a file that is gone may be gone with the memory
            raise
        await self._generations.confirm(generation)
        return result

    async def _transcript_names(self, generation: str) -> list[str]:
        names: list[str] = []
        root = f"{self._generations.path(generation)}/transcript"
        waiting = [root]
        while waiting:
            for path in await self.folder.folders(waiting.pop()):
                if path.endswith("="):
                    waiting.append(path)
                elif (name := decode_name(path.removeprefix(f"{root}/"))) is not None:
                    names.append(name)
        return names

    async def _has_messages(self, generation: str, name: str) -> bool:
        snapshot = await self._transcript(generation, name).snapshot()
        return snapshot.upto > snapshot.removed

    async def _read(self, path: str, version: int | None) -> tuple[bytes, FileVersion] | None:
        check_path(path)
        _check_version(version)
        generation = await self._generations.current()
        return await self._files(generation).read(path, version) if generation is not None else None

    def _nothing(self, path: str, version: int | None, default: object) -> object:
        if default is not _MISSING:
            return default
        which = f"no version {version} of " if version is not None else "nothing at "
        raise FileNotFoundError(f"There is {which}the path {path!r} in the memory {self.key!r}. See list_paths().")

    async def _write(
        self, path: str, content: bytes, media: Media, expected_version: int | None, reason: str
    ) -> FileVersion:
        check_path(path)
        if expected_version is not None and expected_version < 0:
            raise ValueError(
                f"expected_version is {expected_version}; give 0 for a path that was never written, or a version."
            )
        return await self._writing(
            lambda generation: self._files(generation).write(
                path, content, media, expected_version=expected_version, reason=reason
            )
        )


def _check_version(version: int | None) -> None:
    if version is not None and version < 1:
        raise ValueError(f"version is {version}; versions are counted from 1.")


def _to_bytes(path: str, content: Content) -> tuple[bytes | None, Media]:
    match content:
        case None:
            return None, "bytes"
        case bytes():
            return content, "bytes"
        case str():
            return content.encode("utf-8", "surrogatepass"), "text"
        case _:
            return dump_value(content, path=path), "json"
