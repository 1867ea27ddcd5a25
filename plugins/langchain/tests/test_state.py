"""A checkpointer and a store on Flyte's storage: the public suites, and what they do not ask."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.stores import BaseStore as KeyValueStore
from langchain_tests.integration_tests import BaseStoreAsyncTests, BaseStoreSyncTests
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp

from flyteplugins.agents.core import Folder, RecordError
from flyteplugins.agents.langchain import FlyteCheckpointSaver, FlyteStore, _state_folder


@pytest.fixture(params=["disk", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Where state is: a folder on this machine, or in a store of objects, which lists and deletes in another way."""
    uri = str(tmp_path) if request.param == "disk" else f"memory:///{uuid.uuid4().hex}"
    monkeypatch.setattr(_state_folder, "memory_folder", lambda name, _: Folder.at(uri, name))
    return Folder.at(uri)


async def test_the_checkpointer_passes_langgraphs_conformance_suite(place: Folder) -> None:
    number = 0

    @checkpointer_test(name="FlyteCheckpointSaver")
    async def savers() -> AsyncIterator[FlyteCheckpointSaver]:
        nonlocal number
        number += 1
        yield FlyteCheckpointSaver(f"suite-{number}")

    report = await validate(savers)
    assert {name: result.failures for name, result in report.results.items()} == {one.value: [] for one in Capability}
    assert all(result.passed for result in report.results.values())


class Values(KeyValueStore[str, Any]):
    """The items of one namespace as LangChain's own kind of store, which its standard tests are written for."""

    def __init__(self, store: FlyteStore) -> None:
        self.store = store

    def mget(self, keys: Sequence[str]) -> list[Any]:
        found = self.store.batch([GetOp(("values",), key) for key in keys])
        return [one.value["value"] if one is not None else None for one in found]  # type: ignore[union-attr]

    def mset(self, key_value_pairs: Sequence[tuple[str, Any]]) -> None:
        self.store.batch([PutOp(("values",), key, {"value": value}) for key, value in key_value_pairs])

    def mdelete(self, keys: Sequence[str]) -> None:
        self.store.batch([PutOp(("values",), key, None) for key in keys])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        for item in self.store.search(("values",), limit=1000):
            if item.key.startswith(prefix or ""):
                yield item.key

    async def amget(self, keys: Sequence[str]) -> list[Any]:
        found = await asyncio.gather(*(self.store.aget(("values",), key) for key in keys))
        return [one.value["value"] if one is not None else None for one in found]

    async def amset(self, key_value_pairs: Sequence[tuple[str, Any]]) -> None:
        await self.store.abatch([PutOp(("values",), key, {"value": value}) for key, value in key_value_pairs])

    async def amdelete(self, keys: Sequence[str]) -> None:
        await self.store.abatch([PutOp(("values",), key, None) for key in keys])

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        for item in await self.store.asearch(("values",), limit=1000):
            if item.key.startswith(prefix or ""):
                yield item.key


class TestStore(BaseStoreSyncTests[str]):
    @pytest.fixture
    def kv_store(self) -> KeyValueStore[str, str]:
        return Values(FlyteStore())

    @pytest.fixture
    def three_values(self) -> tuple[str, str, str]:
        return ("one", "two", "three")


class TestStoreAsync(BaseStoreAsyncTests[str]):
    @pytest.fixture
    async def kv_store(self) -> KeyValueStore[str, str]:
        return Values(FlyteStore())

    @pytest.fixture
    def three_values(self) -> tuple[str, str, str]:
        return ("one", "two", "three")


def thread(name: str, id: str | None = None) -> RunnableConfig:
    place = {"thread_id": name, "checkpoint_ns": ""}
    return {"configurable": {**place, "checkpoint_id": id} if id else place}


def put(saver: FlyteCheckpointSaver, config: RunnableConfig, **values: Any) -> RunnableConfig:
    versions = {name: saver.get_next_version(None, None) for name in values}
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    return saver.put(config, checkpoint, {"source": "loop", "step": 1, "run_id": str(values)}, versions)  # type: ignore[arg-type]


def values_of(found: CheckpointTuple | None) -> Any:
    return found.checkpoint["channel_values"] if found is not None else None


def test_the_sync_methods_do_what_the_async_ones_do(place: Folder) -> None:
    saver = FlyteCheckpointSaver()
    first = put(saver, thread("one"), a=1)
    second = put(saver, first, a=2)
    saver.put_writes(second, [("a", b"3"), ("b", [4])], "task")
    saver.put_writes(second, [("a", b"ignored")], "task")
    latest = saver.get_tuple(thread("one"))
    assert latest is not None
    assert values_of(latest) == {"a": 2}
    assert latest.parent_config == first
    assert latest.pending_writes == [("task", "a", b"3"), ("task", "b", [4])]
    assert [values_of(one) for one in saver.list(thread("one"))] == [{"a": 2}, {"a": 1}]
    assert [values_of(one) for one in saver.list(None, before=second)] == [{"a": 1}]
    history = saver.get_delta_channel_history(config=second, channels=["a"])
    assert history == {"a": {"writes": [], "seed": 1}}
    saver.copy_thread("one", "two")
    saver.prune(["two"])
    assert [values_of(one) for one in saver.list(thread("two"))] == [{"a": 2}]
    saver.delete_for_runs([str({"a": 1})])
    assert [values_of(one) for one in saver.list(thread("one"))] == [{"a": 2}]
    saver.delete_thread("one")
    assert saver.get_tuple(thread("one")) is None
    assert values_of(saver.get_tuple(thread("two"))) == {"a": 2}


async def test_a_sync_method_may_block_the_event_loop_that_calls_it(place: Folder) -> None:
    saver = FlyteCheckpointSaver()
    put(saver, thread("one"), a=1)
    assert values_of(saver.get_tuple(thread("one"))) == {"a": 1}


async def test_writers_of_one_thread_at_once_lose_nothing(place: Folder) -> None:
    root = put(FlyteCheckpointSaver(), thread("one"), a=0)

    async def writer(number: int) -> RunnableConfig:
        saver = FlyteCheckpointSaver()
        await saver.aput_writes(root, [("a", number), ("b", number)], f"task {number}")
        version = saver.get_next_version(1, None)
        checkpoint = {**empty_checkpoint(), "channel_values": {"a": number}, "channel_versions": {"a": version}}
        return await saver.aput(root, checkpoint, {"step": number}, {"a": version})  # type: ignore[arg-type]

    made = await asyncio.gather(*(writer(number) for number in range(1, 9)))
    saver = FlyteCheckpointSaver()
    assert [values_of(await saver.aget_tuple(config)) for config in made] == [{"a": number} for number in range(1, 9)]
    found = await saver.aget_tuple(root)
    assert found is not None
    assert sorted(found.pending_writes or []) == sorted(
        (f"task {number}", channel, number) for number in range(1, 9) for channel in "ab"
    )


@pytest.mark.parametrize("name", ["..", "a/b", "A", "a", "ä|:", "x" * 700, ""])
def test_threads_of_any_name_are_apart(place: Folder, name: str) -> None:
    saver = FlyteCheckpointSaver()
    put(saver, thread("other"), a=1)
    put(saver, thread(name), a=name)
    assert values_of(saver.get_tuple(thread(name))) == {"a": name}
    assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"other", name}


def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYTE_AGENTS_HOME", str(tmp_path))
    saver = FlyteCheckpointSaver()
    put(saver, thread("one"), a=1)
    [value] = tmp_path.rglob("*/v-a/*")
    value.write_text("{")
    with pytest.raises(RecordError, match=str(value)):
        saver.get_tuple(thread("one"))
    value.unlink()
    with pytest.raises(RecordError, match="is gone"):
        saver.get_tuple(thread("one"))
    [checkpoint] = tmp_path.rglob("checkpoint.json")
    checkpoint.write_text('{"format": "other/2"}')
    with pytest.raises(RecordError, match="other/2"):
        saver.get_tuple(thread("one"))


async def test_items_are_found_by_namespace_key_and_filter(place: Folder) -> None:
    store = FlyteStore()
    await store.aput(("users", "ada"), "/prefs", {"theme": "dark", "size": 3})
    await store.aput(("users", "Bob"), "..", {"theme": "light", "size": 5})
    await store.aput(("teams",), "x", {"theme": "dark"})
    first = await store.aget(("users", "ada"), "/prefs")
    await store.aput(("users", "ada"), "/prefs", {"theme": "dark", "size": 4})
    again = await store.aget(("users", "ada"), "/prefs")
    assert first is not None
    assert again is not None
    assert (again.value["size"], again.created_at) == (4, first.created_at)
    assert again.updated_at > first.updated_at
    assert [item.key for item in await store.asearch(("users",))] == ["..", "/prefs"]
    assert [item.key for item in await store.asearch(("users",), filter={"size": {"$gt": 4}})] == [".."]
    assert [item.key for item in await store.asearch((), filter={"theme": "dark"}, limit=1, offset=1)] == ["/prefs"]
    assert await store.alist_namespaces(prefix=("users",)) == [("users", "Bob"), ("users", "ada")]
    assert await store.alist_namespaces(max_depth=1) == [("teams",), ("users",)]
    matching = (MatchCondition("suffix", ("ada",)),)
    assert store.batch([ListNamespacesOp(matching)]) == [[("users", "ada")]]
    await store.adelete(("users", "ada"), "/prefs")
    assert await store.aget(("users", "ada"), "/prefs") is None
    assert await FlyteStore("other").asearch(()) == []


async def test_writers_of_one_store_at_once_lose_nothing(place: Folder) -> None:
    async def writer(number: int) -> None:
        await FlyteStore().aput(("all",), f"{number}", {"by": number})
        await FlyteStore().aput(("all",), "same", {"by": number, "text": f"{number}" * 10_000})

    await asyncio.gather(*(writer(number) for number in range(8)))
    items = {item.key: item.value for item in await FlyteStore().asearch(("all",), limit=20)}
    same = items.pop("same")
    assert same["text"] == f"{same['by']}" * 10_000
    assert items == {f"{number}": {"by": number} for number in range(8)}


async def test_what_a_store_cannot_do_is_an_error_that_says_so(place: Folder) -> None:
    store = FlyteStore()
    with pytest.raises(ValueError, match="no index of meanings"):
        await store.asearch((), query="what does she like")
    for value in ({"when": uuid.uuid4()}, {"pair": (1, 2)}, {"number": float("nan")}):
        with pytest.raises((TypeError, ValueError), match=r"'bad'|value|number|when"):
            await store.aput(("n",), "bad", value)
    with pytest.raises(NotImplementedError, match="TTL"):
        await store.aput(("n",), "k", {}, ttl=5)
    assert await store.asearch(()) == []


def test_what_version_1_wrote_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(__file__).parent / "golden", tmp_path / "home")
    monkeypatch.setenv("FLYTE_AGENTS_HOME", str(tmp_path / "home"))
    found = FlyteCheckpointSaver("golden").get_tuple(thread("Ada/1"))
    assert found is not None
    assert found.checkpoint["id"] == "1f0c0000-0000-6000-8000-000000000001"
    assert found.metadata == {"source": "loop", "step": 1}
    assert values_of(found) == {"messages": [HumanMessage("Hi", id="h1"), AIMessage("Hello", id="a1")], "count": 2}
    assert found.pending_writes == [("task-1", "count", 3), ("task-1", "data", b"\x00\x01")]
    item = FlyteStore("golden").get(("users", "Ada"), "/prefs")
    assert item is not None
    assert item.value == {"theme": "dark"}
    assert item.created_at.year == 2026
