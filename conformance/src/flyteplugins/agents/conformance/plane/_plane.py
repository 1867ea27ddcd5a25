"""The plane's parts, put together, and what its services share: asking for an action, and hearing of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.common import identifier_pb2, identity_pb2
from flyteidl2.core import execution_pb2
from flyteidl2.task import task_definition_pb2
from flyteidl2.workflow import run_definition_pb2, state_service_pb2

from flyteplugins.agents.conformance._forks import ForkServer

from ._conditions import Conditions
from ._executor import Executor
from ._launch import Launcher
from ._layout import Layout, OutsideDataFolderError
from ._outcome import clear, read_error
from ._recovery import Recovery
from ._store import FAILED, PAUSED, ROOT, SUCCEEDED, Action, ActionKey, DeployedTask, Store
from ._views import Views
from .modes import Modes

Spec = run_definition_pb2.TaskAction | run_definition_pb2.TraceAction | run_definition_pb2.ConditionAction
ChildMessage = state_service_pb2.ActionUpdate | state_service_pb2.ControlMessage


class Plane:
    """One plane.

    Args:
        data: the data folder.
        endpoint: the plane's own URL.
        binaries: folder with the `a0` program that runs the tasks.
        slots: workers that may compute at once.
        abort_grace: seconds that an aborted worker goes on before it is killed.
        modes: how the plane is to behave; can be set anew while it runs.
        forks: servers that workers are forked from, by turns.
    """

    def __init__(
        self,
        data: Path,
        *,
        endpoint: str,
        binaries: Path,
        slots: int,
        abort_grace: float,
        modes: Modes,
        forks: Sequence[ForkServer] = (),
    ) -> None:
        self.modes = modes
        self.endpoint = endpoint
        self.layout = Layout(data)
        self.store = Store(self.layout.database)
        self.views = Views(self.store, self.layout)
        self.launcher = Launcher(self.layout, endpoint, binaries)
        self.executor = Executor(
            self.store,
            self.layout,
            self.launcher,
            slots=slots,
            modes=lambda: self.modes,
            abort_grace=abort_grace,
            forks=forks,
        )
        self.recovery = Recovery(self.store, self.layout)
        self.conditions = Conditions(self.store, self.executor.yield_slot)

    def recover(self) -> None:
        """Take up what an earlier plane left in the data folder."""
        self.executor.recover()
        self.conditions.recover()

    async def stop(self) -> None:
        """Kill all workers and close the state."""
        await self.executor.stop()
        self.store.close()

    # ---- looking up

    def path(self, uri: str) -> Path:
        """The file behind a URI that a client gave.

        Raises:
            ConnectError: `INVALID_ARGUMENT`, it is outside the data folder.
        """
        try:
            return self.layout.path(uri)
        except OutsideDataFolderError as e:
            raise ConnectError(Code.INVALID_ARGUMENT, str(e)) from e

    def get(self, action_id: identifier_pb2.ActionIdentifier) -> Action:
        """The action that a client named.

        Raises:
            ConnectError: `NOT_FOUND`.
        """
        action = self.store.action(ActionKey(action_id.run.name, action_id.name))
        if action is None:
            raise ConnectError(Code.NOT_FOUND, f"There is no action {action_id.run.name}/{action_id.name}.")
        return action

    def root(self, run_id: identifier_pb2.RunIdentifier) -> Action:
        """The root action of the run that a client named.

        Raises:
            ConnectError: `NOT_FOUND`.
        """
        action = self.store.action(ActionKey(run_id.name, ROOT))
        if action is None:
            raise ConnectError(Code.NOT_FOUND, f"There is no run {run_id.name}.")
        return action

    def registered(self, task_id: task_definition_pb2.TaskIdentifier) -> DeployedTask:
        """The registered task that a client named.

        Raises:
            ConnectError: `NOT_FOUND`.
        """
        task = self.store.task(task_id.project, task_id.domain, task_id.name, task_id.version)
        if task is None:
            scope = f"{task_id.project}/{task_id.domain}"
            raise ConnectError(
                Code.NOT_FOUND, f"Task {task_id.name} is not registered in version {task_id.version} in {scope}."
            )
        return task

    # ---- asking for an action

    def enqueue(
        self, key: ActionKey, *, parent: str, input_uri: str, run_base: str, group: str, spec: Spec, cache_key: str = ""
    ) -> None:
        """Take an action on. To ask for the same one again is to be told of the first.

        Args:
            key: its run and name.
            parent: name of the action that asks, empty for a root.
            input_uri: its inputs file.
            run_base: folder of its run.
            group: the group it is asked for in.
            spec: what it is.
            cache_key: key of its result in the cache.

        Raises:
            ConnectError: `NOT_FOUND`, there is no such run or parent; `ABORTED`, the parent is over;
                `INVALID_ARGUMENT`, a path outside the data folder or a condition of an odd type.
        """
        self._check_asker(key, parent)
        self.path(input_uri)
        self.path(run_base)
        action = Action(
            *key,
            parent=parent,
            grp=group,
            spec=spec.SerializeToString(),
            input_uri=input_uri,
            run_base=run_base.rstrip("/"),
            cache_key=cache_key,
        )
        if isinstance(spec, run_definition_pb2.TraceAction):
            self._record_trace(action, spec)
            return
        known = self.store.action(key)
        if known is not None and not self._forgotten(known):
            self.store.announce(known)
            return
        if known is not None:
            self.store.forget_attempts(key)
            clear(self.layout.attempt(action.run_base, key.name, 1))
        if isinstance(spec, run_definition_pb2.ConditionAction):
            self.conditions.check(spec)
            condition = replace(
                action, kind="condition", phase=PAUSED, deadline=self.conditions.deadline(spec, action.created)
            )
            self.store.put(condition)
            self.conditions.arm(condition)
        elif (recovered := self.recovery.task(action)) is not None:
            self.store.put(recovered)
        else:
            self.store.put(action)
            self.executor.submit(action)
        self.executor.yield_slot()

    def _check_asker(self, key: ActionKey, parent: str) -> None:
        if self.store.run(key.run) is None:
            raise ConnectError(Code.NOT_FOUND, f"There is no run {key.run}.")
        if not parent:
            return
        asker = self.store.action(ActionKey(key.run, parent))
        if asker is None:
            raise ConnectError(Code.NOT_FOUND, f"There is no action {key.run}/{parent} to ask for {key.name}.")
        if not asker.live:
            raise ConnectError(Code.ABORTED, f"{key.run}/{parent} is over and cannot ask for {key.name}.")

    def _record_trace(self, action: Action, spec: run_definition_pb2.TraceAction) -> None:
        """Note a trace. Its worker ran it already; a retry's record takes the place of the earlier one."""
        phase = spec.phase or SUCCEEDED
        error = b""
        if phase == FAILED:
            # The request does not carry the error; the worker wrote it down before.
            found = read_error(self.layout.path(f"{action.run_base}/{action.name}"))
            error = found.SerializeToString() if found is not None else b""
        asker = self.store.action(action.parent_key)
        self.store.put(
            replace(
                action,
                kind="trace",
                phase=phase,
                output_uri=spec.outputs.output_uri,
                error=error,
                launch=asker.launch if asker is not None else 0,
                started=spec.start_time.ToNanoseconds() / 1e9,
                ended=spec.end_time.ToNanoseconds() / 1e9,
            )
        )

    def _forgotten(self, child: Action) -> bool:
        limit = self.modes.forget_children_after
        return limit is not None and not child.live and bool(child.parent) and time.time() - child.ended >= limit

    # ---- hearing of actions

    async def watch_children(self, parent_id: identifier_pb2.ActionIdentifier) -> AsyncIterator[ChildMessage]:
        """What a worker hears of its children: those there are, a mark that these were all, then every change.

        The worker waits 5 seconds for the mark and then goes on as if there were none.
        """
        parent = ActionKey(parent_id.run.name, parent_id.name)
        with self.store.watch("children", *parent) as news:
            if self.modes.snapshot_delay:
                await asyncio.sleep(self.modes.snapshot_delay)
            asker = self.store.action(parent)
            for child in self.store.children(parent):
                if self._served(child, asker):
                    yield self.views.update(child)
            if self.modes.serve_traces:
                for trace in self.recovery.traces(parent):
                    if not _recoverable(trace):
                        yield self.views.update(trace)
            yield state_service_pb2.ControlMessage(sentinel=True)
            while True:
                for name in await news.next():
                    changed = self.store.action(ActionKey(parent.run, name))
                    if changed is not None:
                        yield self.views.update(changed)

    def _served(self, child: Action, asker: Action | None) -> bool:
        """Whether the worker that asks is told of a child that was there before it asked."""
        if child.kind == "trace":
            if asker is not None and child.launch == asker.launch:
                return True  # its own record: it lost the connection and may not have heard that it is stored
            if not self.modes.serve_traces or _recoverable(child):
                return False
        return not self._forgotten(child)

    # ---- ending actions

    def abort(self, action: Action, reason: str, by: identity_pb2.EnrichedIdentity) -> None:
        """Abort an action and all below it."""
        self.executor.abort(action, reason, by)


def _recoverable(trace: Action) -> bool:
    """Whether a trace failed with an error that the SDK would run again."""
    if trace.phase != FAILED or not trace.error:
        return False
    error = execution_pb2.ExecutionError.FromString(trace.error)
    return error.recoverability == execution_pb2.ContainerError.RECOVERABLE
