"""From the first use of a key to its deletion: a generation of its memory.

Everything of a generation is in one folder with a name of its own, and one small file says which generation the key has. To
delete a memory is to remove that file, and then the folder: what a run in flight still writes goes to a folder that nobody
reads any more, and is removed by the run itself, which sees after each write that its generation has ended.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass

from .._errors import RecordError
from .._storage import Folder
from ._entry import Writer, damaged
from ._errors import MemoryDeletedError

__all__ = ["Generations"]

MEMORY_FORMAT = "flyte-agents-memory/1"

_POINTER = "memory.json"
_PREFIX = "g-"


@dataclass(frozen=True)
class Generations:
    """The generations of one memory key.

    Attributes:
        folder: The key's folder.
        key: The memory key.
    """

    folder: Folder
    key: str

    def path(self, generation: str) -> str:
        """The folder of a generation, below the key's."""
        return f"{_PREFIX}{generation}"

    async def current(self) -> str | None:
        """Which generation the key has now; `None` before its first use and after its deletion.

        Raises:
            RecordError: The file that says it is of another format, or damaged.
        """
        where = self.folder.location(_POINTER)
        try:
            data = await self.folder.read(_POINTER)
        except FileNotFoundError:
            return None
        try:
            pointer = json.loads(data)
            format_ = pointer["format"]
            if format_ != MEMORY_FORMAT:
                raise RecordError(f"{where} has the format {format_!r}; this version reads {MEMORY_FORMAT!r}.")
            return str(pointer["generation"])
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(where, f"it does not name a generation ({type(error).__name__}: {error})") from error

    async def current_or_new(self, writer: Writer) -> str:
        """Which generation the key has now; begins one if it has none.

        Args:
            writer: Who asks.
        """
        while (generation := await self.current()) is None:
            pointer = {
                "format": MEMORY_FORMAT,
                "generation": uuid.uuid4().hex[:16],
                "created": time.time(),
                "run": writer.run,
                "action": writer.action,
            }
            if await self.folder.create(_POINTER, json.dumps(pointer).encode()):
                await self._sweep()
        return generation

    async def confirm(self, generation: str) -> None:
        """Make sure that a generation has not ended. Called after each write to it.

        Raises:
            MemoryDeletedError: It has; what was written to it is removed.
        """
        if await self.current() == generation:
            return
        await self.folder.delete_all(self.path(generation))
        await self.folder.delete_if_empty()
        raise MemoryDeletedError(
            f"The memory {self.key!r} at {self.folder.uri} was deleted while this run used it, and nothing is added to it. "
            "Start a new run: it begins with what is there now."
        )

    async def delete(self) -> None:
        """End the current generation, and remove what is left of every one that has ended."""
        await self.folder.delete(_POINTER)
        await self._sweep()
        await self.folder.delete_if_empty()

    async def _sweep(self) -> None:
        """Remove the folders of generations that have ended.

        The listing comes first: a folder in it belongs to a generation that had begun by then, and one that is not current
        after that has ended, for good.
        """
        found = [path for path in await self.folder.folders() if path.startswith(_PREFIX)]
        if not found:
            return
        current = await self.current()
        for path in found:
            if current is None or path != self.path(current):
                await self.folder.delete_all(path)
