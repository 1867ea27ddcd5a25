"""The plane's state: one SQLite file, and news of its changes to whoever watches in this process.

Protobuf messages are stored as they came, so nothing of the wire format is lost. All access is from one thread (the
event loop's), and every call is one transaction, so a plane that is killed leaves a state that some call left.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from flyteidl2.common import phase_pb2

ROOT: Final = "a0"
"""Name of a run's root action. It is the same in every run, as on a cluster."""

QUEUED: Final = phase_pb2.ACTION_PHASE_QUEUED
RUNNING: Final = phase_pb2.ACTION_PHASE_RUNNING
SUCCEEDED: Final = phase_pb2.ACTION_PHASE_SUCCEEDED
FAILED: Final = phase_pb2.ACTION_PHASE_FAILED
ABORTED: Final = phase_pb2.ACTION_PHASE_ABORTED
TIMED_OUT: Final = phase_pb2.ACTION_PHASE_TIMED_OUT
PAUSED: Final = phase_pb2.ACTION_PHASE_PAUSED
RECOVERED: Final = phase_pb2.ACTION_PHASE_RECOVERED

_LIVE: Final = (QUEUED, RUNNING, PAUSED)
_LIVE_SQL: Final = f"phase IN ({','.join(str(int(phase)) for phase in _LIVE)})"

Kind = Literal["task", "trace", "condition"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs(
  name TEXT PRIMARY KEY, org TEXT, project TEXT, domain TEXT, spec BLOB, created REAL);
CREATE TABLE IF NOT EXISTS actions(
  run TEXT, name TEXT, parent TEXT, kind TEXT, grp TEXT, spec BLOB, input_uri TEXT, run_base TEXT, output_uri TEXT,
  phase INTEGER, attempt INTEGER, restart INTEGER, launch INTEGER, user_failures INTEGER, system_failures INTEGER,
  error BLOB, value BLOB, by BLOB, cache_key TEXT, cache_status INTEGER, pid INTEGER, process TEXT, deadline REAL,
  created REAL, started REAL, ended REAL, PRIMARY KEY(run, name));
CREATE INDEX IF NOT EXISTS actions_parent ON actions(run, parent);
CREATE INDEX IF NOT EXISTS actions_phase ON actions(phase);
CREATE TABLE IF NOT EXISTS attempts(
  run TEXT, action TEXT, attempt INTEGER, phase INTEGER, error BLOB, started REAL, ended REAL, events TEXT,
  PRIMARY KEY(run, action, attempt));
CREATE TABLE IF NOT EXISTS tasks(
  project TEXT, domain TEXT, name TEXT, version TEXT, spec BLOB, deployed REAL, by BLOB,
  PRIMARY KEY(project, domain, name, version));
CREATE TABLE IF NOT EXISTS cache(key TEXT PRIMARY KEY, output_uri TEXT, created REAL);
"""


class ActionKey(NamedTuple):
    """What names an action: its run and its name in it."""

    run: str
    name: str


@dataclass(frozen=True)
class Run:
    """One run; `spec` is its `RunSpec`."""

    name: str
    org: str
    project: str
    domain: str
    spec: bytes
    created: float


@dataclass(frozen=True)
class Action:
    """One action of a run, as it is stored.

    Args:
        run: name of the run.
        name: name of the action in it.
        parent: name of the action that asked for it, empty for the root.
        kind: what it is; `spec` is then a `TaskAction`, `TraceAction` or `ConditionAction`.
        grp: the group it was asked for in.
        spec: see `kind`.
        input_uri: its inputs file.
        run_base: folder of its run.
        output_uri: the folder of a task's latest attempt, or the outputs file of a trace.
        phase: an `ActionPhase`.
        attempt: number of the latest attempt, from 1; 0 before the first.
        restart: 1 when the next process belongs to this attempt too (after a system failure), not to a new one.
        launch: processes started so far. For a trace: the launch of its parent that recorded it.
        user_failures: attempts that failed by the user's code.
        system_failures: processes that were lost.
        error: an `ExecutionError`.
        value: the literal that a condition was signalled with.
        by: the `EnrichedIdentity` that signalled or aborted it.
        cache_key: key of its result in the cache, empty when it is not cached.
        cache_status: a `CatalogCacheStatus`.
        pid: process of the worker, 0 when there is none.
        process: what tells that process from another one with its number.
        deadline: when the attempt or condition times out, in seconds since the epoch; 0 for never.
        created: when it was asked for, in seconds since the epoch.
        started: when its first process started.
        ended: when it reached its final phase.
    """

    run: str
    name: str
    parent: str = ""
    kind: Kind = "task"
    grp: str = ""
    spec: bytes = b""
    input_uri: str = ""
    run_base: str = ""
    output_uri: str = ""
    phase: int = QUEUED
    attempt: int = 0
    restart: int = 0
    launch: int = 0
    user_failures: int = 0
    system_failures: int = 0
    error: bytes = b""
    value: bytes = b""
    by: bytes = b""
    cache_key: str = ""
    cache_status: int = 0
    pid: int = 0
    process: str = ""
    deadline: float = 0.0
    created: float = field(default_factory=time.time)
    started: float = 0.0
    ended: float = 0.0

    @property
    def key(self) -> ActionKey:
        """What names it."""
        return ActionKey(self.run, self.name)

    @property
    def parent_key(self) -> ActionKey:
        """What names the action that asked for it."""
        return ActionKey(self.run, self.parent)

    @property
    def live(self) -> bool:
        """Whether it can still change."""
        return self.phase in _LIVE


@dataclass(frozen=True)
class Event:
    """Something that happened to an attempt, such as the loss of its worker."""

    time: float
    reason: str
    message: str


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task action; `error` is an `ExecutionError`."""

    run: str
    action: str
    attempt: int
    phase: int = RUNNING
    error: bytes = b""
    started: float = 0.0
    ended: float = 0.0
    events: tuple[Event, ...] = ()


@dataclass(frozen=True)
class DeployedTask:
    """One version of a registered task; `spec` is its `TaskSpec`, `by` the `EnrichedIdentity` that deployed it."""

    project: str
    domain: str
    name: str
    version: str
    spec: bytes
    deployed: float
    by: bytes


class Subscription:
    """News for one watcher: the names of what changed since it last looked, each once."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._news = asyncio.Event()

    def add(self, name: str) -> None:
        """Note that `name` changed."""
        self._names[name] = None
        self._news.set()

    async def next(self) -> list[str]:
        """Wait until something changed; returns the names, in the order in which they first did."""
        await self._news.wait()
        self._news.clear()
        names = list(self._names)
        self._names.clear()
        return names


class Store:
    """The state.

    Args:
        path: the SQLite file; made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        # A killed process loses nothing that was written; only a machine that loses power could lose the last writes.
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        self._subscriptions: dict[tuple[str, ...], set[Subscription]] = {}

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _insert(self, table: str, row: Any, *, replace: bool = False) -> None:
        values = {f.name: getattr(row, f.name) for f in fields(row)}
        verb = "INSERT OR REPLACE" if replace else "INSERT"
        self._db.execute(
            f"{verb} INTO {table}({','.join(values)}) VALUES({','.join('?' * len(values))})", list(values.values())
        )

    # ---- runs

    def add_run(self, run: Run) -> None:
        """Add a run; its name must be new."""
        self._insert("runs", run)

    def run(self, name: str) -> Run | None:
        """The run of that name."""
        row = self._db.execute("SELECT * FROM runs WHERE name=?", (name,)).fetchone()
        return Run(**row) if row else None

    def runs(self, project: str, domain: str) -> list[Run]:
        """The runs of a project and domain, oldest first."""
        rows = self._db.execute("SELECT * FROM runs WHERE project=? AND domain=? ORDER BY created", (project, domain))
        return [Run(**row) for row in rows]

    # ---- actions

    def put(self, action: Action) -> None:
        """Write a whole action, new or in place of the old one, and tell whoever watches."""
        self._insert("actions", action, replace=True)
        self.announce(action)

    def update(self, key: ActionKey, *, only_live: bool = True, **changes: object) -> Action | None:
        """Change some columns of an action and tell whoever watches.

        Args:
            key: which action.
            only_live: change nothing if the action has reached its final phase, so that nothing overrules an abort.
            changes: columns and their new values.

        Returns:
            The action as it is then; `None` if there was nothing to change.
        """
        sets = ",".join(f"{column}=?" for column in changes)
        guard = f" AND {_LIVE_SQL}" if only_live else ""
        done = self._db.execute(
            f"UPDATE actions SET {sets} WHERE run=? AND name=?{guard}", (*changes.values(), key.run, key.name)
        )
        if not done.rowcount:
            return None
        action = self.action(key)
        if action is not None:
            self.announce(action)
        return action

    def action(self, key: ActionKey) -> Action | None:
        """One action."""
        row = self._db.execute("SELECT * FROM actions WHERE run=? AND name=?", key).fetchone()
        return Action(**row) if row else None

    def _actions(self, where: str, *args: object) -> list[Action]:
        rows = self._db.execute(f"SELECT * FROM actions WHERE {where} ORDER BY created, rowid", args)
        return [Action(**row) for row in rows]

    def actions(self, run: str) -> list[Action]:
        """All actions of a run, oldest first."""
        return self._actions("run=?", run)

    def children(self, parent: ActionKey) -> list[Action]:
        """What an action asked for, oldest first."""
        return self._actions("run=? AND parent=?", *parent)

    def unfinished(self) -> list[Action]:
        """Actions of any run that can still change, or have a process."""
        return self._actions(f"{_LIVE_SQL} OR pid != 0")

    def waiting_parents(self) -> set[ActionKey]:
        """Actions with a child task or condition that is not finished."""
        rows = self._db.execute(f"SELECT DISTINCT run, parent FROM actions WHERE {_LIVE_SQL} AND kind != 'trace'")
        return {ActionKey(*row) for row in rows}

    # ---- attempts

    def put_attempt(self, attempt: Attempt) -> None:
        """Write an attempt, new or in place of the old one."""
        self._db.execute(
            "INSERT OR REPLACE INTO attempts VALUES(?,?,?,?,?,?,?,?)",
            (
                attempt.run,
                attempt.action,
                attempt.attempt,
                attempt.phase,
                attempt.error,
                attempt.started,
                attempt.ended,
                json.dumps([asdict(event) for event in attempt.events]),
            ),
        )

    def attempts(self, key: ActionKey) -> list[Attempt]:
        """The attempts of an action, in order."""
        rows = self._db.execute("SELECT * FROM attempts WHERE run=? AND action=? ORDER BY attempt", key)
        return [
            Attempt(**{**row, "events": tuple(Event(**event) for event in json.loads(row["events"]))}) for row in rows
        ]

    def attempt(self, key: ActionKey, number: int) -> Attempt | None:
        """One attempt of an action."""
        return next((attempt for attempt in self.attempts(key) if attempt.attempt == number), None)

    def forget_attempts(self, key: ActionKey) -> None:
        """Remove an action's attempts."""
        self._db.execute("DELETE FROM attempts WHERE run=? AND action=?", key)

    # ---- registered tasks

    def add_task(self, task: DeployedTask) -> bool:
        """Register one version of a task; `False` if there is one already."""
        try:
            self._insert("tasks", task)
        except sqlite3.IntegrityError:
            return False
        return True

    def task(self, project: str, domain: str, name: str, version: str) -> DeployedTask | None:
        """One version of a registered task."""
        row = self._db.execute(
            "SELECT * FROM tasks WHERE project=? AND domain=? AND name=? AND version=?",
            (project, domain, name, version),
        ).fetchone()
        return DeployedTask(**row) if row else None

    def tasks(self, project: str, domain: str) -> list[DeployedTask]:
        """All versions of the registered tasks of a project and domain, oldest first."""
        rows = self._db.execute(
            "SELECT * FROM tasks WHERE project=? AND domain=? ORDER BY deployed, rowid", (project, domain)
        )
        return [DeployedTask(**row) for row in rows]

    # ---- cache

    def cached(self, key: str) -> tuple[str, float] | None:
        """Where the result with that key is, and when it was put there (seconds since the epoch)."""
        row = self._db.execute("SELECT output_uri, created FROM cache WHERE key=?", (key,)).fetchone()
        return (row["output_uri"], row["created"]) if row else None

    def put_cached(self, key: str, output_uri: str) -> None:
        """Remember a result."""
        self._db.execute("INSERT OR REPLACE INTO cache VALUES(?,?,?)", (key, output_uri, time.time()))

    # ---- news

    @contextmanager
    def watch(self, *topic: str) -> Iterator[Subscription]:
        """Be told of changes.

        Args:
            topic: `("children", run, parent)`, `("action", run, name)` or `("run", run)`.
        """
        subscription = Subscription()
        self._subscriptions.setdefault(topic, set()).add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[topic].discard(subscription)
            if not self._subscriptions[topic]:
                del self._subscriptions[topic]

    def announce(self, action: Action) -> None:
        """Tell whoever watches an action, its parent or its run that it changed."""
        for topic in (
            ("children", action.run, action.parent),
            ("action", action.run, action.name),
            ("run", action.run),
        ):
            for subscription in self._subscriptions.get(topic, ()):
                subscription.add(action.name)
