"""Runs task actions: one worker process per attempt, with retries, cache, timeouts, abort, and recovery of all that.

Failures are counted as Flyte's open-source backend counts them. A failure of the user's code starts a new attempt, with
the next number and a folder of its own, as often as the task has retries. A system failure (a killed worker, a lost
node) starts the same attempt again, with its number and folder, a few times.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from flyteidl2.common import identity_pb2
from flyteidl2.core import catalog_pb2, execution_pb2, literals_pb2, tasks_pb2
from flyteidl2.task import run_pb2
from flyteidl2.workflow import run_definition_pb2

from flyteplugins.agents.conformance._forks import ForkServer

from ._launch import Launch, Launcher
from ._layout import Layout
from ._outcome import Outcome, clear, has_ended, judge
from ._processes import Worker
from ._slots import Slots
from ._store import (
    ABORTED,
    FAILED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    TIMED_OUT,
    Action,
    ActionKey,
    Attempt,
    Event,
    Run,
    Store,
)
from .modes import Modes

log = logging.getLogger(__name__)

MAX_SYSTEM_FAILURES: Final = 3
"""System failures that an action survives, as the open-source executor's default."""

MAX_RUNTIME_EXCEEDED: Final = "MAX_RUNTIME_EXCEEDED"
"""Error code of an attempt that ran too long; the SDK's `flyte.errors.MaxRuntimeExceededError`."""


@dataclass
class _Job:
    """What drives one action; `worker` while a process of it runs."""

    task: asyncio.Task[None]
    worker: Worker | None = None


class Executor:
    """Runs task actions.

    Args:
        store: the state.
        layout: the data folder.
        launcher: builds command lines.
        slots: workers that may compute at once.
        modes: how the plane is to behave now.
        abort_grace: seconds that an aborted worker goes on before it is killed.
        forks: servers that workers are forked from, by turns; without them each starts from nothing.
    """

    def __init__(
        self,
        store: Store,
        layout: Layout,
        launcher: Launcher,
        *,
        slots: int,
        modes: Callable[[], Modes],
        abort_grace: float,
        forks: Sequence[ForkServer] = (),
    ) -> None:
        self._store = store
        self._layout = layout
        self._launcher = launcher
        self._modes = modes
        self._grace = abort_grace
        self._forks = itertools.cycle(forks) if forks else None
        self._slots = Slots(slots, store.waiting_parents)
        self._jobs: dict[ActionKey, _Job] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self._serial: dict[str, asyncio.Lock] = {}

    def submit(self, action: Action) -> None:
        """Run an action, from wherever it is: new, queued, or with a process that an earlier plane started."""
        if action.key in self._jobs:
            return
        task = asyncio.create_task(self._drive(action.key), name=f"{action.run}/{action.name}")
        self._jobs[action.key] = _Job(task)
        task.add_done_callback(lambda done: self._driven(action.key, done))

    def yield_slot(self) -> None:
        """Look again who waits, because an action has asked for another, or for a condition."""
        self._slots.dispatch()

    def recover(self) -> None:
        """Take up what an earlier plane left: adopt its workers, judge those that ended, start what was queued."""
        for action in self._store.unfinished():
            if action.kind != "task":
                continue
            if not action.live:  # aborted, and the plane died in the grace
                self._later(self._end_stray(action))
                continue
            if action.pid:
                self._slots.take(action.key)
            self.submit(action)

    def abort(self, action: Action, reason: str, by: identity_pb2.EnrichedIdentity) -> None:
        """Abort an action and what it asked for. It counts as aborted at once; its worker goes on through the grace."""
        # Children first, so that nothing is launched below an action that is already gone.
        for child in self._store.children(action.key):
            if child.live:
                self.abort(child, reason, by)
        error = execution_pb2.ExecutionError(code="Aborted", message=reason, kind=execution_pb2.ExecutionError.USER)
        done = self._store.update(
            action.key,
            phase=ABORTED,
            ended=time.time(),
            error=error.SerializeToString(),
            by=by.SerializeToString(),
        )
        if done is None:
            return
        job = self._jobs.get(action.key)
        if job is not None and job.worker is not None:
            self._later(job.worker.end(self._grace))
        elif job is not None:
            job.task.cancel()
        self._slots.dispatch()

    async def stop(self) -> None:
        """Kill all workers. A later plane starts their attempts again, except those that had just ended."""
        running = {key: job.worker for key, job in self._jobs.items() if job.worker is not None}
        tasks = [job.task for job in self._jobs.values()] + list(self._endings)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for key, worker in running.items():
            worker.kill()
            await worker.wait()
            action = self._store.update(key, only_live=False, pid=0, process="")
            if action is not None and not has_ended(self._layout.path(action.output_uri)):
                self._store.update(key, phase=QUEUED, restart=1)

    # ---- bookkeeping of tasks

    def _driven(self, key: ActionKey, task: asyncio.Task[None]) -> None:
        job = self._jobs.pop(key)
        self._slots.release(key)
        if not task.cancelled() and (failure := task.exception()) is not None:
            # A failure of the plane itself: say so on the action too, or its parent would wait for ever.
            log.error("The plane failed to run %s/%s.", *key, exc_info=failure)
            if job.worker is not None:
                job.worker.kill()
            error = execution_pb2.ExecutionError(
                code="PlaneError",
                message=f"{type(failure).__name__}: {failure}",
                kind=execution_pb2.ExecutionError.SYSTEM,
            )
            self._store.update(key, phase=FAILED, ended=time.time(), error=error.SerializeToString())

    def _later(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _end_stray(self, action: Action) -> None:
        worker = await Worker.find(action.pid, action.process, self._launcher.pid_file(action))
        if worker is not None:
            await worker.end(self._grace)
        self._tidy(action)

    # ---- one action, all its attempts

    async def _drive(self, key: ActionKey) -> None:
        action = self._store.action(key)
        run = self._store.run(key.run)
        if action is None or run is None:
            raise LookupError(f"No action {key.run}/{key.name} to run.")
        spec = run_pb2.RunSpec.FromString(run.spec)
        template = run_definition_pb2.TaskAction.FromString(action.spec).spec.task_template
        cached = template.metadata.discoverable and bool(action.cache_key)
        if cached and template.metadata.cache_serializable:
            async with self._serial.setdefault(action.cache_key, asyncio.Lock()):
                await self._attempts(action, run, spec, template, cached=True)
        else:
            await self._attempts(action, run, spec, template, cached=cached)

    async def _attempts(
        self, action: Action, run: Run, spec: run_pb2.RunSpec, template: tasks_pb2.TaskTemplate, *, cached: bool
    ) -> None:
        overwrite = spec.overwrite_cache or spec.cache_config.overwrite_cache
        if cached and not overwrite and action.launch == 0 and self._answer_from_cache(action, template):
            return
        current: Action | None = action
        while current is not None:
            if current.phase == RUNNING:
                current = await self._adopt(current, template, cached=cached)
            else:
                if current.user_failures and not current.restart:
                    await asyncio.sleep(_backoff(template.metadata.retries, current.user_failures))
                await self._slots.acquire(current.key)
                current = await self._attempt(current.key, run, spec, template, cached=cached)

    def _answer_from_cache(self, action: Action, template: tasks_pb2.TaskTemplate) -> bool:
        hit = self._store.cached(action.cache_key)
        if hit is None:
            return False
        output_uri, created = hit
        max_age = template.metadata.cache_max_age.ToTimedelta().total_seconds()
        if max_age and time.time() - created > max_age:
            return False
        if not (self._layout.path(output_uri) / "outputs.pb").exists():
            return False
        now = time.time()
        self._store.put_attempt(Attempt(*action.key, 1, SUCCEEDED, started=now, ended=now))
        self._store.update(
            action.key,
            phase=SUCCEEDED,
            output_uri=output_uri,
            cache_status=catalog_pb2.CACHE_HIT,
            attempt=1,
            started=now,
            ended=now,
        )
        self._slots.dispatch()
        return True

    async def _attempt(
        self, key: ActionKey, run: Run, spec: run_pb2.RunSpec, template: tasks_pb2.TaskTemplate, *, cached: bool
    ) -> Action | None:
        """Run one process; returns the action if it is to go on."""
        before = self._store.action(key)
        if before is None or not before.live:
            return None
        number = before.attempt if before.restart else before.attempt + 1
        folder = self._layout.attempt(before.run_base, key.name, number)
        now = time.time()
        limit = template.metadata.timeout.ToTimedelta().total_seconds()
        # Written before the start, so that a plane that dies in between looks for the process when it comes back.
        action = self._store.update(
            key,
            phase=RUNNING,
            attempt=number,
            restart=0,
            launch=before.launch + 1,
            output_uri=str(folder),
            started=before.started or now,
            deadline=now + limit if limit else 0.0,
            pid=0,
            process="",
        )
        if action is None:
            return None
        launch = self._launcher.build(action, template, run, spec, self._modes())
        clear(folder)
        attempt = self._store.attempt(key, number) or Attempt(*key, number, started=now)
        self._store.put_attempt(replace(attempt, phase=RUNNING, ended=0.0))
        if launch.note:
            with launch.log.open("a") as lines:
                lines.write(f"{launch.note}\n")
        worker = self._start(launch)
        self._store.update(key, only_live=False, pid=worker.pid, process=worker.process)
        return await self._see_through(action, worker, template, cached=cached)

    def _start(self, launch: Launch) -> Worker:
        """Start a worker: forked if there is a server to fork from, and it is the program that the server's processes can be."""
        if self._forks is None or not self._modes().warm_workers or Path(launch.argv[0]).name != "a0":
            return Worker.start(launch.argv, env=launch.env, cwd=launch.cwd, log=launch.log, pid_file=launch.pid_file)
        # Faults are installed before the program begins, so that it need not start itself again for that.
        env = launch.env | {"_F_EXEC_WRAPPED": "1"} if "_F_EXEC_WRAPPER" in launch.env else launch.env
        return Worker.fork(
            next(self._forks), launch.argv, env=env, cwd=launch.cwd, log=launch.log, pid_file=launch.pid_file
        )

    async def _adopt(self, action: Action, template: tasks_pb2.TaskTemplate, *, cached: bool) -> Action | None:
        """See a process through that an earlier plane started; returns the action if it is to go on."""
        self._slots.take(action.key)
        worker = await Worker.find(action.pid, action.process, self._launcher.pid_file(action))
        if worker is None:
            return self._conclude(action, None, template, timed_out=False, cached=cached)
        log.info("Adopted the worker %d of %s/%s.", worker.pid, action.run, action.name)
        self._store.update(action.key, only_live=False, pid=worker.pid, process=worker.process)
        return await self._see_through(action, worker, template, cached=cached)

    async def _see_through(
        self, action: Action, worker: Worker, template: tasks_pb2.TaskTemplate, *, cached: bool
    ) -> Action | None:
        job = self._jobs[action.key]
        job.worker = worker
        now = self._store.action(action.key)
        if now is not None and not now.live:  # aborted while it started
            self._later(worker.end(self._grace))
        timed_out = False
        try:
            async with asyncio.timeout(max(action.deadline - time.time(), 0) if action.deadline else None):
                code = await worker.wait()
        except TimeoutError:
            timed_out = True
            worker.kill()
            code = await worker.wait()
        job.worker = None
        self._slots.release(action.key)
        return self._conclude(action, code, template, timed_out=timed_out, cached=cached)

    def _conclude(
        self, action: Action, code: int | None, template: tasks_pb2.TaskTemplate, *, timed_out: bool, cached: bool
    ) -> Action | None:
        """Note how a process ended; returns the action if it is to go on."""
        self._tidy(action)
        outcome = judge(self._layout.path(action.output_uri), code, template)
        if timed_out and outcome.error is not None:
            limit = template.metadata.timeout.ToTimedelta()
            outcome = Outcome(
                execution_pb2.ExecutionError(
                    code=MAX_RUNTIME_EXCEEDED,
                    message=f"The attempt ran longer than the task's {limit} and was killed.",
                    kind=execution_pb2.ExecutionError.USER,
                    recoverability=execution_pb2.ContainerError.RECOVERABLE,
                )
            )
        now = self._store.action(action.key)
        attempt = self._store.attempt(action.key, action.attempt) or Attempt(*action.key, action.attempt)
        ended = time.time()
        if now is None or not now.live:
            self._store.put_attempt(replace(attempt, phase=ABORTED, ended=ended))
            return None
        if outcome.error is None:
            self._store.put_attempt(replace(attempt, phase=SUCCEEDED, ended=ended, error=b""))
            if cached:
                self._store.put_cached(action.cache_key, action.output_uri)
            status = catalog_pb2.CACHE_POPULATED if cached else catalog_pb2.CACHE_DISABLED
            self._store.update(action.key, phase=SUCCEEDED, ended=ended, error=b"", cache_status=status)
            self._slots.dispatch()
            return None
        return self._fail(now, attempt, outcome, outcome.error, template)

    def _fail(
        self,
        action: Action,
        attempt: Attempt,
        outcome: Outcome,
        error: execution_pb2.ExecutionError,
        template: tasks_pb2.TaskTemplate,
    ) -> Action | None:
        now, raw = time.time(), error.SerializeToString()
        event = Event(now, error.code, error.message)
        system_failures = action.system_failures + outcome.system
        user_failures = action.user_failures + (not outcome.system)
        counts: dict[str, Any] = {"system_failures": system_failures, "user_failures": user_failures, "error": raw}
        failures, allowed = (
            (system_failures, MAX_SYSTEM_FAILURES)
            if outcome.system
            else (user_failures, template.metadata.retries.retries)
        )
        if failures > allowed or outcome.final:
            phase = TIMED_OUT if error.code == MAX_RUNTIME_EXCEEDED else FAILED
            self._store.put_attempt(
                replace(attempt, phase=phase, error=raw, ended=now, events=(*attempt.events, event))
            )
            self._store.update(action.key, phase=phase, ended=now, **counts)
            self._slots.dispatch()
            return None
        if outcome.system:
            self._store.put_attempt(replace(attempt, phase=QUEUED, events=(*attempt.events, event)))
            return self._store.update(action.key, phase=QUEUED, restart=1, **counts)
        self._store.put_attempt(replace(attempt, phase=FAILED, error=raw, ended=now, events=(*attempt.events, event)))
        return self._store.update(action.key, phase=QUEUED, restart=0, **counts)

    def _tidy(self, action: Action) -> None:
        # Its folders stay: with local storage a `flyte.io.File` made from a worker's file refers to that very file.
        self._store.update(action.key, only_live=False, pid=0, process="")


def _backoff(retries: literals_pb2.RetryStrategy, failures: int) -> float:
    """Seconds to wait before the attempt after so many failed ones."""
    backoff = retries.backoff
    delay = backoff.base.ToTimedelta().total_seconds() * (backoff.factor or 1.0) ** (failures - 1)
    cap = backoff.cap.ToTimedelta().total_seconds()
    return min(delay, cap) if cap else delay
