"""What Flyte's own store has under a key is read once, on the key's first use."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flyte.ai.agents.memory
import pytest

from flyteplugins.agents.core import Folder, MemoryStore, RecordError, TaskScope
from flyteplugins.agents.core._memory import V0_FILES, V0Content, import_v0_list
from flyteplugins.agents.core._scope import AttemptState

SDK = "openai"


@pytest.fixture
def v0(folder: Folder) -> Folder:
    """Flyte's own store of the same key."""
    return Folder.at(folder.uri.rpartition("/")[0], "v0", "ada")


async def keep(v0: Folder, **files: Any) -> None:
    for name, content in files.items():
        await v0.replace(
            name.replace("__", "/"), content if isinstance(content, bytes) else json.dumps(content).encode()
        )


MESSAGES = {"messages.json": ["My name is Ada", "Hello Ada"]}


async def test_its_messages_become_the_first_segment(store: MemoryStore, v0: Folder) -> None:
    await keep(v0, **MESSAGES)
    assert await store.import_v0(SDK, import_v0_list, folder=v0)
    assert not await store.import_v0(SDK, import_v0_list, folder=v0)
    assert await store.messages(SDK) == ["My name is Ada", "Hello Ada"]
    [entry] = await store.audit()
    assert (entry.action, entry.what) == ("import", SDK)


async def test_two_first_users_import_it_once(store: MemoryStore, v0: Folder) -> None:
    await keep(v0, **MESSAGES)
    imported = await asyncio.gather(*(store.import_v0(SDK, import_v0_list, folder=v0) for _ in range(6)))
    assert imported.count(True) == 1
    assert await store.messages(SDK) == ["My name is Ada", "Hello Ada"]


async def test_it_is_not_read_when_there_are_messages(store: MemoryStore, v0: Folder) -> None:
    await store.append(SDK, ["new"])
    await keep(v0, **MESSAGES)
    assert not await store.import_v0(SDK, import_v0_list, folder=v0)
    assert await store.import_v0("another", import_v0_list, paths=("messages.json",), folder=v0)
    assert await store.messages(SDK) == ["new"]


async def test_an_adapter_makes_messages_and_files_of_it(store: MemoryStore, v0: Folder) -> None:
    await keep(
        v0,
        deepagents__history=b"",
        **{"deepagents/history.json": ["hi"], "deepagents/files.json": {"/a.md": "text", "/b": "x"}},
    )

    def convert(files: Mapping[str, bytes]) -> V0Content:
        kept = {path: json.loads(data) for path, data in files.items()}
        return V0Content(
            kept["deepagents/history.json"],
            {f"files{path}": text for path, text in kept["deepagents/files.json"].items()},
        )

    for _ in range(2):
        await store.import_v0("deepagents", convert, folder=v0)
    assert await store.messages("deepagents") == ["hi"]
    assert await store.list_paths("files") == ["files/a.md", "files/b"]
    assert await store.read_text("files/a.md") == "text"
    assert len(await store.versions("files/b")) == 1


async def test_files_alone_are_imported_once_and_may_be_deleted(store: MemoryStore, v0: Folder) -> None:
    await v0.create("mistral/conversation_id", b"conv_1")

    def convert(files: Mapping[str, bytes]) -> V0Content:
        return V0Content([], {"conversation": files["mistral/conversation_id"].decode()})

    await asyncio.gather(*(store.import_v0("mistral", convert, folder=v0) for _ in range(3)))
    assert await store.read_text("conversation") == "conv_1"
    await store.delete_path("conversation")
    await store.import_v0("mistral", convert, folder=v0)
    assert await store.list_paths() == []
    assert len(await store.versions("conversation")) == 2


@pytest.mark.parametrize("content", [b"{not json", {"role": "user"}, 5])
async def test_what_cannot_be_understood_is_an_error_that_names_it(
    store: MemoryStore, v0: Folder, content: Any
) -> None:
    await keep(v0, **{"messages.json": content})
    with pytest.raises(RecordError, match=r"messages\.json does not hold what it should") as caught:
        await store.import_v0(SDK, import_v0_list, folder=v0)
    assert v0.uri in str(caught.value)
    assert await store.messages(SDK) == []


async def test_where_there_is_nothing_nothing_is_imported(store: MemoryStore, v0: Folder) -> None:
    assert not await store.import_v0(SDK, import_v0_list, folder=v0)
    await keep(v0, **{"messages.json": []})
    assert not await store.import_v0(SDK, import_v0_list, folder=v0)
    assert not await store.import_v0(SDK, import_v0_list)  # outside of a task, Flyte's own store is nowhere
    assert await store.folder.names() == []


def test_the_files_of_each_sdk_are_known() -> None:
    assert V0_FILES["openai"] == ("messages.json",)
    assert V0_FILES["deepagents"] == ("deepagents/history.json", "deepagents/files.json")


@pytest.fixture
def used(store: MemoryStore, v0: Folder, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The memory as a task uses it, where Flyte says that its own store is beside it."""

    def path(key: str, org: str | None, project: str | None, domain: str | None) -> str:
        assert (key, org, project, domain) == ("ada", "o", "p", "d")
        return v0.uri

    monkeypatch.setattr(flyte.ai.agents.memory.MemoryStore, "remote_path_for_key", path)
    scope = TaskScope("o", "p", "d", "run", "a0", "remote", Folder("/nowhere"), "", AttemptState())
    return MemoryStore("ada", store.folder, scope)


async def test_a_deleted_memory_is_not_brought_back_by_it(used: MemoryStore, v0: Folder) -> None:
    await keep(v0, **MESSAGES)
    assert await used.import_v0(SDK, import_v0_list)
    await used.delete_all()
    assert not await used.import_v0(SDK, import_v0_list)
    assert await used.messages(SDK) == []
    assert await v0.names() == ["messages.json"]  # it may be in use by others
    assert [await used.folder.read(name) for name in await used.folder.names()] == [b"{}"]


async def test_it_can_be_deleted_as_well(used: MemoryStore, v0: Folder) -> None:
    await keep(v0, **MESSAGES)
    await used.import_v0(SDK, import_v0_list)
    await used.delete_all()
    await used.delete_all(flyte_memory=True)
    assert await v0.names() == await used.folder.names() == []
    if v0.is_local:
        assert not os.path.exists(v0.uri)  # noqa: ASYNC240 - a test


async def test_flytes_own_store_wrote_what_is_imported(tmp_path: Path) -> None:
    """With the real one: its file names and format."""
    theirs = flyte.ai.agents.memory.MemoryStore(key="ada", root=tmp_path / "v0")
    theirs.append({"role": "user", "content": "My name is Ada"})
    await theirs.flush_messages()
    store = MemoryStore("ada", Folder(str(tmp_path / "ours")))
    assert await store.import_v0(SDK, import_v0_list, folder=Folder(str(tmp_path / "v0")))
    assert await store.messages(SDK) == [{"role": "user", "content": "My name is Ada"}]
