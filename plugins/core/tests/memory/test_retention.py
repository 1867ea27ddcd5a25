"""A retention removes for good what is over a limit, and nothing else."""

from __future__ import annotations

import datetime

import pytest
import time_machine

from flyteplugins.agents.core import Folder, MemoryStore
from flyteplugins.agents.core._memory import MemoryDeletedError, Removed, Retention

SDK = "openai"
DAY = datetime.timedelta(days=1)
START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class Died(BaseException):
    """Ends an operation as a kill would: no clean-up sees it."""


async def one_a_day(store: MemoryStore, days: int, first: int = 0) -> None:
    for day in range(first, first + days):
        with time_machine.travel(START + day * DAY):
            await store.append(SDK, [f"day {day}"])


async def holding(folder: Folder, text: str) -> list[str]:
    return [name for name in await folder.names() if text.encode() in await folder.read(name)]


async def test_of_a_transcript_the_latest_runs_are_kept(folder: Folder, store: MemoryStore) -> None:
    await one_a_day(store, 5)
    assert await store.apply_retention(Retention(max_runs=2)) == Removed(runs=3)
    assert await store.messages(SDK) == await store.messages(SDK, original=True) == ["day 3", "day 4"]
    assert [await holding(folder, f"day {day}") != [] for day in range(5)] == [False, False, False, True, True]
    assert await store.apply_retention(Retention(max_runs=2)) == Removed()
    await one_a_day(store, 1, first=5)
    assert await store.apply_retention(Retention(max_runs=2)) == Removed(runs=1)
    assert await store.messages(SDK) == ["day 4", "day 5"]


async def test_old_messages_are_removed(folder: Folder, store: MemoryStore) -> None:
    await one_a_day(store, 25)
    with time_machine.travel(START + 24 * DAY):
        assert await store.apply_retention(Retention(max_age=3.5 * DAY)) == Removed(runs=21)
    assert await store.messages(SDK) == [f"day {day}" for day in range(21, 25)]
    with time_machine.travel(START + 100 * DAY):
        assert await store.apply_retention(Retention(max_age=3.5 * DAY)) == Removed(runs=4)
    assert await store.messages(SDK) == []
    assert await holding(folder, "day ") == []
    await store.append(SDK, ["new"])
    assert await store.messages(SDK) == ["new"]


async def test_a_summary_is_as_old_as_the_newest_run_in_it(folder: Folder, store: MemoryStore) -> None:
    await one_a_day(store, 4)
    await store.compact(SDK, ["a summary"], await store.snapshot(SDK))
    await one_a_day(store, 1, first=4)
    with time_machine.travel(START + 10 * DAY):
        await store.apply_retention(Retention(max_age=7.5 * DAY))
        assert await store.messages(SDK) == ["a summary", "day 4"]
        assert await store.messages(SDK, original=True) == ["day 3", "day 4"]
        assert await holding(folder, "day 2") == []
    with time_machine.travel(START + 11 * DAY):
        await store.apply_retention(Retention(max_age=7.5 * DAY))
        assert await store.messages(SDK) == ["day 4"]
        assert await holding(folder, "a summary") == []


async def test_of_a_path_the_latest_versions_are_kept_and_the_current_one_always(
    folder: Folder, store: MemoryStore
) -> None:
    for number in range(5):
        await store.write_text("a", f"text {number}")
    await store.write_text("b", "only one")
    assert await store.apply_retention(Retention(max_versions=2)) == Removed(versions=3)
    assert await store.read_text("a") == "text 4"
    assert await store.read_text("a", version=4) == "text 3"
    with pytest.raises(MemoryDeletedError, match="removed for good"):
        await store.read_text("a", version=3)
    assert await store.apply_retention(Retention(max_versions=2)) == Removed()
    assert await holding(folder, "text 2") == []
    assert await store.list_paths() == ["a", "b"]
    assert (await store.write_text("a", "text 5")).version == 6


async def test_old_versions_are_removed_and_old_current_contents_stay(folder: Folder, store: MemoryStore) -> None:
    for day in range(3):
        with time_machine.travel(START + day * DAY):
            await store.write_text("a", f"text of day {day}")
            await store.write_text("b", f"note of day {day}")
    with time_machine.travel(START + 3 * DAY):
        await store.delete_path("b")
    with time_machine.travel(START + 10 * DAY):
        assert await store.apply_retention(Retention(max_age=8.5 * DAY)) == Removed(versions=4)
        assert await store.read_text("a", version=3) == await store.read_text("a") == "text of day 2"
        assert await store.read_text("b", version=3) == "note of day 2"
    with time_machine.travel(START + 30 * DAY):
        assert await store.apply_retention(Retention(max_age=8.5 * DAY)) == Removed(versions=1)
        assert await store.read_text("a") == "text of day 2"
        assert await holding(folder, "note") == []
        assert await store.list_paths() == ["a"]


async def test_a_grace_lets_what_is_over_a_limit_live_a_little_longer(store: MemoryStore) -> None:
    await one_a_day(store, 6)
    for day in range(6):
        with time_machine.travel(START + day * DAY):
            await store.write_text("a", f"text {day}")
    with time_machine.travel(START + 5.5 * DAY):
        # 3 and 4 are over the limit of one since day 4 and day 5, 2 since day 3
        assert await store.apply_retention(Retention(max_runs=1), grace=2 * DAY) == Removed(runs=3)
        assert await store.messages(SDK) == ["day 3", "day 4", "day 5"]
        assert await store.apply_retention(Retention(max_age=1.2 * DAY), grace=2 * DAY) == Removed(versions=3)
        assert await store.apply_retention(Retention(max_versions=1), grace=1 * DAY) == Removed(versions=1)
        assert await store.read_text("a", version=5) == "text 4"


async def test_a_reader_whose_messages_are_removed_is_told_so(store: MemoryStore) -> None:
    await one_a_day(store, 3)
    seen = await store.snapshot(SDK)
    await store.apply_retention(Retention(max_runs=1))
    with pytest.raises(MemoryDeletedError, match=r"0000000[01]\.json was removed for good at 20"):
        await store.messages(SDK, seen)


async def test_a_commit_that_was_made_is_still_known_when_its_messages_are_removed(store: MemoryStore) -> None:
    start = await store.snapshot(SDK)
    await store.commit(SDK, start, "1" * 64, ["one"])
    await one_a_day(store, 2)
    await store.apply_retention(Retention(max_runs=1))
    assert not await store.commit(SDK, await store.snapshot(SDK), "1" * 64, ["one"])
    assert await store.messages(SDK) == ["day 1"]


async def test_each_transcript_is_limited_by_itself(store: MemoryStore) -> None:
    for name in ("a", "b"):
        for number in range(3):
            await store.append(name, [number])
    await store.apply_retention(Retention(max_runs=2, max_age=DAY))
    assert await store.messages("a") == await store.messages("b") == [1, 2]


async def test_an_interrupted_removal_is_finished_by_the_next_one(
    folder: Folder, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await one_a_day(store, 5)
    replace, replaced = Folder.replace, 0

    async def die_at_the_third(self: Folder, name: str, data: bytes) -> None:
        nonlocal replaced
        replaced += 1
        if replaced >= 3:
            raise Died
        await replace(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "replace", die_at_the_third)
        with pytest.raises(Died):
            await store.apply_retention(Retention(max_runs=1))
    assert await store.messages(SDK) == ["day 4"]
    await store.apply_retention(Retention(max_runs=1))
    assert [await holding(folder, f"day {day}") for day in range(4)] == [[], [], [], []]


async def test_a_memory_that_was_never_used_has_nothing_to_remove(store: MemoryStore) -> None:
    assert await store.apply_retention(Retention(max_runs=1)) == Removed()


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({}, "sets no limit"),
        ({"max_runs": 0}, "max_runs=0"),
        ({"max_versions": -1}, "max_versions=-1"),
        ({"max_age": datetime.timedelta()}, "positive timedelta"),
    ],
)
def test_limits_that_say_nothing_are_refused(limits: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Retention(**limits)  # type: ignore[arg-type]
