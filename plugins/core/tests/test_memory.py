"""A memory key continues a conversation across runs, each run's messages once."""

# ruff: noqa: ASYNC240 - the files of a test are small

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flyte.ai.agents.memory
import pytest

from flyteplugins.agents.core import (
    JSON,
    Event,
    Folder,
    MemoryNotice,
    MemoryStore,
    RecordError,
    RunMemory,
    TaskScope,
    current_scope,
)
from flyteplugins.agents.core._errors import MemoryUnavailableError
from flyteplugins.agents.core._memory._paths import check_key, memory_folder
from flyteplugins.agents.core._scope import AttemptState

if TYPE_CHECKING:
    from .conftest import Attempts, StartAgent

KEY = "alice"


@pytest.fixture
def converse(start_agent: StartAgent) -> Callable[..., Awaitable[list[JSON]]]:
    """One agent run that adds messages to a conversation; returns what it started from."""

    async def run(*messages: JSON, key: str | None = KEY, sdk: str = "test", **options: Any) -> list[JSON]:
        async with start_agent(memory_key=key, **options) as agent:
            memory = await RunMemory.open(agent, key, sdk=sdk)
            await memory.commit(messages)
            return memory.history

    return run


Converse = Callable[..., Awaitable[list[JSON]]]


def transcript(home: Path, sdk: str = "test") -> list[JSON]:
    files = sorted(home.rglob(f"transcript/{sdk}/*.json"))
    return [message for file in files for message in json.loads(file.read_text())["messages"]]


# a conversation


async def test_a_run_starts_from_what_earlier_runs_said(attempt: Attempts, converse: Converse, home: Path) -> None:
    for number in range(3):
        saying = functools.partial(converse, f"message {number}")
        history = await attempt(saying, name=f"{attempt.name}-{number}")
        assert history == [f"message {earlier}" for earlier in range(number)]
    assert transcript(home) == ["message 0", "message 1", "message 2"]


async def test_each_key_and_each_sdk_has_its_own_conversation(attempt: Attempts, converse: Converse) -> None:
    async def body() -> list[list[JSON]]:
        await converse("hello")
        return [
            await converse("x", key="bob"),
            await converse("x", sdk="other"),
            await converse("x", key=None),
            await converse("x", name="another agent"),
        ]

    assert await attempt(body) == [[], [], [], ["hello"]]


async def test_messages_come_back_as_they_were(attempt: Attempts, converse: Converse) -> None:
    messages: list[JSON] = [{"text": "é \U0001f600", "lone": "\ud83d", "n": [1.5, 2**70, None, True]}, "x" * 3_000_000]

    async def body() -> list[JSON]:
        await converse(*messages)
        return await converse(name="another agent")

    assert await attempt(body) == messages


async def test_nothing_new_writes_nothing(attempt: Attempts, converse: Converse, home: Path) -> None:
    await attempt(lambda: converse())
    assert list(home.rglob("transcript")) == []


async def test_the_bytes_written_do_not_grow_with_the_history(
    attempt: Attempts, converse: Converse, home: Path
) -> None:
    async def body() -> None:
        for number in range(5):
            await converse("x" * 1000, name=f"agent {number}")

    await attempt(body)
    sizes = [file.stat().st_size for file in home.rglob("transcript/test/*.json")]
    assert len(sizes) == 5
    assert max(sizes) - min(sizes) < 20


# attempts


async def test_a_retry_sees_the_history_that_the_first_attempt_saw(
    attempt: Attempts, converse: Converse, start_agent: StartAgent, killed: type[BaseException]
) -> None:
    async def body() -> list[JSON]:
        async with start_agent(memory_key=KEY) as run:
            memory = await RunMemory.open(run, KEY, sdk="test")
            if not attempt.died:
                raise killed
            return memory.history

    await attempt(lambda: converse("before"), name=f"{attempt.name}-before")
    await attempt(body)
    await attempt(lambda: converse("meanwhile"), name=f"{attempt.name}-meanwhile")
    assert await attempt(body) == ["before"]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("crashes", [1, 3])
async def test_crashes_after_the_commit_leave_one_copy(
    attempt: Attempts, converse: Converse, home: Path, killed: type[BaseException], crashes: int, durable: bool
) -> None:
    attempts = iter(range(crashes + 1))

    async def body() -> None:
        await converse("question", "answer", durable=durable)
        if next(attempts) < crashes:
            raise killed

    for _ in range(crashes + 1):
        await attempt(body)
    assert transcript(home) == ["question", "answer"]


async def test_a_crash_before_the_commit_loses_nothing(
    attempt: Attempts, start_agent: StartAgent, home: Path, killed: type[BaseException]
) -> None:
    async def body() -> None:
        async with start_agent(memory_key=KEY) as run:
            memory = await RunMemory.open(run, KEY, sdk="test")
            if not attempt.died:
                raise killed
            await memory.commit(["question", "answer"])

    await attempt(body)
    assert transcript(home) == []
    await attempt(body)
    assert transcript(home) == ["question", "answer"]


async def test_equal_agents_of_different_runs_are_not_taken_for_one(
    attempt: Attempts, start_agent: StartAgent, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster equal actions have equal names in different runs."""

    def scope(run: str) -> TaskScope:
        return TaskScope("org", "p", "d", run, "a0", "local", Folder.at(str(home), run), "", AttemptState())

    for name in ("run-1", "run-2", "run-1"):
        monkeypatch.setattr("flyteplugins.agents.core._run.current_scope", lambda name=name: scope(name))
        async with start_agent(memory_key=KEY) as run:
            memory = await RunMemory.open(run, KEY, sdk="test")
            await memory.commit([run.scope.run if run.scope else ""])
    assert transcript(home) == ["run-1", "run-2"]


async def test_equal_agents_of_one_task_each_add_their_messages(
    attempt: Attempts, converse: Converse, home: Path
) -> None:
    async def body() -> None:
        await converse("one")
        await converse("two")

    await attempt(body)
    await attempt(body)
    assert transcript(home) == ["one", "two"]


async def test_an_edited_run_that_was_committed_is_not_committed_again(
    attempt: Attempts, converse: Converse, home: Path, killed: type[BaseException]
) -> None:
    async def body() -> None:
        await converse("question", "answer", configuration={"instructions": f"It is {9 + attempt.died} o'clock."})
        if not attempt.died:
            raise killed

    await attempt(body)
    await attempt(body)
    assert transcript(home) == ["question", "answer"]


async def test_without_records_a_retry_does_not_start_from_its_own_messages(
    attempt: Attempts, converse: Converse, killed: type[BaseException]
) -> None:
    async def body() -> list[JSON]:
        history = await converse("question", "answer", durable=False)
        if not attempt.died:
            raise killed
        return history

    await attempt(body)
    assert await attempt(body) == []


# many writers


async def test_two_runs_at_once_lose_nothing_and_keep_each_ones_messages_together(
    attempt: Attempts, start_agent: StartAgent, home: Path
) -> None:
    async def one(who: str, both: asyncio.Barrier) -> None:
        async with start_agent(who, memory_key=KEY) as run:
            memory = await RunMemory.open(run, KEY, sdk="test")
            await both.wait()
            await memory.commit([f"{who} asks", f"{who} is told"])

    async def body() -> None:
        both = asyncio.Barrier(2)
        await asyncio.gather(one("a", both), one("b", both))

    await attempt(body)
    messages = transcript(home)
    assert sorted(messages[0::2]) == ["a asks", "b asks"]  # type: ignore[type-var]
    assert [str(question).replace("asks", "is told") for question in messages[0::2]] == messages[1::2]


def test_many_processes_at_once_lose_nothing_and_add_nothing_twice(home: Path) -> None:
    processes = 24
    program = Path(__file__).parent / "apps" / "commit_at_once.py"
    outcome = subprocess.run(
        [sys.executable, str(program), KEY, str(processes)],
        env=os.environ | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    messages = transcript(home)
    numbers = [message["n"] for message in messages if isinstance(message, dict)]
    assert sorted(numbers) == sorted([*range(processes)] * 2)  # type: ignore[type-var]
    assert numbers[0::2] == numbers[1::2]
    assert [message["role"] for message in messages if isinstance(message, dict)] == ["user", "assistant"] * processes


async def test_a_reader_sees_every_writers_messages_in_one_order(
    attempt: Attempts, converse: Converse, home: Path
) -> None:
    async def body() -> tuple[list[JSON], list[JSON]]:
        await asyncio.gather(*(converse(f"message {number}", name=f"agent {number}") for number in range(5)))
        store = MemoryStore.for_key(KEY)
        return await store.messages("test"), await store.messages("test")

    first, second = await attempt(body)
    assert first == second == transcript(home)
    assert sorted(first) == [f"message {number}" for number in range(5)]


# damage


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is damaged"),
        (b"[]", "is damaged"),
        (b"{}", "is damaged"),
        (b'{"format": "flyte-agents-transcript/2", "messages": []}', "'flyte-agents-transcript/2'"),
    ],
)
async def test_a_segment_that_cannot_be_read_is_an_error_that_names_it(
    attempt: Attempts, converse: Converse, home: Path, content: bytes, problem: str
) -> None:
    await attempt(lambda: converse("hello"))
    [segment] = home.rglob("transcript/test/*.json")
    segment.write_bytes(content)
    with pytest.raises(RecordError, match=problem) as caught:
        await attempt(lambda: converse("again"), name=f"{attempt.name}-again")
    assert str(segment) in str(caught.value)


async def test_a_segment_that_is_gone_is_an_error_to_a_run_that_started_from_it(
    attempt: Attempts, converse: Converse, home: Path
) -> None:
    async def body() -> list[JSON]:
        return await converse("hello")

    await attempt(body, name=f"{attempt.name}-before")
    await attempt(body)
    for segment in home.rglob("transcript/test/*.json"):
        segment.unlink()
    with pytest.raises(RecordError, match="is gone"):
        await attempt(body)
    assert await attempt(body, name=f"{attempt.name}-after") == []


async def test_a_file_of_somebody_else_is_no_segment(attempt: Attempts, converse: Converse, home: Path) -> None:
    await attempt(lambda: converse("hello"))
    [segment] = home.rglob("transcript/test/*.json")
    (segment.parent / ".DS_Store").write_bytes(b"\x00")
    assert await attempt(lambda: converse("again"), name=f"{attempt.name}-again") == ["hello"]


# no place for it


async def test_without_a_place_the_run_goes_on_and_says_so(start_agent: StartAgent) -> None:
    heard: list[Event] = []
    async with start_agent(memory_key=KEY, on_event=heard.append) as run:
        memory = await RunMemory.open(run, KEY, sdk="test")
        await memory.commit(["hello"])
    assert memory.history == []
    [notice] = [event for event in heard if isinstance(event, MemoryNotice)]
    assert "outside of a Flyte task" in notice.message
    assert "goes on without memory" in notice.message


async def test_a_caller_can_ask_for_an_error_instead(start_agent: StartAgent) -> None:
    async with start_agent(memory_key=KEY) as run:
        with pytest.raises(MemoryUnavailableError, match="outside of a Flyte task"):
            await RunMemory.open(run, KEY, sdk="test", required=True)


async def test_a_conversation_that_goes_on_says_so(attempt: Attempts, converse: Converse) -> None:
    heard: list[Event] = []
    await attempt(lambda: converse("one", "two"))
    await attempt(lambda: converse("three", on_event=heard.append), name=f"{attempt.name}-again")
    [notice] = [event for event in heard if isinstance(event, MemoryNotice)]
    assert "2 earlier messages" in notice.message


def test_a_store_outside_of_a_task_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="outside of a Flyte task"):
        MemoryStore.for_key(KEY)


# keys and places


@pytest.mark.parametrize("key", ["", " ", ".", "..", "a/b", "a\\b", "a\nb", "\x00", "\u200b", "\ud800"])
async def test_a_key_is_one_path_segment(attempt: Attempts, converse: Converse, key: str) -> None:
    with pytest.raises(ValueError, match=r"memory_key is .*Give one path segment"):
        check_key(key)
    with pytest.raises(ValueError, match="memory_key"):
        await attempt(lambda: converse(key=key))


def test_a_key_is_a_string() -> None:
    with pytest.raises(TypeError, match="memory_key is 5, a int"):
        check_key(5)  # type: ignore[arg-type]


def scope_of(org: str = "", project: str = "", domain: str = "", mode: str = "local") -> TaskScope:
    return TaskScope(org, project, domain, "run", "a0", mode, Folder("/nowhere"), "/raw", AttemptState())


def test_different_keys_and_namespaces_have_different_folders_also_where_case_is_ignored() -> None:
    keys = [
        "alice",
        "Alice",
        "ALICE",
        "al ice",
        "al-ice",
        "älice",
        "a" * 99,
        "a" * 300,
        "a" * 301,
        "_",
        "-",
        "a=b",
        "日本",
    ]
    folders = [memory_folder(key, scope_of()).uri for key in keys]
    folders += [memory_folder("alice", scope_of(org="o")).uri, memory_folder("alice", scope_of(project="o")).uri]
    folders += [memory_folder("alice", scope_of(domain="o")).uri, memory_folder("alice", scope_of(org="_")).uri]
    assert len({folder.lower() for folder in folders}) == len(folders)
    for folder in folders:
        assert all(0 < len(part) <= 100 for part in folder.split("/")[1:])


def test_outside_of_a_task_the_folder_is_that_of_a_task_on_this_laptop() -> None:
    assert memory_folder(KEY, None) == memory_folder(KEY, scope_of())
    with pytest.raises(ValueError, match="one path segment"):
        memory_folder("a/b", None)


async def test_on_a_laptop_memories_live_in_the_users_home(
    attempt: Attempts, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> str:
        return MemoryStore.for_key(KEY).folder.uri

    assert Path(await attempt(body)).is_relative_to(home / ".flyte" / "agents" / "memory")
    monkeypatch.setenv("FLYTE_AGENTS_HOME", str(tmp_path))
    assert Path(await attempt(body)).is_relative_to(tmp_path)


def test_on_a_cluster_memories_are_beside_flytes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    root = "s3://bucket/agents/memory-store"
    monkeypatch.setattr(
        flyte.ai.agents.memory.MemoryStore,
        "remote_path_for_key",
        lambda key, org, project, domain: f"{root}/v0/{org}/{project}/{domain}/{key}",
    )
    folder = memory_folder(KEY, scope_of("o", "p", "d", mode="remote"))
    assert folder.uri == f"{root}/flyteplugins-v1/o/p/d/alice"
    monkeypatch.setattr(
        flyte.ai.agents.memory.MemoryStore, "remote_path_for_key", lambda key, org, project, domain: f"{root}/v1/{key}"
    )
    with pytest.raises(MemoryUnavailableError, match="not below v0/"):
        memory_folder(KEY, scope_of("o", "p", "d", mode="remote"))


async def test_flytes_own_function_says_where_memories_are_on_a_cluster(attempt: Attempts) -> None:
    """The real one, from inside a task: what it says has the form that we take apart."""

    async def body() -> str:
        scope = current_scope()
        assert scope is not None
        return memory_folder(KEY, scope_of("o", "p", "d", mode="remote")).uri

    assert (await attempt(body)).endswith("/agents/memory-store/flyteplugins-v1/o/p/d/alice")


def test_where_flyte_knows_no_place_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: str) -> str:
        raise ValueError("Raw data path has not been set in the context.")

    monkeypatch.setattr(flyte.ai.agents.memory.MemoryStore, "remote_path_for_key", nowhere)
    with pytest.raises(MemoryUnavailableError, match="Raw data path has not been set"):
        memory_folder(KEY, scope_of("o", "p", "d", mode="remote"))


async def test_a_home_that_is_no_folder_is_no_place_for_a_memory(
    attempt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLYTE_AGENTS_HOME", str(tmp_path / "file"))

    async def body() -> None:
        MemoryStore.for_key("ada")

    with pytest.raises(MemoryUnavailableError, match="FLYTE_AGENTS_HOME says where memories live"):
        await attempt(body)
