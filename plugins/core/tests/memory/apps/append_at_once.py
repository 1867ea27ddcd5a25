"""Many processes add to one transcript at once: `append_at_once.py FOLDER PROCESSES TURNS`.

Each is an agent run that commits a tool call and its result in each of its turns, and commits every one twice. With more than one
turn each writes to one path, too.
"""

from __future__ import annotations

import asyncio
import os
import sys

from flyteplugins.agents.core import JSON, Folder, MemoryStore

FOLDER, PROCESSES, TURNS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


async def add(number: int, start: int) -> None:
    store = MemoryStore("ada", Folder(FOLDER))
    seen = await store.snapshot("openai")
    await asyncio.to_thread(os.read, start, 1)
    for turn in range(TURNS):
        call: JSON = {"type": "function_call", "call_id": f"{number}-{turn}", "name": "look"}
        result: JSON = {"type": "function_call_output", "call_id": f"{number}-{turn}", "output": "x" * 100}
        for _ in range(2):
            await store.commit("openai", seen, f"{number * TURNS + turn:064x}", [call, result])
    if TURNS > 1:
        await store.write_text("last", str(number))


def main() -> None:
    children: list[int] = []
    start, go = os.pipe()
    for number in range(PROCESSES):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                asyncio.run(add(number, start))
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.write(go, b"x" * PROCESSES)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(any(statuses))


if __name__ == "__main__":
    main()
