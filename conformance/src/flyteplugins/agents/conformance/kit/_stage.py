"""Where a check is made: Flyte tasks in this process, under `flyte run --local` semantics, against the offline model server.

Running a task again under the name that it had is what a resume in another process does: only storage is shared.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flyte

from flyteplugins.agents.conformance.local import METADATA
from flyteplugins.agents.conformance.models import ModelServer

from ._adapter import Adapter

__all__ = ["EFFECTS", "Crash", "Stage", "env", "open_stage"]

env = flyte.TaskEnvironment("conformance")

Body = Callable[[], Awaitable[Any]]

_BODIES: dict[str, Body] = {}
_RETURNED: dict[str, list[Any]] = {}
_RAISED: dict[str, list[BaseException]] = {}


EFFECTS: list[str] = []
"""What the tools of the check that is made now did, in order. A process makes one check at a time."""


class Crash(BaseException):
    """Ends an attempt as a lost worker would: no `except Exception` sees it."""


async def _run(ticket: str) -> str:
    try:
        value = await _BODIES[ticket]()
    except BaseException as error:
        _RAISED.setdefault(ticket, []).append(error)
        raise
    _RETURNED.setdefault(ticket, []).append(value)
    return ""


@env.task(cache="disable")
async def work(ticket: str) -> str:
    """Run a body, once."""
    return await _run(ticket)


@dataclass
class Stage:
    """What a check has to work with.

    Attributes:
        adapter: The adapter.
        server: The model server, without scripts and with an empty journal.
        run_name: The beginning of the names of the check's runs.
        home: The home folder, where memories are.
    """

    adapter: Adapter
    server: ModelServer
    home: Path
    run_name: str = field(default_factory=lambda: f"kit-{uuid.uuid4().hex[:12]}")

    @property
    def effects(self) -> list[str]:
        """What tools did, in order."""
        return EFFECTS

    async def attempt(self, body: Body, name: str = "run", *, retried: bool = False) -> Any:
        """Run a coroutine function in a Flyte task, and return or raise what it does.

        Args:
            body: What runs in the task.
            name: The run's name among those of the check. A second attempt has the name of the first.
            retried: Whether Flyte tries up to three times.
        """
        ticket = f"{self.run_name}-{name}"
        _BODIES[ticket] = body
        _RAISED.pop(ticket, None)
        await flyte.init.aio()
        runner = flyte.with_runcontext(mode="local", name=ticket)
        try:
            await runner.run.aio(work.override(retries=2) if retried else work, ticket=ticket)
        except BaseException as error:  # Flyte's translation of it: a check gets the original
            raised = _RAISED.pop(ticket, [error])[-1]
            if isinstance(raised, Crash) or raised is error:
                raise raised from None
            raise raised from error
        return _RETURNED[ticket].pop()

    async def crash(self, body: Body, name: str = "run") -> Any:
        """Run a body, and let the attempt die when it has ended: everything is on record, and nothing was returned."""
        seen: list[Any] = []

        async def dying() -> None:
            seen.append(await body())
            raise Crash

        with contextlib.suppress(Crash):
            await self.attempt(dying, name)
        return seen[0]

    def folder(self, name: str = "run") -> Path:
        """Where the records of a run are."""
        return METADATA / f"{self.run_name}-{name}" / "flyte-agents"

    def records(self, name: str = "run", kind: str = "") -> list[Path]:
        """The record files of a run, or those of one kind of leaf."""
        kinds = (kind,) if kind else ("turn", "tool", "tools", "memory", "approval")
        return sorted(path for path in self.folder(name).rglob("*.*.*") if path.name.split(".")[0] in kinds)

    def keys(self, name: str = "run", kind: str = "turn") -> list[str]:
        """The keys of a run's leaves of one kind, sorted."""
        return sorted(path.name.split(".")[1] for path in self.records(name, kind))

    def asked(self) -> int:
        """How many requests the model had since the last time that somebody wanted to know."""
        count = self.server.journal.count()
        self.server.journal.clear()
        return count

    def did(self) -> list[str]:
        """What tools did since the last time that somebody wanted to know, sorted."""
        done = sorted(self.effects)
        self.effects.clear()
        return done

    def remove(self) -> None:
        """Remove what the check's runs left."""
        for folder in (METADATA, METADATA.with_name("raw_data")):
            for kept in folder.glob(f"{self.run_name}-*"):
                shutil.rmtree(kept, ignore_errors=True)


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Have environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def open_stage(adapter: Adapter, server: ModelServer | None = None) -> Iterator[Stage]:
    """Set a stage up, and clear it away.

    Args:
        adapter: The adapter.
        server: A model server to use; one of its own by default.
    """
    with contextlib.ExitStack() as stack:
        if server is None:
            server = stack.enter_context(ModelServer(strict=True))
        server.clear()
        EFFECTS.clear()
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")))
        stack.enter_context(environment({**server.env(), "HOME": str(home), "FLYTE_AGENTS_HOME": str(home / "agents")}))
        stage = Stage(adapter, server, home)
        stack.callback(stage.remove)
        yield stage
