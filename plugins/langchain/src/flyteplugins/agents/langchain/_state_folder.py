"""Where LangGraph's state is on Flyte's storage, and how its names become paths there.

Each file is whole or not there, so a reader beside any number of writers never sees half of one. See `_checkpointer.py` and
`_store.py` for what is in the files.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine, Sequence
from typing import Any

from flyteplugins.agents.core import Folder, RecordError, current_scope, decode_name, encode_name, memory_folder

__all__ = ["gather_some", "join_names", "split_path", "state_folder", "typed_from_json", "typed_to_json"]

_AT_ONCE = 16


def state_folder(name: str, kind: str) -> Folder:
    """Find a folder, which need not exist: beside the memory of the same key.

    Args:
        name: One path segment.
        kind: What is in it.

    Raises:
        ValueError: The name is not one path segment.
        MemoryUnavailableError: Flyte does not say where data is kept.
    """
    return Folder.at(memory_folder(name, current_scope()).uri, kind)


def join_names(names: Sequence[tuple[str, str]]) -> str:
    """Turn names into a path, the same on every storage, from which `split_path` reads them again.

    Args:
        names: Each with a letter that says what it names. It also keeps a name like `..` from being one.
    """
    return "/".join(encode_name(f"{letter}-{name}") for letter, name in names)


def split_path(path: str) -> list[tuple[str, str]] | None:
    """Read the names that a path was made of; `None` where it is not one of ours."""
    found: list[tuple[str, str]] = []
    waiting = ""
    for segment in path.split("/"):
        waiting += segment
        if segment.endswith("="):  # a long name goes on in the folder below
            waiting += "/"
            continue
        name = decode_name(waiting)
        waiting = ""
        if name is None or name[1:2] != "-":
            return None
        found.append((name[0], name[2:]))
    return found if not waiting else None


def typed_to_json(value: tuple[str, bytes]) -> list[str]:
    """What LangGraph's serializer made of a value, as JSON."""
    kind, data = value
    return [kind, base64.b64encode(data).decode()]


def typed_from_json(kept: object, where: str) -> tuple[str, bytes]:
    """Read what `typed_to_json` wrote.

    Args:
        kept: The JSON values.
        where: The file that they are from.

    Raises:
        RecordError: They are something else.
    """
    match kept:
        case [str() as kind, str() as data]:
            return kind, base64.b64decode(data)
    raise RecordError(f"{where} is damaged: it does not hold a value of LangGraph's. Restore it, or delete the thread.")


async def gather_some(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await coroutines, a few at a time, and return their results in order."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Coroutine[Any, Any, Any]) -> Any:
        async with limit:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))
