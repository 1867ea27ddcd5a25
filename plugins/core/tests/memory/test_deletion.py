"""A memory that is deleted leaves nothing, whatever else goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flyteplugins.agents.core import Folder, MemoryStore
from flyteplugins.agents.core._memory import MemoryDeletedError

if TYPE_CHECKING:
    from .conftest import FilesBelow

SDK = "openai"


class Died(BaseException):
    """Ends an operation as a kill would: no clean-up sees it."""


async def fill(store: MemoryStore) -> None:
    for number in range(3):
        await store.append(SDK, [f"message {number}"])
        await store.append("adk", [f"event {number}"])
        await store.write_text(f"notes/{number}", "x" * number)
    await store.compact(SDK, ["summary"], await store.snapshot(SDK))
    await store.delete_path("notes/1")


async def test_nothing_is_left(folder: Folder, store: MemoryStore) -> None:
    await fill(store)
    assert await folder.names()
    await store.delete_all()
    assert await folder.names() == []
    if folder.is_local:
        assert not os.path.exists(folder.uri)  # noqa: ASYNC240 - a test
    await store.delete_all()  # which is no error


async def test_what_a_killed_writer_left_half_written_is_removed_too(tmp_path: Path, files_below: FilesBelow) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path / "ada")))
    await fill(store)
    segment = files_below(tmp_path, "transcript/openai/*.json")[0]
    segment.with_name(f"{segment.name}#1").write_bytes(b"half")  # what the local store writes before it names a file
    await store.delete_all()
    assert os.listdir(tmp_path) == []


async def test_a_later_run_starts_empty(store: MemoryStore) -> None:
    await fill(store)
    await store.delete_all()
    assert await store.messages(SDK) == await store.list_paths() == await store.transcripts() == []
    assert await store.audit() == []
    assert await store.versions("notes/0") == []
    assert await store.append(SDK, ["new"]) == 0
    assert await store.messages(SDK, original=True) == ["new"]
    assert (await store.write_text("notes/0", "new", expected_version=0)).version == 1


async def test_a_run_in_flight_gets_an_error_and_adds_nothing(folder: Folder, store: MemoryStore) -> None:
    await fill(store)
    start = await store.snapshot(SDK)
    await store.delete_all()
    with pytest.raises(MemoryDeletedError, match=r"The memory 'ada' at .* was deleted while this run used it"):
        await store.messages(SDK, start)
    with pytest.raises(MemoryDeletedError, match="Start a new run"):
        await store.commit(SDK, start, "0" * 64, ["late"], files={"a": "late"})
    with pytest.raises(MemoryDeletedError):
        await store.compact(SDK, ["late"], start)
    assert await folder.names() == []
    await store.append(SDK, ["new"])
    with pytest.raises(MemoryDeletedError):
        await store.commit(SDK, start, "0" * 64, ["late"])
    assert await store.messages(SDK) == ["new"]


@pytest.mark.parametrize("operation", ["append", "write", "commit"])
@pytest.mark.parametrize("again", [False, True])
async def test_a_write_that_a_deletion_overtakes_is_told_so_and_leaves_nothing(
    folder: Folder, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, operation: str, again: bool
) -> None:
    """The deletion comes after the writer looked which memory there is, and before it writes."""
    await fill(store)
    start = await store.snapshot(SDK)
    create = Folder.create
    part = "files" if operation == "write" else "transcript"

    async def late(self: Folder, name: str, data: bytes) -> bool:
        if f"/{part}/" in name:
            monkeypatch.setattr(Folder, "create", create)
            await MemoryStore("ada", folder).delete_all()
            if again:
                await MemoryStore("ada", folder).append(SDK, ["new"])
        return await create(self, name, data)

    monkeypatch.setattr(Folder, "create", late)
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: store.append(SDK, ["late"]),
        "write": lambda: store.write_text("late", "late"),
        "commit": lambda: store.commit(SDK, start, "0" * 64, ["late"]),
    }
    writing = writes[operation]()
    with pytest.raises(MemoryDeletedError):
        await writing
    assert await store.messages(SDK) == (["new"] if again else [])
    assert await store.list_paths() == []
    assert not [name for name in await folder.names() if b"late" in await folder.read(name)]
    if not again:
        assert await folder.names() == []


async def test_deletions_and_writers_at_once_leave_a_whole_memory_or_none(folder: Folder, store: MemoryStore) -> None:
    async def write(number: int) -> bool:
        try:
            await store.append(SDK, [f"{number} asks", f"{number} is told"])
            await store.write_text(f"notes/{number}", "x")
        except MemoryDeletedError:
            return False
        return True

    for _ in range(3):
        await asyncio.gather(*(write(number) for number in range(6)), *(store.delete_all() for _ in range(2)))
        messages = await store.messages(SDK)
        assert [str(text).replace("asks", "is told") for text in messages[0::2]] == messages[1::2]
    await store.delete_all()
    assert await folder.names() == []


async def test_what_an_interrupted_deletion_left_is_never_seen_and_goes_with_the_next_use(
    folder: Folder, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(store)

    async def die(self: Folder, below: str) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "delete_all", die)
        with pytest.raises(Died):
            await store.delete_all()
    assert await folder.names()
    assert await store.messages(SDK) == await store.list_paths() == []
    await store.append(SDK, ["new"])
    assert len(await folder.names()) == 2
    assert await store.messages(SDK, original=True) == ["new"]


async def test_one_transcript_can_be_deleted_alone(folder: Folder, store: MemoryStore) -> None:
    await fill(store)
    seen = await store.snapshot(SDK)
    await store.delete_transcript(SDK)
    await store.delete_transcript("never there")
    assert await store.messages(SDK) == await store.messages(SDK, original=True) == []
    assert await store.transcripts() == ["adk"]
    assert not [name for name in await folder.names() if b"message " in await folder.read(name)]
    assert not [name for name in await folder.names() if b"summary" in await folder.read(name)]
    with pytest.raises(MemoryDeletedError, match="removed for good"):
        await store.messages(SDK, seen)
    await store.append(SDK, ["new"])
    assert await store.messages(SDK) == ["new"]
    assert await store.messages("adk") == ["event 0", "event 1", "event 2"]
    assert await store.transcripts() == ["adk", SDK]
