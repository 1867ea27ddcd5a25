"""Keys: the same wherever and whenever a turn is asked, and another one for each change that the model would see."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from flyteplugins.agents.conformance.models import DUMMY_KEY

from .._adapter import Adapter
from .._checks import check, expect
from .._stage import Stage
from ._dialogue import ANSWER, INSTRUCTIONS, QUESTION, City, options, script, structured, temperature, temperature_at

FIELDS: Mapping[str, str] = {
    "instructions": "instructions",
    "model": "model",
    "tool schema": "tools",
    "output type": "output_type",
    "settings": "settings",
}
"""What a change is called here, and what the log calls the field that it changes."""


def _changes(adapter: Adapter) -> dict[str, dict[str, Any]]:
    return {
        "instructions": {"instructions": "Be long."},
        "model": {"model": f"{adapter.model}-mini"},
        "tool schema": {"tools": [adapter.tool(temperature_at, name="temperature")]},
        "output type": {"output_type": City},
        "settings": dict(adapter.temperature(0.75)),
    }


@check("keys.changes")
async def a_change_asks_again_what_it_changes(stage: Stage) -> None:
    """A change asks again exactly the turns whose request it changes, and the log names the field."""
    adapter = stage.adapter
    stage.server.script(None, structured, repeat_last=True)

    asked: dict[str, int] = {}
    logged: dict[str, list[str]] = {}

    async def body(changed: bool, *only: str) -> None:
        for change, changes in {**_changes(adapter), "nothing": {}}.items():
            if only and change not in only:
                continue
            given = {"model": adapter.model, "instructions": INSTRUCTIONS, "tools": [adapter.tool(temperature)]}
            if change == "settings":
                given |= adapter.temperature(0.25)
            if changed:
                given |= changes
            stage.asked()
            with _logged() as lines:
                await adapter.run_agent("Hello", **given, name=change.replace(" ", "_"))
            asked[change], logged[change] = stage.asked(), lines

    await stage.crash(lambda: body(False))
    await stage.crash(lambda: body(True))
    expect(asked.pop("nothing"), 0, "requests where nothing was changed", "Keep clocks out of the key.")
    for change, requests in asked.items():
        expect(requests, 1, f"requests after a change of the {change}", "Make it a field of the request's key.")
        field = adapter.fields.get(change, FIELDS[change])
        named = [
            line.partition(" differs from the recorded one in ")[2].strip(".").split(", ") for line in logged[change]
        ]
        named = [names for names in named if names != [""]]
        expect(
            any(field in names for names in named),
            True,
            f"the log names the field {field!r} after a change of the {change} (it says {named})",
            "Name the fields of a request as in every adapter, or say another name in the declaration's `fields`.",
        )
    asked.clear()
    await stage.attempt(lambda: body(True, "instructions", "tool schema"))
    for change, requests in asked.items():
        expect(requests, 0, f"requests of a replay after a change of the {change}", "Keep clocks out of the key.")


@contextlib.contextmanager
def _logged() -> Iterator[list[str]]:
    """What our logger says meanwhile."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("flyteplugins.agents"), Handler()
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


@check("keys.same")
async def what_says_nothing_changes_nothing(stage: Stage) -> None:
    """The same request has one key however it is made: of a name, a model object, or with a listener; user data stays."""
    adapter = stage.adapter
    stage.server.script(None, "Hello.", repeat_last=True)

    async def ask(run: str, question: str = "Hi", **more: Any) -> list[str]:
        given = {"model": adapter.model, "instructions": INSTRUCTIONS} | more
        await stage.crash(lambda: adapter.run_agent(question, **given), run)
        return stage.keys(run)

    first = await ask("name")
    listened = await ask("listened", on_event=lambda _: None, **adapter.streaming)
    expect(listened, first, "the key of a turn that somebody listens to", "Leave out whether it is streamed.")
    one, other = (f"Look up {uuid.uuid4()}." for _ in range(2))
    distinct = await ask("one", one) != await ask("other", other)
    expect(distinct, True, "prompts that differ by an identifier have different keys", "Rename only the SDK's own ids.")


@check("keys.secrets")
async def no_credential_is_stored(stage: Stage) -> None:
    """Neither records nor reports hold a key."""
    script(stage.server)
    await stage.crash(lambda: stage.adapter.run_agent(QUESTION, **options(stage)))
    files = [path for path in stage.folder().parent.rglob("*") if path.is_file()]
    found = [path.name for path in files if DUMMY_KEY.encode() in path.read_bytes()]
    expect(found, [], "files that hold the API key", "Leave headers and keys out of fields and payloads.")


@check("keys.processes")
async def keys_are_the_same_in_another_process(stage: Stage) -> None:
    """A process with another hash seed, other made-up ids and a later date finds every record, and asks nothing."""
    script(stage.server)
    answer = await stage.crash(lambda: stage.adapter.run_agent(QUESTION, **options(stage)))
    expect(answer, ANSWER, "the answer in this process", "See turns.replayed.")
    before = [path.name for path in stage.records()]
    stage.asked(), stage.did()
    program = (
        "import asyncio, sys\n"
        f"from {__package__.removesuffix('.promise')}._replay import replay\n"
        "asyncio.run(replay(*sys.argv[1:]))\n"
    )
    argv = [sys.executable, "-c", program, stage.adapter.module, stage.adapter.model, f"{stage.run_name}-run"]
    seed = str(1 + int(os.environ.get("PYTHONHASHSEED", "0").replace("random", "0") or 0))
    environment = os.environ | {"PYTHONHASHSEED": seed}
    done = await asyncio.to_thread(
        subprocess.run, argv, env=environment, cwd=stage.home, capture_output=True, text=True, check=False
    )
    expect(done.returncode, 0, f"the other process ({done.stderr[-1500:]})", "Mend its error.")
    expect(done.stdout.splitlines()[-1], ANSWER, "the answer in another process", "See turns.replayed.")
    todo = "Leave clocks, identities of objects and orders of sets out of the key; rename what the SDK makes up."
    expect(stage.asked(), 0, "requests in another process", todo)
    expect([path.name for path in stage.records()], before, "records when it has ended", todo)
