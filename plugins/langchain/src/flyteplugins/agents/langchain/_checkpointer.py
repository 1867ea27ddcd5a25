"""A checkpointer on the storage that Flyte uses: a thread goes on in another worker.

Each thread is a folder. A checkpoint is a file, each value of a channel is one, named after its version, and so is each write of
a task. Values come first and the checkpoint that names them last, so a writer that dies leaves a thread as it was. Files have
names that no other writer takes: two writers lose nothing of each other's.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from flyteplugins.agents.core import Folder, RecordError

from ._blocking import run_apart
from ._state_folder import gather_some, join_names, split_path, state_folder, typed_from_json, typed_to_json

__all__ = ["FlyteCheckpointSaver"]

FORMAT = "flyte-agents-checkpoint/1"

_CHECKPOINT = "checkpoint.json"


@dataclass(frozen=True)
class _Kept:
    """One checkpoint as it is kept.

    Attributes:
        thread: The thread.
        namespace: Which graph of the thread's; empty for the outermost.
        id: The checkpoint's id.
        parent: The id of the checkpoint that it follows.
        checkpoint: The checkpoint without its values.
        metadata: Its metadata.
        channels: The channels that have a value.
    """

    thread: str
    namespace: str
    id: str
    parent: str | None
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    channels: tuple[str, ...]

    @property
    def config(self) -> RunnableConfig:
        return _config(self.thread, self.namespace, self.id)

    @property
    def values(self) -> set[str]:
        """The files of its values."""
        versions = self.checkpoint["channel_versions"]
        return {_value_path(self.thread, self.namespace, name, versions[name]) for name in self.channels}


class FlyteCheckpointSaver(BaseCheckpointSaver[str]):
    """Keeps the threads of graphs where Flyte keeps memories, so that each worker of a project finds them.

    In a task that is the storage of the task's organization, project and domain; on a laptop, and outside of a task, it is below
    the user's home, and `FLYTE_AGENTS_HOME` moves it.

    Args:
        name: One path segment: threads of one name are together. Their ids only have to differ within it.
        serde: How values are written; LangGraph's own serializer by default.

    Raises:
        ValueError: The name is not one path segment; raised at the first use.
    """

    def __init__(self, name: str = "langgraph", *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self.name = name

    @property
    def _folder(self) -> Folder:
        return state_folder(self.name, "langgraph-checkpoints")

    # reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read the checkpoint that a configuration names; the latest of the thread where it names none."""
        folder = self._folder
        kept = await self._find(folder, config)
        if kept is None:
            return None
        found = await self._tuple(folder, kept)
        return found._replace(config=config) if get_checkpoint_id(config) else found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """List checkpoints, the latest of each graph of a thread first.

        Args:
            config: Which thread, and which graph and checkpoint of it; all threads by default.
            filter: What their metadata has to have.
            before: Only those before the checkpoint that it names.
            limit: How many at most.
        """
        if limit is not None and limit <= 0:
            return
        folder = self._folder
        end = get_checkpoint_id(before) if before else None
        chosen = get_checkpoint_id(config) if config else None
        given = 0
        for thread, namespace, one in await self._ids(folder, config):
            if (chosen and one != chosen) or (end and one >= end):
                continue
            kept = await self._read(folder, thread, namespace, one)
            if kept is None or (filter and any(kept.metadata.get(name) != value for name, value in filter.items())):
                continue
            yield await self._tuple(folder, kept)
            given += 1
            if given == limit:
                return

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Read what the ancestors of a checkpoint wrote to channels, back to where each has a value."""
        folder = self._folder
        written: dict[str, list[PendingWrite]] = {name: [] for name in channels}
        seeds: dict[str, Any] = {}
        current: _Kept | None = await self._find(folder, config) if channels else None
        while current is not None and current.parent and len(seeds) < len(written):
            current = await self._read(folder, current.thread, current.namespace, current.parent)
            if current is None:
                break
            for write in reversed(await self._writes(folder, current)):
                if write[1] in written and write[1] not in seeds:
                    written[write[1]].append(write)
            wanted = [name for name in current.channels if name in written and name not in seeds]
            seeds |= await self._values(folder, current, wanted)
        result: dict[str, DeltaChannelHistory] = {}
        for name, writes in written.items():
            result[name] = {"writes": writes[::-1]}
            if name in seeds:
                result[name]["seed"] = seeds[name]
        return result

    async def _find(self, folder: Folder, config: RunnableConfig) -> _Kept | None:
        thread, namespace = _place(config)
        chosen = get_checkpoint_id(config)
        for one in [chosen] if chosen else await _checkpoint_ids(folder, thread, namespace):
            if (kept := await self._read(folder, thread, namespace, one)) is not None:
                return kept
        return None

    async def _ids(self, folder: Folder, config: RunnableConfig | None) -> list[tuple[str, str, str]]:
        """Threads, graphs and checkpoints that a configuration may mean."""
        if config is not None and "checkpoint_ns" in config["configurable"]:
            thread, namespace = _place(config)
            return [(thread, namespace, one) for one in await _checkpoint_ids(folder, thread, namespace)]
        below = _thread_path(config["configurable"]["thread_id"]) if config is not None else ""
        found: list[tuple[str, str, str]] = []
        for path in await folder.names(below):
            names = split_path(path.removesuffix(f"/{_CHECKPOINT}")) if path.endswith(f"/{_CHECKPOINT}") else None
            match names:
                case [("t", found_thread), ("n", namespace), ("c", id)]:
                    found.append((found_thread, namespace, id))
        found.sort(key=lambda one: one[2], reverse=True)
        return sorted(found, key=lambda one: one[:2])

    async def _read(self, folder: Folder, thread: str, namespace: str, id: str) -> _Kept | None:
        name = f"{_checkpoint_path(thread, namespace, id)}/{_CHECKPOINT}"
        try:
            data = await folder.read(name)
        except FileNotFoundError:
            return None
        where = folder.location(name)
        try:
            kept = json.loads(data)
            if kept["format"] != FORMAT:
                raise RecordError(f"{where} has the format {kept['format']!r}; this version reads {FORMAT!r}.")
            return _Kept(
                thread=thread,
                namespace=namespace,
                id=id,
                parent=kept["parent"],
                checkpoint=self.serde.loads_typed(typed_from_json(kept["checkpoint"], where)),
                metadata=self.serde.loads_typed(typed_from_json(kept["metadata"], where)),
                channels=tuple(kept["channels"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"{where} is no checkpoint ({type(error).__name__}: {error}). Restore it, or delete the thread {thread!r}."
            ) from error

    async def _tuple(self, folder: Folder, kept: _Kept) -> CheckpointTuple:
        values, writes = await asyncio.gather(self._values(folder, kept, kept.channels), self._writes(folder, kept))
        parent = _config(kept.thread, kept.namespace, kept.parent) if kept.parent else None
        checkpoint = cast(Checkpoint, {**kept.checkpoint, "channel_values": values})
        return CheckpointTuple(kept.config, checkpoint, kept.metadata, parent, writes)

    async def _values(self, folder: Folder, kept: _Kept, channels: Sequence[str]) -> dict[str, Any]:
        versions = kept.checkpoint["channel_versions"]

        async def read(channel: str) -> Any:
            name = _value_path(kept.thread, kept.namespace, channel, versions[channel])
            return self._loads(await _read_part(folder, name), folder.location(name))

        return dict(zip(channels, await gather_some([read(channel) for channel in channels]), strict=True))

    async def _writes(self, folder: Folder, kept: _Kept) -> list[PendingWrite]:
        """What tasks wrote after a checkpoint, in the order in which a graph applies it."""
        below = f"{_checkpoint_path(kept.thread, kept.namespace, kept.id)}/writes"

        async def read(name: str) -> tuple[tuple[str, str, int], PendingWrite]:
            write = await _read_part(folder, name)
            order = writes_sort_key(write["path"], write["task"], write["index"])
            return order, (write["task"], write["channel"], self._loads(write["value"], folder.location(name)))

        found = await gather_some([read(name) for name in await folder.names(below)])
        return [write for _, write in sorted(found, key=lambda one: one[0])]

    def _loads(self, kept: object, where: str) -> Any:
        return self.serde.loads_typed(typed_from_json(kept, where))

    # writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint, with the values of the channels that have a new version."""
        folder = self._folder
        thread, namespace = _place(config)
        values = checkpoint["channel_values"]
        versions = checkpoint["channel_versions"]
        rest: dict[str, Any] = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        changed = {name: version for name, version in new_versions.items() if name in values}
        await gather_some(
            [
                folder.replace(
                    _value_path(thread, namespace, name, version),
                    json.dumps(typed_to_json(self.serde.dumps_typed(values[name]))).encode(),
                )
                for name, version in changed.items()
            ]
        )
        kept = {
            "format": FORMAT,
            "parent": config["configurable"].get("checkpoint_id"),
            "checkpoint": typed_to_json(self.serde.dumps_typed(rest)),
            "metadata": typed_to_json(self.serde.dumps_typed(get_checkpoint_metadata(config, metadata))),
            "channels": sorted(
                name for name in values if name in changed or (name in versions and name not in new_versions)
            ),
        }
        path = _checkpoint_path(thread, namespace, checkpoint["id"])
        await folder.replace(f"{path}/{_CHECKPOINT}", json.dumps(kept).encode())
        return _config(thread, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote after a checkpoint. What it wrote before stays, but for errors and interrupts."""
        folder = self._folder
        thread, namespace = _place(config)
        below = f"{_checkpoint_path(thread, namespace, config['configurable']['checkpoint_id'])}/writes"

        async def put(index: int, channel: str, value: Any) -> None:
            index = WRITES_IDX_MAP.get(channel, index)
            kept = {
                "task": task_id,
                "path": task_path,
                "index": index,
                "channel": channel,
                "value": typed_to_json(self.serde.dumps_typed(value)),
            }
            name = f"{below}/{join_names([('w', task_id), ('i', str(index))])}"
            write = folder.create if index >= 0 else folder.replace
            await write(name, json.dumps(kept).encode())

        await gather_some([put(index, channel, value) for index, (channel, value) in enumerate(writes)])

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:  # noqa: ARG002
        """A version that no other writer of the thread makes as well."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.getrandbits(64):016x}"

    # removing and copying

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread for good."""
        await self._folder.delete_all(_thread_path(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that runs made, and what was written after them.

        Args:
            run_ids: The `run_id`s of their metadata.
        """
        folder = self._folder
        for place in {one[:2] for one in await self._ids(folder, None)}:
            checkpoints = await self._all(folder, *place)
            left = [one for one in checkpoints if one.metadata.get("run_id") not in run_ids]
            await self._keep_only(folder, checkpoints, left)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all that a thread has to another one."""
        folder = self._folder
        source, target = _thread_path(source_thread_id), _thread_path(target_thread_id)
        names = await folder.names(source)
        ends = [name for name in names if name.endswith(f"/{_CHECKPOINT}")]  # last, as they were written
        for some in ([name for name in names if name not in ends], ends):
            await gather_some([_copy(folder, name, target + name.removeprefix(source)) for name in some])

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove what threads do not need to go on.

        Args:
            thread_ids: Which threads.
            strategy: `keep_latest` keeps the latest checkpoint of each graph, and those before it that its channels are built
                from; `delete` keeps none.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy is {strategy!r}; give 'keep_latest' or 'delete'.")
        folder = self._folder
        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
                continue
            for place in {one[:2] for one in await self._ids(folder, {"configurable": {"thread_id": thread}})}:
                checkpoints = await self._all(folder, *place)
                await self._keep_only(folder, checkpoints, _needed(checkpoints))

    async def _all(self, folder: Folder, thread: str, namespace: str) -> list[_Kept]:
        """All checkpoints of a graph of a thread, the latest first."""
        ids = await _checkpoint_ids(folder, thread, namespace)
        found = await gather_some([self._read(folder, thread, namespace, one) for one in ids])
        return [one for one in found if one is not None]

    async def _keep_only(self, folder: Folder, checkpoints: list[_Kept], left: list[_Kept]) -> None:
        gone = [one for one in checkpoints if one not in left]
        for one in gone:
            path = _checkpoint_path(one.thread, one.namespace, one.id)
            await folder.delete(f"{path}/{_CHECKPOINT}")
            await folder.delete_all(path)
        unused = {name for one in gone for name in one.values} - {name for one in left for name in one.values}
        await gather_some([folder.delete(name) for name in sorted(unused)])

    # the same for sync callers

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple` for sync callers."""
        return run_apart(lambda: self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist` for sync callers."""

        async def all_of_them() -> Sequence[CheckpointTuple]:
            return [one async for one in self.alist(config, filter=filter, before=before, limit=limit)]

        yield from run_apart(all_of_them)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput` for sync callers."""
        return run_apart(lambda: self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`aput_writes` for sync callers."""
        run_apart(lambda: self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread` for sync callers."""
        run_apart(lambda: self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`adelete_for_runs` for sync callers."""
        run_apart(lambda: self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`acopy_thread` for sync callers."""
        run_apart(lambda: self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`aprune` for sync callers."""
        run_apart(lambda: self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history` for sync callers."""
        return run_apart(lambda: self.aget_delta_channel_history(config=config, channels=channels))


def _needed(checkpoints: list[_Kept]) -> list[_Kept]:
    """The latest checkpoint, and the ancestors that it needs for channels of which only changes are kept."""
    by_id = {one.id: one for one in checkpoints}
    current: _Kept | None = max(checkpoints, key=lambda one: one.id, default=None)
    needed: list[_Kept] = []
    open_channels = set(current.checkpoint["channel_versions"]) if current is not None else set()
    while current is not None:
        needed.append(current)
        open_channels -= set(current.channels)
        # a channel that was emptied looks like one of which changes are kept: keeping too much is safe
        current = by_id.get(current.parent) if open_channels and current.parent else None
    return needed


def _place(config: RunnableConfig) -> tuple[str, str]:
    place = config["configurable"]
    return str(place["thread_id"]), place.get("checkpoint_ns") or ""


def _config(thread: str, namespace: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": id}}


def _thread_path(thread: str) -> str:
    return join_names([("t", str(thread))])


def _checkpoint_path(thread: str, namespace: str, id: str) -> str:
    return join_names([("t", thread), ("n", namespace), ("c", id)])


def _value_path(thread: str, namespace: str, channel: str, version: str | float) -> str:
    return join_names([("t", thread), ("n", namespace), ("v", channel), ("x", str(version))])


async def _checkpoint_ids(folder: Folder, thread: str, namespace: str) -> list[str]:
    """The checkpoints of a graph of a thread, the latest first. Some may have writes only."""
    below = join_names([("t", thread), ("n", namespace)])
    found: list[str] = []
    for path in await folder.folders(below):
        match split_path(path):
            case [_, _, ("c", id)]:
                found.append(id)
    return sorted(found, reverse=True)


async def _read_part(folder: Folder, name: str) -> Any:
    try:
        return json.loads(await folder.read(name))
    except FileNotFoundError as error:
        raise RecordError(
            f"{folder.location(name)} is gone, which a checkpoint needs. Restore it from a backup, or delete the thread."
        ) from error
    except ValueError as error:
        raise RecordError(f"{folder.location(name)} is no JSON ({error}). Restore it, or delete the thread.") from error


async def _copy(folder: Folder, source: str, target: str) -> None:
    await folder.replace(target, await folder.read(source))
