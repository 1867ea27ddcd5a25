"""Where we are in Flyte: the running task, and what belongs to this attempt of it."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import flyte

from ._storage import Folder

__all__ = ["AttemptState", "TaskScope", "current_scope"]

FOLDER = "flyte-agents"
"""The name of our one folder below a run's base directory, beside Flyte's own action folders."""

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
        folder: Our folder below the run's base directory, shared by all actions and attempts of the run.
        raw_data: Where Flyte writes raw data.
        state: What the agent runs of this attempt share.
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

    @property
    def identity(self) -> list[str]:
        """What tells this task's action from every other action of any run."""
        return [self.org, self.project, self.domain, self.run, self.action]


def current_scope() -> TaskScope | None:
    """Return the task that runs now, or `None` outside of one."""
    context = flyte.ctx()
    if context.mode is None or context.task_action is None:  # outside of a task every field is None
        return None
    action = context.task_action
    data: dict[str, Any] = context.data
    state = data.setdefault(_STATE, AttemptState())  # one operation, so that threads agree
    return TaskScope(
        org=action.org or "",
        project=action.project or "",
        domain=action.domain or "",
        run=action.run_name or action.name,
        action=action.name,
        mode=context.mode,
        folder=Folder.at(context.run_base_dir, FOLDER),
        raw_data=context.raw_data_path.path,
        state=state,
    )


def agents_home() -> str:
    """Where memories live on a laptop: `$FLYTE_AGENTS_HOME`, or `~/.flyte/agents`."""
    return os.environ.get("FLYTE_AGENTS_HOME") or os.path.expanduser("~/.flyte/agents")
