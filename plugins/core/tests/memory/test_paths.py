"""The key-value space: paths with versions, which many may write and all read alike."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyteplugins.agents.core import Folder, MemoryStore, RecordError, UnserializableError
from flyteplugins.agents.core._memory import MemoryConflictError, MemoryDeletedError, Retention
from flyteplugins.agents.core._memory._entry import DELETED_BYTES, REMOVED_BYTES
from flyteplugins.agents.core._memory._names import decode_name, decode_path, encode_name, encode_path

if TYPE_CHECKING:
    from .conftest import FakeS3, FilesBelow


async def test_a_path_holds_text_json_or_bytes(store: MemoryStore) -> None:
    value = {"name": "Ada", "image": b"\x89PNG\x00", "list": [1, 2.5, None, math.inf]}
    await store.write_text("notes/today.md", "é \U0001f600 \ud83d")
    await store.write_json("profile.json", value)  # type: ignore[arg-type]
    await store.write_bytes("image.png", bytes(range(256)) * 1000)
    assert await store.read_text("notes/today.md") == "é \U0001f600 \ud83d"
    assert await store.read_json("profile.json") == value
    assert await store.read_bytes("image.png") == bytes(range(256)) * 1000
    assert await store.list_paths() == ["image.png", "notes/today.md", "profile.json"]


async def test_content_of_any_size_survives(tmp_path: Path, files_below: FilesBelow) -> None:
    """Also that which would make a file of just the size by which a deletion or a removal is known."""
    store = MemoryStore("ada", Folder(str(tmp_path)))
    await store.write_bytes("empty", b"")
    [file] = files_below(tmp_path, "files/**/*")
    around = range(DELETED_BYTES - file.stat().st_size - 10, REMOVED_BYTES - file.stat().st_size + 10)
    for size in [0, 1, *around, DELETED_BYTES, REMOVED_BYTES, 5_000_000]:
        await store.write_bytes(f"{size}", b"x" * size)
        assert await store.read_bytes(f"{size}") == b"x" * size
        assert f"{size}" in await store.list_paths()
    await store.apply_retention(Retention(max_versions=1))
    assert await store.read_bytes(f"{around[0]}") == b"x" * around[0]


async def test_what_is_not_there_is_an_error_or_the_default(store: MemoryStore) -> None:
    for read in (store.read_text, store.read_json, store.read_bytes):
        with pytest.raises(FileNotFoundError, match=r"nothing at the path 'a/b' in the memory 'ada'"):
            await read("a/b")
        assert await read("a/b", default=None) is None
    await store.write_text("a/b", "x")
    with pytest.raises(FileNotFoundError, match="no version 2 of the path 'a/b'"):
        await store.read_text("a/b", version=2)
    with pytest.raises(ValueError, match="versions are counted from 1"):
        await store.read_text("a/b", version=0)


async def test_content_of_another_kind_is_an_error_that_says_what_it_is(store: MemoryStore) -> None:
    await store.write_bytes("a", b"\xff")
    with pytest.raises(ValueError, match="'a' holds bytes, and it is no text"):
        await store.read_text("a")
    with pytest.raises(ValueError, match="'a' holds bytes, and it is no JSON"):
        await store.read_json("a")
    await store.write_text("b", "plain words")
    with pytest.raises(ValueError, match="'b' holds text, and it is no JSON"):
        await store.read_json("b")
    with pytest.raises(UnserializableError, match=r"profile\.json\.a\[1\]"):
        await store.write_json("profile.json", {"a": [1, object()]})  # type: ignore[list-item]
    assert await store.list_paths() == ["a", "b"]


# names

ODD_PATHS = [
    "a", "A", "a b", "a/b", "a/b/c", "a%2Fb", "a=2fb", "a=", "=", "é", "e\u0301", "日本/語" * 10, "日" * 60, "x" * 255,
    "x" * 200,
    "." * 3, "." * 230, ".hidden", "!v", "a/!v/00000000", "00000000", "g-123", "memory.json", "con", "a\\b", "a\nb",
    "\x00", "\ud800",
    "a#1", "a?b&c", "*", '"', "~", "a:b", " ", "a ", "-", "_",
]  # fmt: skip


async def test_odd_paths_are_different_paths_also_where_case_is_ignored(folder: Folder, store: MemoryStore) -> None:
    for path in ODD_PATHS:
        await store.write_text(path, path)
    assert await store.list_paths() == sorted(ODD_PATHS)
    for path in ODD_PATHS:
        assert await store.read_text(path) == path
    names = await folder.names()
    assert len({name.lower() for name in names}) == len(names)


@given(st.lists(st.text(min_size=1).filter(lambda text: "/" not in text and text not in (".", "..")), min_size=1))
def test_a_path_in_storage_is_read_back_as_it_was(segments: list[str]) -> None:
    path = "/".join(segments)
    assert decode_path(encode_path(path)) == path
    assert decode_name(encode_name(path)) == path
    for part in encode_path(path).split("/"):
        assert 0 < len(part) <= 201
        assert part not in (".", "..")
        assert part == part.lower()


@pytest.mark.parametrize("name", ["A", "a=2F", "a=zz", "a=", "é", "=41=", "a=2fb"])
def test_a_name_that_is_not_ours_is_no_path(name: str) -> None:
    assert decode_path(name) is None


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "日" * 100])
async def test_what_is_no_relative_path_is_refused(store: MemoryStore, path: str) -> None:
    for call in (
        store.read_text(path, default=""),
        store.write_text(path, "x"),
        store.delete_path(path),
        store.stat(path),
        store.versions(path),
    ):
        with pytest.raises(ValueError, match="Give a relative path such as"):
            await call
    with pytest.raises(TypeError, match="give a string"):
        await store.read_text(5)  # type: ignore[call-overload]


async def test_a_listing_has_the_paths_of_a_folder(store: MemoryStore) -> None:
    for path in ("a", "a/1", "a/b/2", "ab/3", "c"):
        await store.write_text(path, path)
    assert await store.list_paths("a") == await store.list_paths("a/") == ["a/1", "a/b/2"]
    assert await store.list_paths("a/b") == ["a/b/2"]
    assert await store.list_paths("d") == []
    await store.delete_path("a")
    assert await store.list_paths() == ["a/1", "a/b/2", "ab/3", "c"]


async def test_a_listing_reads_nothing(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        await store.write_text(f"a/{number}", "x")
    await store.delete_path("a/3")

    async def read_start(self: Folder, name: str, size: int) -> bytes:
        raise AssertionError(name)

    monkeypatch.setattr(Folder, "read_start", read_start)
    assert await store.list_paths("a") == ["a/0", "a/1", "a/2", "a/4"]


# versions


async def test_every_version_stays_readable(store: MemoryStore) -> None:
    before = time.time()
    for number in range(12):
        written = await store.write_text("a", f"text {number}", reason=f"because {number}")
        assert written.version == number + 1
    assert await store.read_text("a") == "text 11"
    assert await store.read_text("a", version=1) == "text 0"
    versions = await store.versions("a")
    assert [version.version for version in versions] == list(range(1, 13))
    assert [version.reason for version in versions] == [f"because {number}" for number in range(12)]
    assert versions[3].sha256 == hashlib.sha256(b"text 3").hexdigest()
    assert versions[3].size == 6
    assert before <= versions[0].when <= versions[-1].when <= time.time()
    assert await store.stat("a") == versions[-1]
    assert await store.stat("a", version=2) == versions[1]
    assert await store.stat("a", version=13) is None
    assert await store.stat("b") is None


async def test_two_writers_at_once_write_two_versions_and_all_agree_on_the_later_one(store: MemoryStore) -> None:
    written = await asyncio.gather(*(store.write_text("a", str(number)) for number in range(12)))
    assert sorted(version.version for version in written) == list(range(1, 13))
    last = max(range(12), key=lambda number: written[number].version)
    assert await store.read_text("a") == str(last)
    for number in range(12):
        assert await store.read_text("a", version=written[number].version) == str(number)


async def test_a_writer_that_expects_another_version_writes_nothing(store: MemoryStore) -> None:
    await store.write_text("a", "one", expected_version=0)
    for wrong in (0, 2):
        with pytest.raises(MemoryConflictError, match=f"'a' is at version 1, not at {wrong} as expected"):
            await store.write_text("a", "two", expected_version=wrong)
        with pytest.raises(MemoryConflictError):
            await store.delete_path("a", expected_version=wrong)
    assert (await store.write_json("a", ["two"], expected_version=1)).version == 2
    assert await store.delete_path("a", expected_version=2) is not None
    with pytest.raises(ValueError, match="expected_version is -1"):
        await store.write_text("a", "x", expected_version=-1)
    with pytest.raises(MemoryConflictError, match="is at version 0, not at 3"):
        await store.write_text("new", "x", expected_version=3)


async def test_of_many_who_expect_one_version_one_succeeds(store: MemoryStore) -> None:
    async def count_up() -> None:
        while True:
            seen = await store.stat("counter")
            value: Any = await store.read_json("counter", version=seen.version) if seen else 0
            try:
                await store.write_json("counter", value + 1, expected_version=seen.version if seen else 0)
            except MemoryConflictError:
                continue
            return

    await asyncio.gather(*(count_up() for _ in range(8)))
    assert await store.read_json("counter") == 8
    assert len(await store.versions("counter")) == 8


async def test_a_write_whose_answer_is_lost_is_one_version(s3: FakeS3, s3_folder: Folder) -> None:
    store = MemoryStore("ada", s3_folder)
    for expected in (None, 1):
        s3.lose_answer_to = "files"
        await store.write_text("a", f"after {expected}", expected_version=expected)
        assert s3.lose_answer_to == ""
    assert [version.version for version in await store.versions("a")] == [1, 2]
    assert await store.read_text("a") == "after 1"


# deletions


async def test_a_deletion_persists_and_is_a_version(store: MemoryStore) -> None:
    await store.write_text("a", "one")
    deleted = await store.delete_path("a", reason="no longer true")
    assert deleted is not None
    assert (deleted.version, deleted.deleted, deleted.reason) == (2, True, "no longer true")
    assert await store.list_paths() == []
    assert await store.read_text("a", default="gone") == "gone"
    assert await store.read_text("a", version=1) == "one"
    assert await store.delete_path("a") is None
    assert await store.delete_path("never there") is None
    assert len(await store.versions("a")) == 2
    assert (await store.write_text("a", "three", expected_version=2)).version == 3
    assert await store.read_text("a") == "three"


async def test_a_purge_removes_what_was_there_for_good(folder: Folder, store: MemoryStore) -> None:
    for text in ("secret one", "secret two"):
        await store.write_text("a", text, reason="a secret reason")
    await store.write_text("b", "other")
    await store.delete_path("a", purge=True)
    with pytest.raises(MemoryDeletedError, match="removed for good"):
        await store.read_text("a", version=1)
    assert not [name for name in await folder.names() if b"secret" in await folder.read(name)]
    assert [(v.version, v.deleted, v.removed is not None) for v in await store.versions("a")] == [
        (1, False, True),
        (2, False, True),
        (3, True, False),
    ]
    assert (await store.versions("a"))[0].sha256 == ""
    await store.write_text("a", "again")
    assert await store.read_text("a") == "again"
    await store.delete_path("a")
    await store.delete_path("a", purge=True)  # deleted before, purged now
    with pytest.raises(MemoryDeletedError):
        await store.read_text("a", version=4)
    assert await store.read_text("b") == "other"


async def test_nothing_is_written_by_reading_or_by_deleting_nothing(tmp_path: Path) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    assert await store.list_paths() == []
    assert await store.read_text("a", default="") == ""
    assert await store.messages("openai") == []
    assert await store.delete_path("a") is None
    assert await store.audit() == []
    assert os.listdir(tmp_path) == []


async def test_a_damaged_version_is_named(tmp_path: Path, files_below: FilesBelow) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    await store.write_text("a", "one")
    [file] = files_below(tmp_path, "files/**/*")
    file.write_bytes(file.read_bytes().replace(b"one", b"two"))
    with pytest.raises(RecordError, match="damaged") as caught:
        await store.read_text("a")
    assert str(file) in str(caught.value)


async def test_a_reason_is_short(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="too long"):
        await store.write_text("a", "x", reason="y" * 600)
    assert (await store.write_text("a", "x", reason="ü" * 80)).reason == "ü" * 80
