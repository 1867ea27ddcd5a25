"""A transcript is a row of segments that many may add to and all read alike."""

from __future__ import annotations

import asyncio
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flyteplugins.agents.core import JSON, Folder, MemoryStore, RecordError, UnserializableError
from flyteplugins.agents.core._memory import MemoryConflictError, Snapshot

if TYPE_CHECKING:
    from .conftest import FakeS3, FilesBelow

SDK = "openai"


def commit_id(number: int) -> str:
    return f"{number:064x}"


async def test_messages_are_read_in_the_order_in_which_they_were_added(store: MemoryStore) -> None:
    assert await store.messages(SDK) == []
    for number in range(12):
        assert await store.append(SDK, [f"question {number}", f"answer {number}"]) == number
    assert await store.messages(SDK) == [text for n in range(12) for text in (f"question {n}", f"answer {n}")]


@pytest.mark.parametrize(
    "names", [("openai", "adk"), ("a", "a/b", "A", "a=2fb"), ("claude/x/y", "claude/x"), ("日本" * 30, "日本")]
)
async def test_each_transcript_has_its_own_messages(store: MemoryStore, names: tuple[str, ...]) -> None:
    for name in names:
        await store.append(name, [name])
    for name in names:
        assert await store.messages(name) == [name]
    assert await store.transcripts() == sorted(names)


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", ".", "a/..", "x" * 701])
async def test_a_name_that_is_no_path_is_refused(store: MemoryStore, name: str) -> None:
    with pytest.raises(ValueError, match="Give a relative path"):
        await store.append(name, ["x"])


ODD: list[Any] = [
    {"image": b"\x00\xff\x89PNG", "nested": [[b""], {"deep": b"x" * 1000}]},
    {"$bytes": "somebody's own"},
    {"$mapping": {"$bytes": "and again"}},
    {"$anything": 1},
    {"é \U0001f600": "\ud83d lone", "n": [1.5, -0.0, 2**70, None, True, math.inf, -math.inf]},
    "x" * 300_000,
    [],
    {},
    "",
]


async def test_messages_come_back_as_they_were_also_bytes_and_odd_values(store: MemoryStore) -> None:
    await store.append(SDK, ODD)
    await store.append(SDK, [{"nan": math.nan}])
    *messages, last = await store.messages(SDK)
    assert messages == ODD
    assert isinstance(last, dict)
    assert math.isnan(last["nan"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"content": [{"tool": object()}]}, r"messages\[0\]\.content\[0\]\.tool .*builtins\.object"),
        ({"content": {1: "x"}}, r"messages\[0\]\.content .*the key 1 is a int"),
        ({1, 2}, r"messages\[0\] .*builtins\.set"),
    ],
)
async def test_a_message_that_cannot_be_kept_is_an_error_that_names_the_place(
    store: MemoryStore, message: Any, problem: str
) -> None:
    with pytest.raises(UnserializableError, match=problem):
        await store.append(SDK, [message])
    assert await store.messages(SDK) == []


async def test_a_message_that_contains_itself_is_an_error(store: MemoryStore) -> None:
    message: list[Any] = []
    message.append(message)
    with pytest.raises(UnserializableError, match="contains itself"):
        await store.append(SDK, message)


# commits


async def test_a_commit_that_is_repeated_changes_nothing(store: MemoryStore) -> None:
    start = await store.snapshot(SDK)
    assert await store.commit(SDK, start, commit_id(1), ["one"])
    await store.append(SDK, ["meanwhile"])
    assert not await store.commit(SDK, start, commit_id(1), ["one"])
    assert not await store.commit(SDK, await store.snapshot(SDK), commit_id(1), ["one, told another way"])
    assert await store.messages(SDK) == ["one", "meanwhile"]


async def test_a_commit_comes_behind_what_others_added_meanwhile(store: MemoryStore) -> None:
    start = await store.snapshot(SDK)
    await store.append(SDK, ["meanwhile"])
    seen = await store.snapshot(SDK)
    assert await store.commit(SDK, start, commit_id(1), ["one"])
    assert await store.messages(SDK) == ["meanwhile", "one"]
    assert await store.messages(SDK, seen) == ["meanwhile"]


async def test_of_many_attempts_at_once_to_make_one_commit_one_adds_it(store: MemoryStore) -> None:
    start = await store.snapshot(SDK)
    added = await asyncio.gather(
        *(store.commit(SDK, start, commit_id(commit), [commit]) for _ in range(6) for commit in range(3))
    )
    assert added.count(True) == 3
    assert sorted(await store.messages(SDK)) == [0, 1, 2]  # type: ignore[type-var]


async def test_many_at_once_lose_nothing_and_each_ones_messages_stay_together(store: MemoryStore) -> None:
    async def write(number: int) -> None:
        call: dict[str, JSON] = {"type": "function_call", "call_id": str(number)}
        await store.append(SDK, [call, call | {"type": "function_call_output"}])

    await asyncio.gather(*(write(number) for number in range(20)))
    messages: Any = await store.messages(SDK)
    assert sorted(int(message["call_id"]) for message in messages[0::2]) == list(range(20))
    assert [message["call_id"] for message in messages[0::2]] == [message["call_id"] for message in messages[1::2]]


async def test_a_writer_can_ask_that_nobody_was_faster(store: MemoryStore) -> None:
    assert await store.append(SDK, ["one"], expected_runs=0) == 0
    with pytest.raises(MemoryConflictError, match="has not 0 segments"):
        await store.append(SDK, ["two"], expected_runs=0)
    with pytest.raises(MemoryConflictError):
        await store.append(SDK, ["two"], expected_runs=2)
    outcomes = await asyncio.gather(
        *(store.append(SDK, [number], expected_runs=1) for number in range(5)), return_exceptions=True
    )
    assert sum(isinstance(outcome, MemoryConflictError) for outcome in outcomes) == 4
    assert outcomes.count(1) == 1
    assert len(await store.messages(SDK)) == 2


@pytest.mark.parametrize("part", ["transcript", "commits", "memory.json"])
async def test_an_upload_whose_answer_is_lost_is_not_made_twice(s3: FakeS3, s3_folder: Folder, part: str) -> None:
    store = MemoryStore("ada", s3_folder)
    s3.lose_answer_to = part
    start = await store.snapshot(SDK)
    await store.commit(SDK, start, commit_id(1), ["one"])
    assert s3.lose_answer_to == ""
    assert await store.messages(SDK) == ["one"]


# snapshots


async def test_a_snapshot_is_read_alike_whatever_is_added_later(store: MemoryStore) -> None:
    for number in range(3):
        await store.append(SDK, [number])
    seen = await store.snapshot(SDK)
    await store.append(SDK, [3])
    assert await store.messages(SDK, seen) == [0, 1, 2]
    assert await store.messages(SDK, Snapshot.from_json(json.loads(json.dumps(seen.to_json())))) == [0, 1, 2]


async def test_a_snapshot_of_a_long_history_is_written_in_a_few_bytes(tmp_path: Path) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    for number in range(300):
        await store.append(SDK, [number])
    snapshot = await store.snapshot(SDK)
    assert len(json.dumps(snapshot.to_json())) < 200
    assert await store.messages(SDK, snapshot) == list(range(300))


@pytest.mark.parametrize("payload", [["00000000-abc.json"], {}, {"generation": "g", "upto": "x"}, None, 5])
def test_a_snapshot_of_another_version_is_an_error(payload: JSON) -> None:
    with pytest.raises(RecordError, match="not one of this version's"):
        Snapshot.from_json(payload)


# how much is written and read


async def test_adding_to_ten_megabytes_writes_no_more_than_the_new_messages_and_four_kibibytes(
    folder: Folder, request: pytest.FixtureRequest, store: MemoryStore, tmp_path: Path
) -> None:
    for _ in range(10):
        await store.append(SDK, ["x" * 1_000_000])
    new = [{"role": "user", "content": "y" * 5000}, {"role": "assistant", "content": "z" * 5000}]
    before = _stored(tmp_path)
    if not folder.is_local:
        request.getfixturevalue("s3").uploads.clear()
    await store.commit(SDK, await store.snapshot(SDK), commit_id(1), new)  # type: ignore[arg-type]
    if folder.is_local:
        written = sum(size for path, size in _stored(tmp_path).items() if before.get(path) != size)
    else:
        written = sum(size for _, size in request.getfixturevalue("s3").uploads)
    assert 10_000 < written <= len(json.dumps(new)) + 4096


def _stored(folder: Path) -> dict[Path, int]:
    return {Path(top, name): Path(top, name).stat().st_size for top, _, names in os.walk(folder) for name in names}


async def test_a_long_history_is_read_in_parallel_but_not_all_at_once(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        await store.append(SDK, [number])
    reading = most = 0
    read = Folder.read

    async def counted(self: Folder, name: str) -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            await asyncio.sleep(0)
            return await read(self, name)
        finally:
            reading -= 1

    monkeypatch.setattr(Folder, "read", counted)
    assert await store.messages(SDK) == list(range(60))
    assert 2 <= most <= 16


# damage


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is damaged"),
        (b"\n", "is damaged"),
        (b'{"format": "flyte-agents-transcript/2"}', "has the format 'flyte-agents-transcript/2'"),
        (b'{"format": "flyte-agents-transcript/1"}', "is damaged: its head has no"),
    ],
)
async def test_a_segment_that_cannot_be_read_is_named(
    tmp_path: Path, files_below: FilesBelow, content: bytes, problem: str
) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    await store.append(SDK, ["one"])
    [segment] = files_below(tmp_path, "transcript/openai/*.json")
    segment.write_bytes(content)
    with pytest.raises(RecordError, match=problem) as caught:
        await store.messages(SDK)
    assert str(segment) in str(caught.value)


async def test_a_segment_that_was_changed_is_an_error(tmp_path: Path, files_below: FilesBelow) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    await store.append(SDK, ["one"])
    [segment] = files_below(tmp_path, "transcript/openai/*.json")
    segment.write_bytes(segment.read_bytes().replace(b"one", b"two"))
    with pytest.raises(RecordError, match="SHA-256"):
        await store.messages(SDK)


async def test_a_segment_that_is_missing_in_the_middle_is_an_error_and_not_a_shorter_history(
    tmp_path: Path, files_below: FilesBelow
) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    for number in range(3):
        await store.append(SDK, [number])
    files_below(tmp_path, "transcript/openai/*.json")[1].unlink()
    with pytest.raises(RecordError, match=r"00000001\.json is gone"):
        await store.messages(SDK)


async def test_a_memory_of_a_later_version_is_an_error(tmp_path: Path) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    await store.append(SDK, ["one"])
    pointer = tmp_path / "memory.json"
    pointer.write_text(pointer.read_text().replace("flyte-agents-memory/1", "flyte-agents-memory/9"))
    with pytest.raises(RecordError, match="has the format 'flyte-agents-memory/9'"):
        await store.append(SDK, ["two"])
    pointer.write_text("[]")
    with pytest.raises(RecordError, match="damaged: it does not name a generation"):
        await store.append(SDK, ["two"])


async def test_files_of_somebody_else_are_left_alone(tmp_path: Path, files_below: FilesBelow) -> None:
    store = MemoryStore("ada", Folder(str(tmp_path)))
    await store.append(SDK, ["one"])
    await store.write_text("notes.md", "x")
    for folder in {path.parent for path in files_below(tmp_path, "*")}:
        (folder / ".DS_Store").write_bytes(b"\x00")
        (folder / "desktop.ini").write_bytes(b"")
    await store.append(SDK, ["two"])
    assert await store.messages(SDK) == ["one", "two"]
    assert await store.list_paths() == ["notes.md"]
    assert await store.transcripts() == [SDK]
    assert len(await store.audit()) == 3
