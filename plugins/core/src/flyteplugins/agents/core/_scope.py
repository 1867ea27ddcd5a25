"""Where we are in Flyte: the running task, and what belongs to this attempt of it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import flyte

from ._errors import AgentError
from ._storage import Folder

__all__ = ["AttemptState", "TaskScope", "current_scope"]

FOLDER = "flyte-agents"
"""The name of our one folder below a run's base directory, beside Flyte's own action folders."""

RESUME = "FLYTE_AGENTS_RESUME"
"""Names the run, by its name or the URI of its base directory, that a new run on a cluster goes on from."""

_STATE = "flyteplugins.agents"  # our entry in TaskContext.data, which each attempt gets anew


@dataclass(eq=False)  # it is a key of what others keep for the attempt
class AttemptState:
    """What the agent runs of one attempt share.

    Kept in the task context's `data`, since one process may run several actions, and several attempts of one, at a time.

    Attributes:
        started: How many agent runs of each identity are running or have finished; gives the next one its ordinal.
        numbers: Which number of its identity each agent run of this attempt has, by identity.
        made: Records, by path, that this attempt made: nobody takes them for those of an earlier one.
        consumed: Records, by path, that answered an agent run, and which one.
        hinted: Whether the way to resume was printed.
        lock: Held while the sets are changed, since agents may run in several threads.
    """

    started: dict[str, set[int]] = field(default_factory=dict)
    numbers: dict[str, dict[int, str]] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    consumed: dict[str, str] = field(default_factory=dict)
    hinted: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class TaskScope:
    """The Flyte task that runs now.

    Attributes:
        org: Organization, empty on a laptop.
        project: Project, empty on a laptop.
        domain: Domain, empty on a laptop.
        run: The run's name.
        action: The task's action. Equal in different runs on a cluster (`a0`), so never an identity by itself.
        mode: `local` for `flyte run --local`, `remote` in a worker.
        folder: Our folder below the run's base directory, shared by all actions and attempts of the run; that of another
            run where this one goes on from it.
        raw_data: Where Flyte writes raw data.
        state: What the agent runs of this attempt share.
        origin: The run that this one goes on from, whose records it has; empty for none.
    """

    org: str
    project: str
    domain: str
    run: str
    action: str
    mode: str
    folder: Folder
    raw_data: str
    state: AttemptState
    origin: str = ""

    @property
    def identity(self) -> list[str]:
        """What tells this task's action from every other action of any run.

        A run that goes on from another one has the other's: it is the same work, whose memory is committed once, and whose
        tools hand the same idempotency keys to the services that they call.
        """
        return [self.org, self.project, self.domain, self.origin or self.run, self.action]

    async def check_origin(self) -> None:
        """See that the run that this one goes on from has left something.

        Raises:
            AgentError: It has not: a name mistyped would have everything paid for again.
        """
        if self.origin and not await self.folder.folders():
            raise AgentError(
                f"{RESUME} names run {self.origin}, and there is no record of an agent run in {self.folder.uri}. Is the name "
                f"right, and is the run's storage still there? Without {RESUME} the run begins anew."
            )


def current_scope() -> TaskScope | None:
    """Return the task that runs now, or `None` outside of one."""
    context = flyte.ctx()
    if context.mode is None or context.task_action is None:  # outside of a task every field is None
        return None
    action = context.task_action
    data: dict[str, Any] = context.data
    state = data.setdefault(_STATE, AttemptState())  # one operation, so that threads agree
    run = action.run_name or action.name
    origin, base = _records_of(run, context.run_base_dir, context.mode)
    return TaskScope(
        org=action.org or "",
        project=action.project or "",
        domain=action.domain or "",
        run=run,
        action=action.name,
        mode=context.mode,
        folder=Folder.at(base, FOLDER),
        raw_data=context.raw_data_path.path,
        state=state,
        origin=origin,
    )


def _records_of(run: str, base: str, mode: str) -> tuple[str, str]:
    """The run that this one goes on from, as `FLYTE_AGENTS_RESUME` names it, and the base directory that has the records."""
    named = os.environ.get(RESUME, "").strip().rstrip("/")
    if not named or named == run:
        return "", base
    if mode != "remote":
        # Actions have other names in each local run, so another run's records would never be found.
        raise AgentError(
            f"{RESUME} is {named!r}, and this is a run on a laptop, which goes on under its own name: unset {RESUME}, and type "
            f"`flyte run --local --name {named.rpartition('/')[2]} ...`."
        )
    if "/" in named:
        return named.rpartition("/")[2], named
    parent, _, last = base.rstrip("/").rpartition("/")
    if last != run:
        raise AgentError(
            f"{RESUME} is {named!r}, and the base directory of run {named} cannot be told from this run's, {base}, which does "
            f"not end in this run's name, {run}. Give the URI of the other run's base directory instead of its name."
        )
    return named, f"{parent}/{named}"


def agents_home() -> str:
    """Where memories live on a laptop: `$FLYTE_AGENTS_HOME`, or `~/.flyte/agents`."""
    return os.environ.get("FLYTE_AGENTS_HOME") or os.path.expanduser("~/.flyte/agents")
