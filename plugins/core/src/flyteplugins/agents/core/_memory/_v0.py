"""Flyte's own memories, which agents of other implementations keep: read once, on the first use of a key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from .._canonical import JSON
from .._errors import RecordError
from .._scope import TaskScope
from .._storage import Folder

if TYPE_CHECKING:
    from ._store import Content

__all__ = ["V0_FILES", "ImportV0", "V0Content", "import_v0_list", "read_v0", "v0_folder"]

V0_FILES: Mapping[str, tuple[str, ...]] = {
    "openai": ("messages.json",),
    "langchain": ("langchain/history.json",),
    "langgraph": ("langgraph/history.json",),
    "deepagents": ("deepagents/history.json", "deepagents/files.json"),
    "adk": ("google/events.json",),
    "pydantic_ai": ("pydantic_ai/history.json",),
    "claude": ("claude/transcript.json",),
    "mistral": ("mistral/conversation_id",),
}
"""What the adapters of flyteplugins-agents 2.x write into Flyte's own store, by SDK."""


@dataclass(frozen=True)
class V0Content:
    """What an adapter makes of a memory in Flyte's own store.

    Attributes:
        messages: Becomes the first segment of the transcript.
        files: Becomes the first version of each path.
    """

    messages: list[JSON] = field(default_factory=list)
    files: Mapping[str, Content] = field(default_factory=dict)


ImportV0 = Callable[[Mapping[str, bytes]], V0Content]
"""Makes our content of Flyte's files, given by path. A `ValueError` or the like says that they are not what was expected."""


def import_v0_list(files: Mapping[str, bytes]) -> V0Content:
    """Take the items of one JSON list as they are.

    Args:
        files: One file with a JSON list.

    Raises:
        ValueError: There is another number of files, or it holds no JSON.
        TypeError: It holds something else.
    """
    [(path, data)] = files.items()
    items = json.loads(data)
    if not isinstance(items, list):
        raise TypeError(f"{path} holds no list")
    return V0Content(cast("list[JSON]", items))


def v0_folder(key: str, scope: TaskScope) -> Folder | None:
    """Find the folder of a key in Flyte's own store, which need not exist.

    Args:
        key: The memory key.
        scope: The task that asks.

    Returns:
        The folder, or `None` where Flyte does not say where it keeps memories, as on a laptop without an organization.
    """
    from flyte.ai.agents.memory import MemoryStore, MemoryStoreError

    try:
        path = MemoryStore.remote_path_for_key(
            key=key, org=scope.org or None, project=scope.project or None, domain=scope.domain or None
        )
    except MemoryStoreError:
        return None
    return Folder.at(path)


async def read_v0(folder: Folder, paths: tuple[str, ...], convert: ImportV0) -> V0Content:
    """Read a memory of Flyte's own store.

    Args:
        folder: Its folder.
        paths: Which files of it; those that are missing are left out.
        convert: Makes our content of them.

    Returns:
        The content; empty where none of the files is there.

    Raises:
        RecordError: The files are not what the adapter expected.
    """
    files: dict[str, bytes] = {}
    for path in paths:
        try:
            files[path] = await folder.read(path)
        except FileNotFoundError:
            continue
    if not files:
        return V0Content()
    try:
        return convert(files)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        where = ", ".join(folder.location(path) for path in files)
        raise RecordError(
            f"The memory in Flyte's own store cannot be taken over: {where} does not hold what it should "
            f"({type(error).__name__}: {error}). Move it away to begin with an empty memory."
        ) from error
