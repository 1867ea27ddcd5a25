"""A record is one file that can be read back exactly, or is an error that names it."""

# ruff: noqa: ASYNC240 - the files of a test are small

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flyteplugins.agents.core import JSON, Folder, RecordError
from flyteplugins.agents.core._records import MAX_INLINE_BYTES, Record, RecordFolder, parse_record_name, record_name

KEY = "ab" * 32
RECORD = Record(
    "turn",
    KEY,
    2,
    {"text": "hi", "calls": [1, None, True]},
    fields={"model": "m", "messages": "n"},
    started=1_790_000_000.25,
    seconds=1.5,
    position=3,
    info={"model": "gpt", "usage": {"input_tokens": 3}},
)
SURROGATE = "\ud83d"


@pytest.fixture
def folder(tmp_path: Path) -> RecordFolder:
    return RecordFolder(Folder.at(str(tmp_path)), "a0/run/variant-0")


@pytest.fixture
def file(folder: RecordFolder) -> Path:
    """Where the record is."""
    return Path(folder.root.uri, folder.path, RECORD.name)


def rewrite(file: Path, **changes: Any) -> None:
    """Change the header; a value of `...` removes the entry."""
    line, _, payload = file.read_bytes().partition(b"\n")
    header = {key: value for key, value in (json.loads(line) | changes).items() if value is not ...}
    file.write_bytes(json.dumps(header).encode() + b"\n" + payload)


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "",
        0,
        [],
        {},
        {"text": "Grüße, 日本, \U0001f600", "nul": "\x00", "line": "a\nb\u2028"},
        {"big": 2**70, "small": 5e-324, "negative": -0.0},
        [f"lone {SURROGATE}", "\udc00\ud800"],
        {f"key {SURROGATE}": 1},
        "x" * (MAX_INLINE_BYTES - 2),  # the largest that is kept in the record itself
        "x" * (MAX_INLINE_BYTES - 1),
        "é" * (MAX_INLINE_BYTES // 2),
        f"{SURROGATE}" + "y" * MAX_INLINE_BYTES,
        "z" * (12 * 1024 * 1024),
    ],
    ids=lambda payload: str(payload).encode("ascii", "replace").decode()[:20],
)
@pytest.mark.parametrize("status", ["completed", "failed"])
async def test_a_record_comes_back_as_it_was(folder: RecordFolder, payload: JSON, status: Any) -> None:
    record = replace(RECORD, payload=payload, status=status)
    output, stored = await folder.write(record)
    assert stored is None
    assert await folder.read(record.name) == record
    blank = replace(RECORD, payload=None)
    rebuilt = await folder.from_trace_output(output, blank)
    assert rebuilt == replace(record, started=blank.started)
    assert output == await folder.trace_output(record)
    assert len(output.encode()) < 10 * 1024 * 1024  # what Flyte takes


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_numbers_that_json_lacks_survive(folder: RecordFolder, number: float) -> None:
    output, _ = await folder.write(replace(RECORD, payload=[number]))
    for record in (await folder.read(RECORD.name), await folder.from_trace_output(output, RECORD)):
        assert isinstance(record.payload, list)
        [read] = record.payload
        assert isinstance(read, float)
        assert repr(read) == repr(number)


async def test_a_payload_over_1_mib_is_a_file_of_its_own(folder: RecordFolder) -> None:
    payload = "z" * (12 * 1024 * 1024)
    output, _ = await folder.write(replace(RECORD, payload=payload))
    names = await folder.root.names()
    assert [name.rpartition("/")[2].partition(".")[0] for name in names] == ["payload", "turn"]
    kept = json.loads(output)
    assert kept["uri"] == folder.root.location(names[0])
    assert names[0].endswith(kept["sha256"])
    assert len(output) < 1000
    assert Path(folder.root.location(names[1])).stat().st_size < 1000


async def test_a_taken_address_keeps_its_record_and_the_second_writer_is_given_it(folder: RecordFolder) -> None:
    output, _ = await folder.write(RECORD)
    other = replace(RECORD, payload="another answer")
    output_of_other, stored = await folder.write(other)
    assert stored == RECORD
    assert output_of_other == output
    assert await folder.read(RECORD.name) == RECORD


async def test_a_withdrawn_record_is_gone(folder: RecordFolder) -> None:
    await folder.write(RECORD)
    await folder.delete(RECORD.name)
    assert await folder.root.names() == []
    with pytest.raises(RecordError, match="is gone"):
        await folder.read(RECORD.name)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "first line is not a record's header"),
        (b"\xff\xfe\n{}", "first line is not a record's header"),
        (b"[]\n{}", "first line is not a record's header"),
        (b"{}\n{}", "first line is not a record's header"),
        (b'{"format": "flyte-agents-record/1"}', "ends in its header"),
    ],
)
async def test_a_file_that_is_no_record_is_an_error_that_names_it(
    folder: RecordFolder, file: Path, data: bytes, problem: str
) -> None:
    await folder.write(RECORD)
    file.write_bytes(data)
    with pytest.raises(RecordError, match=problem) as caught:
        await folder.read(RECORD.name)
    assert str(file) in str(caught.value)
    assert "Move it away" in str(caught.value)


@pytest.mark.parametrize("cut", [1, 10, 30])
async def test_a_truncated_record_is_an_error(folder: RecordFolder, file: Path, cut: int) -> None:
    await folder.write(RECORD)
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(RecordError, match="is damaged"):
        await folder.read(RECORD.name)


async def test_a_changed_payload_is_an_error(folder: RecordFolder, file: Path) -> None:
    await folder.write(RECORD)
    file.write_bytes(file.read_bytes().replace(b'"hi"', b'"ho"'))
    with pytest.raises(RecordError, match="SHA-256"):
        await folder.read(RECORD.name)


async def test_a_record_of_another_version_is_refused_by_name(folder: RecordFolder, file: Path) -> None:
    await folder.write(RECORD)
    rewrite(file, format="flyte-agents-record/2")
    with pytest.raises(RecordError, match=r"'flyte-agents-record/2'.*'flyte-agents-record/1'") as caught:
        await folder.read(RECORD.name)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("entry", ["kind", "status", "fields", "position", "info", "sha256", "bytes"])
async def test_a_header_that_lacks_something_is_an_error_that_names_the_record(
    folder: RecordFolder, file: Path, entry: str
) -> None:
    await folder.write(RECORD)
    rewrite(file, **{entry: ...})
    with pytest.raises(RecordError) as caught:
        await folder.read(RECORD.name)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("change", [{"kind": "tool"}, {"key": "cd" * 32}, {"ordinal": 3}], ids=str)
async def test_a_record_under_another_name_is_not_taken_for_that(
    folder: RecordFolder, file: Path, change: dict[str, Any]
) -> None:
    await folder.write(RECORD)
    rewrite(file, **change)
    with pytest.raises(RecordError):
        await folder.read(RECORD.name)


@pytest.mark.parametrize("what", ["gone", "changed"])
async def test_a_payload_file_that_is_gone_or_changed_is_an_error(folder: RecordFolder, what: str) -> None:
    record = replace(RECORD, payload="z" * (MAX_INLINE_BYTES + 1))
    output, _ = await folder.write(record)
    payload = Path(json.loads(output)["uri"])
    if what == "gone":
        payload.unlink()
    else:
        payload.write_bytes(payload.read_bytes()[:-2] + b'y"')
    for reading in (folder.read(record.name), folder.from_trace_output(output, RECORD)):
        with pytest.raises(RecordError, match=payload.name if what == "gone" else "SHA-256"):
            await reading


@pytest.mark.parametrize(
    "output",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"format": "flyte-agents-record/1"}',
        '{"format": "flyte-agents-record/9", "payload": 1}',
    ],
)
async def test_a_trace_output_that_is_none_of_ours_is_an_error_that_names_the_leaf(
    folder: RecordFolder, output: str
) -> None:
    with pytest.raises(RecordError) as caught:
        await folder.from_trace_output(output, RECORD)
    assert f"trace output of {folder.path}/{RECORD.name}" in str(caught.value)


def test_names_of_records_read_back_and_other_names_do_not() -> None:
    assert parse_record_name(record_name("approval", KEY, 12)) == ("approval", KEY, 12)
    for other in (f"payload.{KEY}", f"started.turn.{KEY}.0", f"turn.{KEY}", f"turn.{KEY}.x", f"other.{KEY}.0", ""):
        assert parse_record_name(other) is None
