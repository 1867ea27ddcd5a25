"""The audit log: who did what to a memory, when, and to which content."""

from __future__ import annotations

import dataclasses
import hashlib
import time

from flyteplugins.agents.core import Folder, MemoryStore, TaskScope
from flyteplugins.agents.core._memory import Retention, Writer
from flyteplugins.agents.core._scope import AttemptState

SDK = "openai"


def used_by(store: MemoryStore, run: str, action: str, agent: str = "") -> MemoryStore:
    scope = TaskScope("o", "p", "d", run, action, "local", Folder("/nowhere"), "", AttemptState())
    return dataclasses.replace(store, scope=scope, agent=agent)


async def test_every_change_is_in_it_with_its_writer_and_digest(store: MemoryStore) -> None:
    one, two = used_by(store, "run-1", "a0", "a0/agent-0"), used_by(store, "run-2", "a3")
    before = time.time()
    await one.append(SDK, ["hello"])
    await one.write_text("a", "text", reason="told so")
    await two.write_text("a", "other text")
    await two.delete_path("a")
    await two.compact(SDK, ["summary"], await two.snapshot(SDK), reason="long")
    await two.append(SDK, ["more"])
    entries = await store.audit()
    assert [(entry.action, entry.what, entry.number, entry.writer, entry.reason) for entry in entries] == [
        ("append", SDK, 0, Writer("run-1", "a0", "a0/agent-0"), ""),
        ("write", "a", 1, Writer("run-1", "a0", "a0/agent-0"), "told so"),
        ("write", "a", 2, Writer("run-2", "a3"), ""),
        ("delete", "a", 3, Writer("run-2", "a3"), ""),
        ("compact", SDK, 1, Writer("run-2", "a3"), "long"),
        ("append", SDK, 1, Writer("run-2", "a3"), ""),
    ]
    assert entries[0].sha256 == hashlib.sha256(b'["hello"]').hexdigest()
    assert entries[1].sha256 == hashlib.sha256(b"text").hexdigest()
    assert entries[1].size == 4
    assert [entry.when for entry in entries] == sorted(entry.when for entry in entries)
    assert before <= entries[0].when <= entries[-1].when <= time.time()


async def test_an_entry_outlives_its_content_but_its_digest_does_not(store: MemoryStore) -> None:
    for text in ("one", "two"):
        await store.append(SDK, [text])
        await store.write_text("a", text)
    await store.apply_retention(Retention(max_runs=1, max_versions=1))
    entries = {(entry.action, entry.what, entry.number): entry for entry in await store.audit()}
    for old, new in ((("append", SDK, 0), ("append", SDK, 1)), (("write", "a", 1), ("write", "a", 2))):
        assert entries[old].removed is not None  # type: ignore[index]
        assert entries[old].sha256 == ""  # type: ignore[index]
        assert entries[new].removed is None  # type: ignore[index]
        assert entries[new].sha256 != ""  # type: ignore[index]
    assert ("remove", SDK, 1) in entries


async def test_names_of_any_length_and_kind_are_kept_or_cut(store: MemoryStore) -> None:
    odd = used_by(store, "r" * 1000, "ü\n\ud800" * 200, '"\\' * 500)
    await odd.append(SDK, ["x"])
    await odd.write_text("a", "x")
    await odd.delete_path("a")
    for entry in await store.audit():
        assert entry.writer.run.startswith("r" * 200)
        assert entry.writer.action.startswith("ü\n\ud800ü\n")
        assert entry.writer.agent.startswith('"\\"\\')
    assert await store.list_paths() == []
