"""Operations on a memory that die by SIGKILL after each of their writes: `die_at_each_step.py FOLDER OPERATION ...`.

For every write there is a memory of its own. One process fills it; the next one dies in the operation, when so many writes are
done, and where the next write is to remove a whole folder, in the middle of that; a third one does the operation again, and a
fourth one says what is there: a line of JSON on standard output. This process itself only forks, since what it would start would
be missing in its children.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from flyteplugins.agents.core import Folder, MemoryStore
from flyteplugins.agents.core._memory import MemoryDeletedError, Retention, Snapshot, import_v0_list

FOLDER, OPERATIONS = sys.argv[1], sys.argv[2:]
SDK = "openai"
COMMIT = "c" * 64
WRITES = ("create", "replace", "delete", "delete_all")
READS = ("read", "read_start", "files", "folders")


def die_after(writes: int) -> None:
    """Have this process do one thing at a time on storage, and die as it begins the next one after so many writes."""
    done = 0
    turn = asyncio.Lock()
    inside: ContextVar[bool] = ContextVar("inside", default=False)

    def dying(name: str) -> Callable[..., Awaitable[Any]]:
        original = getattr(Folder, name)

        async def call(self: Folder, *args: Any, **kwargs: Any) -> Any:
            nonlocal done
            if inside.get():  # one step is made of others
                return await original(self, *args, **kwargs)
            async with turn:
                inside.set(True)
                if done == writes:
                    if name == "delete_all" and (files := await all_files(self, args[0])):
                        await delete(self, files[0].name)
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    return await original(self, *args, **kwargs)
                finally:
                    done += name in WRITES
                    inside.set(False)

        return call

    all_files, delete = Folder.files, Folder.delete
    for name in (*WRITES, *READS):
        setattr(Folder, name, dying(name))


async def fill(store: MemoryStore, v0: Folder) -> None:
    await store.append(SDK, ["first question", "first answer"])
    await store.append(SDK, ["second question", "second answer"])
    await store.write_text("a", "old a")
    await store.write_text("b", "old b")
    await v0.create("messages.json", json.dumps(["from Flyte's own store"]).encode())


async def operate(operation: str, store: MemoryStore, v0: Folder) -> None:
    match operation:
        case "commit":
            start = Snapshot()
            await store.commit(SDK, start, COMMIT, ["question", "answer"], files={"a": "new a", "b": None})
        case "first commit":
            await store.commit("adk", Snapshot(), COMMIT, ["question", "answer"])
        case "compact":
            seen = await store.snapshot(SDK)
            if seen.compacted is None:
                await store.compact(SDK, ["summary"], seen)
        case "retain":
            await store.apply_retention(Retention(max_runs=1, max_versions=1))
        case "import":
            await store.import_v0("langgraph", import_v0_list, paths=("messages.json",), folder=v0)
        case "delete":
            await store.delete_all()
        case "purge":
            await store.delete_path("a", purge=True)


async def tell(store: MemoryStore) -> dict[str, Any]:
    told: dict[str, Any] = {"files": await store.folder.names()}
    for name in (SDK, "adk", "langgraph"):
        told[name] = await store.messages(name)
    told["original"] = await store.messages(SDK, original=True)
    told["paths"] = {path: await store.read_text(path) for path in await store.list_paths()}
    told["versions"] = {path: len(await store.versions(path)) for path in ("a", "b")}
    told["contents"] = [(await store.folder.read(name)).decode() for name in told["files"]]
    return told


def in_a_process(work: Callable[[], Coroutine[Any, Any, Any]], output: int | None = None) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            result = asyncio.run(work())
            if output is not None:
                os.write(output, json.dumps(result).encode() + b"\n")
            status = 0
        except MemoryDeletedError as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def try_step(operation: str, writes: int) -> bool:
    """Whether the operation does so many writes, and was killed after them."""
    store = MemoryStore("ada", Folder.at(FOLDER, operation, str(writes), "ada"))
    v0 = Folder.at(FOLDER, operation, str(writes), "v0")

    async def again() -> None:
        await operate(operation, store, v0)

    async def dying() -> None:
        die_after(writes)
        await again()

    async def told() -> dict[str, Any]:
        return {"operation": operation, "writes": writes} | await tell(store)

    if operation != "first commit" and in_a_process(lambda: fill(store, v0)) != 0:
        sys.exit("the memory was not filled")
    ended = in_a_process(dying)
    if ended not in (0, -signal.SIGKILL):
        sys.exit(f"{operation} ended with {ended}, and not by the kill, after {writes} writes")
    if in_a_process(again) != 0:
        sys.exit(f"{operation} failed after a kill after {writes} writes")
    if in_a_process(told, output=1) != 0:
        sys.exit(f"the memory cannot be read after a kill of {operation} after {writes} writes")
    return ended != 0


if __name__ == "__main__":
    for name in OPERATIONS:
        step = 0
        while try_step(name, step):
            step += 1
