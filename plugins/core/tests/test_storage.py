"""A folder is a directory or a prefix in an object store, with conditional creates."""

# ruff: noqa: ASYNC240 - the files of a test are small

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from obstore.store import MemoryStore, ObjectStore

from flyteplugins.agents.core import Folder, _storage


@pytest.fixture(params=["a local directory", "an object store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if request.param == "a local directory":
        return Folder.at(str(tmp_path), "below")
    store: ObjectStore = MemoryStore()
    monkeypatch.setattr(_storage, "_open", lambda uri: store)
    return Folder.at("s3://bucket/prefix", "below")


async def test_a_file_is_created_once_and_keeps_its_content(folder: Folder) -> None:
    assert await folder.create("a/b", b"first")
    assert not await folder.create("a/b", b"second")
    assert await folder.read("a/b") == b"first"


async def test_of_many_creators_at_once_exactly_one_succeeds(folder: Folder) -> None:
    created = await asyncio.gather(*(folder.create("name", str(number).encode()) for number in range(30)))
    assert created.count(True) == 1
    assert await folder.read("name") == str(created.index(True)).encode()


async def test_a_file_that_is_not_there_is_an_error(folder: Folder) -> None:
    with pytest.raises(FileNotFoundError):
        await folder.read("nothing")
    await folder.create("something", b"")
    with pytest.raises(FileNotFoundError):
        await folder.read("nothing")


async def test_a_listing_has_the_files_below_a_folder_in_order(folder: Folder) -> None:
    assert await folder.names() == []
    assert await folder.names("a") == []
    for name in ("b/2", "a/1", "a/deep/3", "ab/4", "0"):
        await folder.create(name, b"")
    assert await folder.names() == ["0", "a/1", "a/deep/3", "ab/4", "b/2"]
    assert await folder.names("a") == ["a/1", "a/deep/3"]  # and not those in ab
    assert await folder.names("c") == []


async def test_a_deleted_file_is_gone_and_may_be_created_again(folder: Folder) -> None:
    await folder.create("a", b"1")
    await folder.delete("a")
    await folder.delete("a")  # which is no error
    assert await folder.names() == []
    assert await folder.create("a", b"2")


@pytest.mark.parametrize(
    "name", ["a b", "a%20b", "a%b", "a#b", "a?b", "a~b=c", "a*b", "a:b", '"a"', "a|b", "[a]", "ünïcødé", "日本", "a.b"]
)
async def test_odd_names_are_one_file_to_every_operation(folder: Folder, name: str) -> None:
    assert await folder.create(f"{name}/{name}", b"content")
    assert not await folder.create(f"{name}/{name}", b"other")
    assert await folder.read(f"{name}/{name}") == b"content"
    assert await folder.names(name) == await folder.names() == [f"{name}/{name}"]
    await folder.delete(f"{name}/{name}")
    assert await folder.names() == []


@pytest.mark.parametrize(
    ("uri", "parts", "expected"),
    [
        ("/data/run", ["flyte-agents"], "/data/run/flyte-agents"),
        ("/data/run/", ["/a/", "b"], "/data/run/a/b"),
        ("file:///data/my%20run", ["a"], "/data/my run/a"),
        ("s3://bucket/run/", ["a", "b"], "s3://bucket/run/a/b"),
        ("gs://bucket", [], "gs://bucket"),
    ],
)
def test_a_folder_is_named_by_path_or_url(uri: str, parts: list[str], expected: str) -> None:
    folder = Folder.at(uri, *parts)
    assert folder.uri == expected
    assert folder.is_local == ("://" not in expected)
    assert folder.location("file") == f"{expected}/file"


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Folder.at("runs", "a").uri == f"{tmp_path}/runs/a"


async def test_looking_into_a_folder_does_not_make_it(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path), "below")
    assert await folder.names() == []
    with pytest.raises(FileNotFoundError):
        await folder.read("a")
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path), "below")
    await folder.create("a", b"1")
    Path(folder.uri, "a").unlink()
    Path(folder.uri).rmdir()
    assert await folder.names() == []
    assert await folder.create("a", b"2")
    assert await folder.read("a") == b"2"


async def test_a_local_file_is_on_disk_before_create_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}") if os.path.exists("/proc/self/fd") else "?")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    folder = Folder.at(str(tmp_path))
    await folder.create("a/b", b"1")
    assert [Path(path).name for path in synced] == ["b", "a"]  # the content, then its directory entry


async def test_a_folder_serves_several_threads_and_loops(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path))
    created: list[bool] = []

    def create(number: int) -> None:
        created.append(asyncio.run(folder.create(f"file {number % 3}", b"")))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert created.count(True) == 3
    assert len(await folder.names()) == 3
