"""A compaction: readers get a summary, and the original stays."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from flyteplugins.agents.core import Folder, MemoryStore
from flyteplugins.agents.core._memory import MemoryConflictError

SDK = "openai"


async def talk(store: MemoryStore, *numbers: int) -> None:
    for number in numbers:
        await store.append(SDK, [f"question {number}", f"answer {number}"])


def said(*numbers: int) -> list[Any]:
    return [text for number in numbers for text in (f"question {number}", f"answer {number}")]


async def test_readers_get_the_summary_and_the_original_stays_readable(store: MemoryStore) -> None:
    wish: Any = {"role": "user", "content": "Never book a window seat.", "data": b"\x00\xff"}
    await store.append(SDK, [wish])
    await talk(store, *range(5))
    seen = await store.snapshot(SDK)
    summary: Any = {"role": "user", "content": "Summary: the user never wants a window seat."}
    after = await store.compact(SDK, [summary], seen, reason="long")
    assert after == await store.snapshot(SDK)
    assert await store.messages(SDK) == [summary]
    await talk(store, 5)
    assert await store.messages(SDK) == [summary, *said(5)]
    original = await store.messages(SDK, original=True)
    assert original == [
        wish,
        *said(0, 1, 2, 3, 4, 5),
    ]
    assert await store.messages(SDK, seen) == original[:-2]


async def test_what_others_add_meanwhile_comes_behind_the_summary(store: MemoryStore) -> None:
    await talk(store, 0, 1)
    seen = await store.snapshot(SDK)
    await talk(store, 2)  # while the summary is made
    await asyncio.gather(store.compact(SDK, ["summary"], seen), *(talk(store, number) for number in range(3, 8)))
    messages: list[Any] = await store.messages(SDK)
    assert messages[:3] == ["summary", *said(2)]
    assert sorted(messages[3::2]) == [f"question {number}" for number in range(3, 8)]
    assert [text.replace("question", "answer") for text in messages[1::2]] == messages[2::2]
    assert len(await store.messages(SDK, original=True)) == 16


async def test_the_latest_runs_can_be_kept_as_they_are(store: MemoryStore) -> None:
    await talk(store, 0, 1, 2, 3)
    await store.compact(SDK, ["summary of 0 and 1"], await store.snapshot(SDK), keep_runs=2)
    assert await store.messages(SDK) == ["summary of 0 and 1", *said(2, 3)]


async def test_a_compaction_is_compacted_in_its_turn(store: MemoryStore) -> None:
    await talk(store, 0, 1)
    await store.compact(SDK, ["summary of 0 and 1"], await store.snapshot(SDK))
    await talk(store, 2)
    between = await store.snapshot(SDK)
    await store.compact(SDK, ["summary of 0 to 2"], between)
    assert await store.messages(SDK) == ["summary of 0 to 2"]
    await store.compact(SDK, ["a better one"], await store.snapshot(SDK))
    assert await store.messages(SDK) == ["a better one"]
    assert await store.messages(SDK, between) == ["summary of 0 and 1", *said(2)]
    assert await store.messages(SDK, original=True) == said(0, 1, 2)


async def test_of_two_compactions_of_the_same_messages_one_is_told_so(store: MemoryStore) -> None:
    await talk(store, 0, 1)
    seen = await store.snapshot(SDK)
    outcomes = await asyncio.gather(
        *(store.compact(SDK, [f"summary {number}"], seen) for number in range(4)), return_exceptions=True
    )
    assert sum(isinstance(outcome, MemoryConflictError) for outcome in outcomes) == 3
    [winner] = [number for number, outcome in enumerate(outcomes) if not isinstance(outcome, BaseException)]
    assert await store.messages(SDK) == [f"summary {winner}"]


async def test_of_two_compactions_that_go_differently_far_the_further_one_holds(store: MemoryStore) -> None:
    await talk(store, 0, 1)
    early = await store.snapshot(SDK)
    await talk(store, 2)
    await store.compact(SDK, ["summary of 0 to 2"], await store.snapshot(SDK))
    await store.compact(SDK, ["summary of 0 and 1"], early)  # its maker was slow
    assert await store.messages(SDK) == ["summary of 0 to 2"]
    assert await store.messages(SDK, original=True) == said(0, 1, 2)


async def test_there_has_to_be_something_to_compact(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="has no messages"):
        await store.compact(SDK, ["summary"], await store.snapshot(SDK))
    await talk(store, 0, 1)
    for keep_runs in (2, 3):
        with pytest.raises(ValueError, match="nothing to compact"):
            await store.compact(SDK, ["summary"], await store.snapshot(SDK), keep_runs=keep_runs)
    with pytest.raises(ValueError, match="keep_runs=-1"):
        await store.compact(SDK, ["summary"], await store.snapshot(SDK), keep_runs=-1)
    await store.compact(SDK, ["summary"], await store.snapshot(SDK))
    with pytest.raises(ValueError, match="nothing to compact"):
        await store.compact(SDK, ["summary"], await store.snapshot(SDK), keep_runs=1)


async def test_after_a_compaction_a_reader_reads_the_summary_and_later_segments_only(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(store, *range(30))
    await store.compact(SDK, ["summary"], await store.snapshot(SDK))
    await talk(store, 30)
    names: list[str] = []
    read = Folder.read

    async def noted(self: Folder, name: str) -> bytes:
        names.append(name)
        return await read(self, name)

    monkeypatch.setattr(Folder, "read", noted)
    assert await store.messages(SDK) == ["summary", *said(30)]
    assert len([name for name in names if name.endswith(".json") and "memory.json" not in name]) == 2
    assert len(json.dumps((await store.snapshot(SDK)).to_json())) < 200
