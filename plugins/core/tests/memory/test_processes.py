"""Many processes at once, and processes that are killed: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flyteplugins.agents.core import Folder, MemoryStore

if TYPE_CHECKING:
    from .conftest import FakeS3

APPS = Path(__file__).parent / "apps"
SDK = "openai"


def run(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> list[Any]:
    """Run a program, and return the JSON lines that it writes."""
    process = subprocess.run(
        [sys.executable, str(APPS / program), *arguments],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


@pytest.mark.parametrize(("place", "processes", "turns"), [("a local disk", 25, 3), ("S3", 12, 2)])
async def test_processes_at_once_lose_nothing_and_keep_calls_and_results_together(
    request: pytest.FixtureRequest, tmp_path: Path, place: str, processes: int, turns: int
) -> None:
    folder: Folder = request.getfixturevalue("s3_folder") if place == "S3" else Folder(str(tmp_path))
    run("append_at_once.py", folder.uri, str(processes), str(turns))
    store = MemoryStore("ada", folder)
    messages: list[Any] = await store.messages(SDK)
    expected = {f"{number}-{turn}" for number in range(processes) for turn in range(turns)}
    assert len(messages) == 2 * len(expected)
    assert {message["call_id"] for message in messages} == expected
    for call, result in zip(messages[0::2], messages[1::2], strict=True):
        assert (call["type"], result["type"]) == ("function_call", "function_call_output")
        assert call["call_id"] == result["call_id"]
    for number in range(processes):  # each one's turns are in its order
        own = [message["call_id"] for message in messages[0::2] if message["call_id"].startswith(f"{number}-")]
        assert own == [f"{number}-{turn}" for turn in range(turns)]
    written = [await store.read_text("last", version=number + 1) for number in range(processes)]
    assert sorted(written, key=int) == [str(number) for number in range(processes)]


OPERATIONS = ("commit", "first commit", "compact", "retain", "delete", "import", "purge")

Told = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module", params=["a local disk", "S3"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What is in a memory after an operation was killed and done again, for each operation and each of its writes."""
    folder, environment = str(tmp_path_factory.mktemp("killed")), {}
    if request.param == "S3":
        s3: FakeS3 = request.getfixturevalue("s3_server")
        folder, environment = f"s3://{s3.bucket}/{uuid.uuid4().hex}", s3.environment
    told: Told = {operation: [] for operation in OPERATIONS}
    for line in run("die_at_each_step.py", folder, *OPERATIONS, environment=environment):
        told[line["operation"]].append(line)
    return told


FIRST = ["first question", "first answer", "second question", "second answer"]


def test_a_commit_that_was_killed_after_any_write_is_there_once_after_the_next_attempt(killed: Told) -> None:
    assert len(killed["commit"]) == 6
    for told in killed["commit"]:
        assert told[SDK] == [*FIRST, "question", "answer"]
        assert told["paths"] == {"a": "new a"}
        assert told["versions"] == {"a": 2, "b": 2}


def test_so_is_the_first_commit_of_a_key(killed: Told) -> None:
    assert len(killed["first commit"]) == 5
    for told in killed["first commit"]:
        assert told["adk"] == ["question", "answer"]
        assert len(told["files"]) == 3


def test_a_compaction_that_was_killed_was_made_or_was_not(killed: Told) -> None:
    assert len(killed["compact"]) == 3
    for told in killed["compact"]:
        assert told[SDK] == ["summary"]
        assert told["original"] == FIRST


def test_a_retention_that_was_killed_is_finished_by_the_next_one(killed: Told) -> None:
    assert len(killed["retain"]) >= 3
    for told in killed["retain"]:
        assert told[SDK] == told["original"] == FIRST[2:]
        assert not [content for content in told["contents"] if "first question" in content]


def test_a_deletion_that_was_killed_is_finished_by_the_next_one(killed: Told) -> None:
    assert len(killed["delete"]) >= 3
    for told in killed["delete"]:
        assert told["files"] == []


def test_an_import_that_was_killed_is_there_once(killed: Told) -> None:
    assert len(killed["import"]) >= 3
    for told in killed["import"]:
        assert told["langgraph"] == ["from Flyte's own store"]
        assert told[SDK] == FIRST


def test_a_purge_that_was_killed_can_be_finished(killed: Told) -> None:
    assert len(killed["purge"]) >= 3
    for told in killed["purge"]:
        assert told["paths"] == {"b": "old b"}
        assert not [content for content in told["contents"] if "old a" in content]


def test_flyte_says_where_the_storage_is_and_how_to_get_in(s3: FakeS3, s3_folder: Folder, tmp_path: Path) -> None:
    """`flyte.init(storage=S3(...))` instead of environment variables."""
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import asyncio, json, flyte, flyte.storage
from flyteplugins.agents.core import Folder, MemoryStore

flyte.init(storage=flyte.storage.S3(
    endpoint={s3.url!r}, access_key_id="test", secret_access_key="test-secret", region="us-east-1"))
store = MemoryStore("ada", Folder({s3_folder.uri!r}))
asyncio.run(store.append("openai", ["hello"]))
"""
    )
    environment = {name: value for name, value in os.environ.items() if name not in s3.environment}
    subprocess.run([sys.executable, str(program)], env=environment, check=True, timeout=60)
    assert asyncio.run(MemoryStore("ada", s3_folder).messages(SDK)) == ["hello"]
