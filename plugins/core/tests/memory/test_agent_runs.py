"""What an agent run does with its memory, inside a real Flyte task."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flyte.ai.agents.memory
import pytest

from flyteplugins.agents.core import JSON, Folder, MemoryStore, RunMemory
from flyteplugins.agents.core._memory import MemoryDeletedError, Retention, import_v0_list

if TYPE_CHECKING:
    from ..conftest import Attempts, StartAgent

KEY = "ada"
SDK = "openai"

Converse = Callable[..., Awaitable[list[JSON]]]


@pytest.fixture
def converse(start_agent: StartAgent) -> Converse:
    """One agent run that adds to a conversation; returns what it started from."""

    async def run(*messages: JSON, files: Any = None, options: Any = None, **agent: Any) -> list[JSON]:
        async with start_agent(memory_key=KEY, **agent) as started:
            memory = await RunMemory.open(started, KEY, sdk=SDK, **(options or {}))
            await memory.commit(messages, files=files)
            return memory.history

    return run


async def test_the_record_of_what_a_run_starts_from_stays_small(attempt: Attempts, converse: Converse) -> None:
    async def many() -> None:
        store = MemoryStore.for_key(KEY)
        for number in range(200):
            await store.append(SDK, [f"message {number}"])

    async def body() -> int:
        return len(await converse("more"))

    await attempt(many, name=f"{attempt.name}-before")
    assert await attempt(body) == 200
    [record] = attempt.files("memory.")
    assert record.stat().st_size < 2000
    assert await attempt(body) == 200  # read from it


async def test_messages_are_repaired_as_they_are_read_and_kept_as_they_are(
    attempt: Attempts, converse: Converse
) -> None:
    def repair(messages: list[JSON]) -> list[JSON]:
        return [*messages, "repaired"] if messages else messages

    async def body() -> list[Any]:
        await converse("dangling")
        history = await converse(name="another", options={"repair": repair})
        return [history, await MemoryStore.for_key(KEY).messages(SDK)]

    assert await attempt(body) == [["dangling", "repaired"], ["dangling"]]


async def test_files_are_the_same_on_every_attempt_and_written_once(
    attempt: Attempts, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    async def before() -> None:
        store = MemoryStore.for_key(KEY)
        for name in ("a", "b", "c"):
            await store.write_text(f"files/{name}", f"first {name}")
        await store.delete_path("files/c")
        await store.write_text("other", "not a file of the run's")

    async def body() -> dict[str, bytes]:
        async with start_agent(memory_key=KEY) as run:
            memory = await RunMemory.open(run, KEY, sdk=SDK, files="files")
            seen = await memory.read_files()
            await memory.commit([], files={"files/a": "changed", "files/b": None, "files/d": b"\x00"})
            if not attempt.died:
                raise killed
            return seen

    async def after() -> list[Any]:
        store = MemoryStore.for_key(KEY)
        return [
            await store.list_paths("files"),
            await store.read_bytes("files/a"),
            await store.read_bytes("files/d"),
            [len(await store.versions(f"files/{name}")) for name in "abcd"],
        ]

    await attempt(before, name=f"{attempt.name}-before")
    await attempt(body)
    assert await attempt(body) == {"files/a": b"first a", "files/b": b"first b"}
    assert await attempt(after, name=f"{attempt.name}-after") == [
        ["files/a", "files/d"], b"changed", b"\x00", [2, 2, 2, 1]
    ]  # fmt: skip


async def test_a_commit_that_died_between_its_files_and_its_messages_is_finished_behind_what_others_wrote(
    attempt: Attempts, converse: Converse, killed: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Folder.create

    async def die(self: Folder, name: str, data: bytes) -> bool:
        if "/transcript/" in name:
            raise killed
        return await create(self, name, data)

    async def body() -> None:
        await converse("mine", files={"a": "mine"})

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "create", die)
        await attempt(body)

    async def other() -> None:
        await converse("theirs", files={"a": "theirs"})

    async def after() -> list[Any]:
        store = MemoryStore.for_key(KEY)
        return [await store.messages(SDK), await store.read_text("a"), len(await store.versions("a"))]

    await attempt(other, name=f"{attempt.name}-other")
    await attempt(body)
    assert await attempt(after, name=f"{attempt.name}-after") == [["theirs", "mine"], "theirs", 2]


@pytest.mark.parametrize("had_messages", [False, True])
async def test_a_memory_that_was_deleted_meanwhile_is_an_error_to_a_retry_and_not_a_new_start(
    attempt: Attempts, converse: Converse, killed: type[BaseException], had_messages: bool, home: Path
) -> None:
    async def body() -> None:
        await converse("hello")
        raise killed

    async def delete() -> None:
        await MemoryStore.delete(KEY)

    if had_messages:
        await attempt(lambda: converse("before"), name=f"{attempt.name}-before")
    await attempt(body)
    await attempt(delete, name=f"{attempt.name}-delete")
    with pytest.raises(MemoryDeletedError, match="was deleted while this run used it"):
        await attempt(body)
    assert not [path for path in (home / ".flyte").rglob("*") if path.is_file()]
    assert await attempt(lambda: converse("new"), name=f"{attempt.name}-after") == []


async def test_a_retention_does_not_take_from_a_retry_what_its_run_started_from(
    attempt: Attempts, converse: Converse, killed: type[BaseException]
) -> None:
    keep_one = {"retention": Retention(max_runs=1)}
    for number in range(3):
        await attempt(functools.partial(converse, f"message {number}"), name=f"{attempt.name}-{number}")

    async def body() -> list[JSON]:
        history = await converse("mine", options=keep_one)
        if not attempt.died:
            raise killed
        return history

    await attempt(body)
    await attempt(lambda: converse("another's", options=keep_one), name=f"{attempt.name}-another")
    assert await attempt(body) == ["message 2"]
    assert await attempt(lambda: converse(options=keep_one), name=f"{attempt.name}-later") == ["another's"]


async def test_two_runs_of_one_identity_with_edited_instructions_both_keep_their_messages(
    attempt: Attempts, converse: Converse, killed: type[BaseException]
) -> None:
    """They find the record of the same earlier run, and must not both commit as that one."""

    async def body() -> list[JSON]:
        instructions = f"It is {9 + attempt.died} o'clock."
        await converse("one", configuration={"instructions": instructions})
        if not attempt.died:
            raise killed
        await converse("two", configuration={"instructions": instructions})
        await converse("three", configuration={"instructions": "It is 9 o'clock."})
        return await MemoryStore.for_key(KEY).messages(SDK)

    await attempt(body)
    assert await attempt(body) == ["one", "two", "three"]


@pytest.fixture
def v0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Flyte's own store of the key, with messages."""
    folder = tmp_path / "v0"
    folder.mkdir()
    (folder / "messages.json").write_text(json.dumps(["My name is Ada"]))
    monkeypatch.setattr(
        flyte.ai.agents.memory.MemoryStore, "remote_path_for_key", lambda key, org, project, domain: str(folder)
    )
    return folder


async def test_two_first_runs_at_once_both_start_from_flytes_own_memory(
    attempt: Attempts, converse: Converse, v0: Path
) -> None:
    options = {"import_v0": import_v0_list}

    async def body() -> list[Any]:
        histories = await asyncio.gather(
            *(converse(f"said by {name}", name=name, options=options) for name in ("a", "b", "c"))
        )
        (v0 / "messages.json").unlink()
        return [histories, await converse(name="later", options=options)]

    histories, later = await attempt(body)
    assert all(history[0] == "My name is Ada" for history in histories)
    assert later[0] == "My name is Ada"
    assert sorted(later[1:]) == ["said by a", "said by b", "said by c"]


async def test_flytes_own_memory_is_not_read_unless_an_adapter_knows_what_it_holds(
    attempt: Attempts, converse: Converse, v0: Path
) -> None:
    assert await attempt(lambda: converse("hello")) == []
    assert await attempt(lambda: converse(options={"import_v0": import_v0_list}), name=f"{attempt.name}-2") == ["hello"]
