"""A store of LangGraph's on the storage that Flyte uses: what agents know beyond one thread.

Each item is a file. It is replaced as a whole, so of two writers of one item the later one wins, and a reader gets either's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from flyteplugins.agents.core import Folder, RecordError, jsonable

from ._blocking import run_apart
from ._state_folder import gather_some, join_names, split_path, state_folder

__all__ = ["FlyteStore"]

FORMAT = "flyte-agents-item/1"


class FlyteStore(BaseStore):
    """Keeps items where Flyte keeps memories, so that each worker of a project finds them.

    In a task that is the storage of the task's organization, project and domain; on a laptop, and outside of a task, it is below
    the user's home, and `FLYTE_AGENTS_HOME` moves it. Items are found by namespace, key and filter; there is no search by
    meaning, and no item expires by itself.

    Args:
        name: One path segment: items of one name are together.

    Raises:
        ValueError: The name is not one path segment; raised at the first use.
    """

    __slots__ = ("name",)

    def __init__(self, name: str = "langgraph") -> None:
        self.name = name

    @property
    def _folder(self) -> Folder:
        return state_folder(self.name, "langgraph-items")

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """`abatch` for sync callers."""
        wanted = list(ops)
        return run_apart(lambda: self.abatch(wanted))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do several things at once: all reads see what was there before the writes.

        Args:
            ops: What to do. Of several writes of one item the last counts.

        Returns:
            What each returns.

        Raises:
            TypeError: A value is no mapping, or holds something that is no JSON.
            ValueError: A search asks for a meaning.
        """
        folder = self._folder
        wanted = list(ops)
        puts: dict[str, PutOp] = {}
        for op in wanted:
            if isinstance(op, PutOp):
                puts[_path(op.namespace, op.key)] = op
        contents = {path: _content(op) for path, op in puts.items() if op.value is not None}
        results: list[Result] = await gather_some([self._read(folder, op) for op in wanted])
        await gather_some([_put(folder, path, contents.get(path)) for path in puts])
        return results

    async def _read(self, folder: Folder, op: Op) -> Result:
        match op:
            case GetOp():
                return await _item(folder, op.namespace, op.key)
            case SearchOp():
                if op.query:
                    raise ValueError(
                        f"The store {self.name!r} was searched for {op.query!r}, and it has no index of meanings. Search by "
                        "namespace and filter, or use a store that has one."
                    )
                return await self._search(folder, op)
            case ListNamespacesOp():
                places = {namespace for namespace, _ in await _places(folder, ())}
                return _matched({place: {} for place in sorted(places)}, op)
        return None

    async def _search(self, folder: Folder, op: SearchOp) -> list[SearchItem]:
        places = await _places(folder, op.namespace_prefix)
        found = [one for one in await gather_some([_item(folder, *place) for place in places]) if one is not None]
        items = {(item.namespace, item.key): item for item in found}
        memory = InMemoryStore()  # what a filter means is the SDK's to say
        memory.batch([PutOp(item.namespace, item.key, item.value) for item in found])
        [kept] = memory.batch([op])
        assert isinstance(kept, list)
        matching = [items[one.namespace, one.key] for one in kept if isinstance(one, Item)]
        return [SearchItem(one.namespace, one.key, one.value, one.created_at, one.updated_at) for one in matching]


def _matched(namespaces: dict[tuple[str, ...], dict[str, Any]], op: ListNamespacesOp) -> Result:
    memory = InMemoryStore()
    memory.batch([PutOp(namespace, "any", value) for namespace, value in namespaces.items()])
    return memory.batch([op])[0]


def _path(namespace: Sequence[str], key: str) -> str:
    return join_names([*(("n", part) for part in namespace), ("k", key)]) + ".json"


async def _places(folder: Folder, prefix: Sequence[str]) -> list[tuple[tuple[str, ...], str]]:
    """Where there are items, by namespace and key."""
    found: list[tuple[tuple[str, ...], str]] = []
    for path in await folder.names(join_names([("n", part) for part in prefix])):
        names = split_path(path.removesuffix(".json"))
        if names and names[-1][0] == "k" and all(letter == "n" for letter, _ in names[:-1]):
            found.append((tuple(name for _, name in names[:-1]), names[-1][1]))
    return sorted(found)


async def _item(folder: Folder, namespace: tuple[str, ...], key: str) -> Item | None:
    path = _path(namespace, key)
    try:
        data = await folder.read(path)
    except FileNotFoundError:
        return None
    where = folder.location(path)
    try:
        kept = json.loads(data)
        if kept["format"] != FORMAT:
            raise RecordError(f"{where} has the format {kept['format']!r}; this version reads {FORMAT!r}.")
        created, updated = (datetime.fromisoformat(kept[name]) for name in ("created", "updated"))
        return Item(value=kept["value"], key=key, namespace=namespace, created_at=created, updated_at=updated)
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{where} is no item ({type(error).__name__}: {error}). Restore it from a backup, or put the item anew."
        ) from error


def _content(op: PutOp) -> Any:
    if not isinstance(op.value, dict):
        raise TypeError(f"The value of {op.key!r} in {op.namespace} is a {type(op.value).__qualname__}; give a dict.")
    try:
        text = json.dumps(op.value, allow_nan=False)
    except (TypeError, ValueError) as error:
        jsonable(op.value)  # its error names the path; what it can make JSON of would come back as something else
        raise TypeError(
            f"The value of {op.key!r} in {op.namespace} is not JSON ({error}). Give text, numbers, lists and dicts."
        ) from error
    if json.loads(text) != op.value:
        raise TypeError(
            f"The value of {op.key!r} in {op.namespace} would come back changed: keys have to be strings, and lists no tuples."
        )
    return op.value


async def _put(folder: Folder, path: str, value: Any) -> None:
    if value is None:
        await folder.delete(path)
        return
    now = datetime.now(UTC).isoformat()
    try:
        created = json.loads(await folder.read(path))["created"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # new, or damaged, which a new value mends
        created = now
    kept = {"format": FORMAT, "value": value, "created": created, "updated": now}
    await folder.replace(path, json.dumps(kept).encode())
