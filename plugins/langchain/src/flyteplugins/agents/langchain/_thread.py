"""A thread of a checkpointer, as an agent run found it.

A retry starts from where the first attempt started, and not from where that one died: the turns that are on record answer the
same requests again. So what a run reads of a thread before it writes to it is a leaf: which checkpoint, and what was pending at
it. What a dead attempt wrote after that stays in the thread's history, beside the branch that the retry makes; the retry's is the
latest, which is what goes on.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
)
from langgraph.pregel import Pregel

from flyteplugins.agents.core import JSON, AgentRun

from ._bridge import wait_sync
from ._codec import pack, unpack

__all__ = ["PinnedThread", "pin_thread"]


def pin_thread(
    run: AgentRun, graph: Pregel[Any, Any, Any, Any], config: RunnableConfig | None
) -> Pregel[Any, Any, Any, Any]:
    """Have each attempt of a run start from the same state of a thread.

    Args:
        run: The agent run.
        graph: The graph. It stays as it is.
        config: The caller's configuration. Where it names no thread, each attempt has one of its own.

    Returns:
        The graph, or a copy of it with another checkpointer.
    """
    saver = graph.checkpointer
    named = "thread_id" in ((config or {}).get("configurable") or {})
    if run.scope is None or not run.recorder.durable or not named or not isinstance(saver, BaseCheckpointSaver):
        return graph
    return graph.copy({"checkpointer": PinnedThread(saver, run, set())})


@dataclass(frozen=True)
class _Start:
    """What a run found.

    Attributes:
        checkpoint: The checkpoint's id; `None` where there was none.
        writes: What was pending at it.
    """

    checkpoint: str | None
    writes: list[PendingWrite]


class _StartCodec:
    def encode(self, value: _Start) -> JSON:
        return {"checkpoint": value.checkpoint, "writes": pack([tuple(write) for write in value.writes])}

    def decode(self, payload: JSON) -> _Start:
        kept = cast("dict[str, Any]", payload)
        return _Start(kept["checkpoint"], unpack(kept["writes"]))


class PinnedThread(BaseCheckpointSaver[Any]):
    """A checkpointer whose thread is, until this attempt writes to it, as the first attempt found it.

    Args:
        inner: The caller's checkpointer, which does the work.
        run: The agent run.
        moved: The graphs of the thread that this attempt has written to.
    """

    def __init__(self, inner: BaseCheckpointSaver[Any], run: AgentRun, moved: set[tuple[str, str]]) -> None:
        super().__init__(serde=inner.serde)
        self._inner = inner
        self._run = run
        self._moved = moved
        self._takes_path = "task_path" in inspect.signature(inner.aput_writes).parameters

    @property
    def config_specs(self) -> list[Any]:
        """The caller's checkpointer's."""
        return self._inner.config_specs

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[Any]:
        """The same with a checkpointer that reads more classes."""
        return PinnedThread(self._inner.with_allowlist(extra_allowlist), self._run, self._moved)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The caller's checkpointer's."""
        return self._inner.get_next_version(current, channel)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read a checkpoint: until this attempt has written, as the first attempt found it."""
        place = _place(config)
        if place in self._moved:
            return await self._inner.aget_tuple(config)
        chosen = get_checkpoint_id(config)

        async def look() -> _Start:
            found = await self._inner.aget_tuple(config)
            if found is None:
                return _Start(None, [])
            return _Start(found.checkpoint["id"], list(found.pending_writes or ()))

        fields = {"thread": place[0], "namespace": place[1], "checkpoint": chosen or ""}
        recorded = await self._run.recorder.record("memory", fields, look, codec=_StartCodec())
        start = recorded.value
        if start.checkpoint is None:
            return None
        exact = cast(
            RunnableConfig,
            {**config, "configurable": {**config["configurable"], "checkpoint_id": start.checkpoint}},
        )
        found = await self._inner.aget_tuple(exact)
        if found is None:
            # It was in the memory of a process that is gone. What made it was made again in this one, or there is nothing.
            return await self._inner.aget_tuple(config)
        named: RunnableConfig = {
            "configurable": {"thread_id": place[0], "checkpoint_ns": place[1], "checkpoint_id": start.checkpoint}
        }
        return found._replace(config=config if chosen else named, pending_writes=start.writes)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """What the caller's checkpointer lists."""
        async for one in self._inner.alist(config, filter=filter, before=before, limit=limit):
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Have the caller's checkpointer keep a checkpoint."""
        self._moved.add(_place(config))
        return await self._inner.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Have the caller's checkpointer keep what a task wrote."""
        self._moved.add(_place(config))
        await self._inner.aput_writes(config, writes, task_id, *([task_path] if self._takes_path else []))

    async def adelete_thread(self, thread_id: str) -> None:
        """Have the caller's checkpointer remove a thread."""
        await self._inner.adelete_thread(thread_id)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the caller's checkpointer knows of a channel's changes."""
        return await self._inner.aget_delta_channel_history(config=config, channels=channels)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`aget_tuple` for sync callers, by the sync methods of the caller's checkpointer once this attempt has written."""
        if _place(config) in self._moved:
            return self._inner.get_tuple(config)
        return wait_sync(lambda _: self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """`alist` for sync callers."""
        yield from self._inner.list(config, filter=filter, before=before, limit=limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`aput` for sync callers."""
        self._moved.add(_place(config))
        return self._inner.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`aput_writes` for sync callers."""
        self._moved.add(_place(config))
        self._inner.put_writes(config, writes, task_id, *([task_path] if self._takes_path else []))

    def delete_thread(self, thread_id: str) -> None:
        """`adelete_thread` for sync callers."""
        self._inner.delete_thread(thread_id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`aget_delta_channel_history` for sync callers."""
        return self._inner.get_delta_channel_history(config=config, channels=channels)


def _place(config: RunnableConfig) -> tuple[str, str]:
    place = config["configurable"]
    return str(place["thread_id"]), place.get("checkpoint_ns") or ""
