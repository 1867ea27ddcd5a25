"""The state as clients see it: rows to protobuf messages."""

from __future__ import annotations

from typing import Final, cast

from flyteidl2.common import identifier_pb2, identity_pb2, phase_pb2
from flyteidl2.core import catalog_pb2, execution_pb2, literals_pb2
from flyteidl2.task import common_pb2, run_pb2
from flyteidl2.workflow import run_definition_pb2, state_service_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from ._layout import Layout
from ._store import ABORTED, RECOVERED, SUCCEEDED, Action, ActionKey, Run, Store

_ACTION_TYPE: Final = {
    "task": run_definition_pb2.ACTION_TYPE_TASK,
    "trace": run_definition_pb2.ACTION_TYPE_TRACE,
    "condition": run_definition_pb2.ACTION_TYPE_CONDITION,
}
_ERROR_KIND: Final = {
    execution_pb2.ExecutionError.USER: run_definition_pb2.ErrorInfo.KIND_USER,
    execution_pb2.ExecutionError.SYSTEM: run_definition_pb2.ErrorInfo.KIND_SYSTEM,
}


def timestamp(seconds: float) -> Timestamp:
    """Seconds since the epoch as a message."""
    message = Timestamp()
    message.FromNanoseconds(int(seconds * 1e9))
    return message


class Views:
    """Builds messages.

    Args:
        store: the state.
        layout: the data folder.
    """

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def run_of(self, action: Action) -> Run:
        """The run of an action."""
        run = self._store.run(action.run)
        if run is None:
            raise LookupError(f"Action {action.name} is of run {action.run}, which does not exist.")
        return run

    def action_id(self, action: Action) -> identifier_pb2.ActionIdentifier:
        """The full name of an action."""
        run = self.run_of(action)
        return identifier_pb2.ActionIdentifier(
            name=action.name,
            run=identifier_pb2.RunIdentifier(org=run.org, project=run.project, domain=run.domain, name=run.name),
        )

    def update(self, action: Action) -> state_service_pb2.ActionUpdate:
        """An action as the worker that asked for it hears of it."""
        update = state_service_pb2.ActionUpdate(
            action_id=self.action_id(action), phase=_phase(action.phase), output_uri=action.output_uri
        )
        if action.error and not action.live and action.phase not in (SUCCEEDED, RECOVERED):
            update.error.ParseFromString(action.error)
        if action.value:
            update.value.ParseFromString(action.value)
        return update

    def action(self, action: Action) -> run_definition_pb2.Action:
        """An action as a listing shows it."""
        details = self.details(action)
        return run_definition_pb2.Action(id=details.id, metadata=details.metadata, status=details.status)

    def run(self, root: Action) -> run_definition_pb2.Run:
        """A run as a listing shows it."""
        spec = run_pb2.RunSpec.FromString(self.run_of(root).spec)
        return run_definition_pb2.Run(action=self.action(root), labels=dict(spec.labels.values))

    def run_details(self, root: Action) -> run_definition_pb2.RunDetails:
        """Everything about a run."""
        spec = run_pb2.RunSpec.FromString(self.run_of(root).spec)
        return run_definition_pb2.RunDetails(run_spec=spec, action=self.details(root))

    def details(self, action: Action) -> run_definition_pb2.ActionDetails:
        """Everything about an action."""
        details = run_definition_pb2.ActionDetails(
            id=self.action_id(action),
            metadata=run_definition_pb2.ActionMetadata(
                parent=action.parent, group=action.grp, action_type=_ACTION_TYPE[action.kind]
            ),
            status=self._status(action),
        )
        metadata = details.metadata
        if action.kind == "task":
            task = run_definition_pb2.TaskAction.FromString(action.spec)
            details.task.CopyFrom(task.spec)
            metadata.task.CopyFrom(
                run_definition_pb2.TaskActionMetadata(
                    id=task.id, task_type=task.spec.task_template.type, short_name=task.spec.short_name
                )
            )
            metadata.environment_name = task.spec.environment.name
            metadata.funtion_name = task.spec.short_name  # spelt so in the protocol
            if not action.parent:
                spec = run_pb2.RunSpec.FromString(self.run_of(action).spec)
                if spec.HasField("relation"):
                    metadata.relation.CopyFrom(spec.relation)
        elif action.kind == "trace":
            trace = run_definition_pb2.TraceAction.FromString(action.spec)
            details.trace.CopyFrom(trace.spec)
            metadata.trace.name = metadata.funtion_name = trace.name
        else:
            condition = run_definition_pb2.ConditionAction.FromString(action.spec)
            details.condition.CopyFrom(condition)
            metadata.condition.CopyFrom(
                run_definition_pb2.ConditionActionMetadata(name=condition.name, type=condition.type)
            )
        if action.phase == RECOVERED:
            spec = run_pb2.RunSpec.FromString(self.run_of(action).spec)
            metadata.recovered_from.run.CopyFrom(spec.relation.related_to)
            metadata.recovered_from.name = action.name
        self._add_ending(details, action)
        for attempt in self.attempts(action):
            details.attempts.append(attempt)
        return details

    def _status(self, action: Action) -> run_definition_pb2.ActionStatus:
        started = action.started or action.created
        status = run_definition_pb2.ActionStatus(
            phase=_phase(action.phase),
            attempts=max(action.attempt, 1),
            start_time=timestamp(started),
            cache_status=cast(catalog_pb2.CatalogCacheStatus, action.cache_status),
        )
        if action.ended:
            status.end_time.CopyFrom(timestamp(action.ended))
            status.duration_ms = int(1000 * (action.ended - started))
        return status

    def _add_ending(self, details: run_definition_pb2.ActionDetails, action: Action) -> None:
        by = identity_pb2.EnrichedIdentity.FromString(action.by)
        if action.value:
            details.signal_info.signalled_by.CopyFrom(by)
            details.signal_info.output.CopyFrom(literals_pb2.Literal.FromString(action.value))
        if action.live or not action.error:
            return
        error = execution_pb2.ExecutionError.FromString(action.error)
        if action.phase == ABORTED:
            details.abort_info.reason = error.message
            details.abort_info.aborted_by.CopyFrom(by)
        else:
            details.error_info.CopyFrom(_error_info(error))

    def attempts(self, action: Action) -> list[run_definition_pb2.ActionAttempt]:
        """The attempts of a task action."""
        shown = []
        for attempt in self._store.attempts(ActionKey(action.run, action.name)):
            folder = self._layout.attempt(action.run_base, action.name, attempt.attempt)
            message = run_definition_pb2.ActionAttempt(
                attempt=attempt.attempt,
                phase=_phase(attempt.phase),
                start_time=timestamp(attempt.started),
                logs_available=True,
                cache_status=cast(catalog_pb2.CatalogCacheStatus, action.cache_status),
                outputs=common_pb2.OutputReferences(
                    output_uri=str(folder / "outputs.pb"), report_uri=str(folder / "report.html")
                ),
            )
            if attempt.ended:
                message.end_time.CopyFrom(timestamp(attempt.ended))
            if attempt.error:
                message.error_info.CopyFrom(_error_info(execution_pb2.ExecutionError.FromString(attempt.error)))
            for event in attempt.events:
                message.cluster_events.add(
                    occurred_at=timestamp(event.time), reason=event.reason, message=event.message
                )
            shown.append(message)
        return shown


def _error_info(error: execution_pb2.ExecutionError) -> run_definition_pb2.ErrorInfo:
    kind = _ERROR_KIND.get(error.kind, run_definition_pb2.ErrorInfo.KIND_UNSPECIFIED)
    return run_definition_pb2.ErrorInfo(message=error.message, code=error.code, kind=kind)


def _phase(number: int) -> phase_pb2.ActionPhase:
    return cast(phase_pb2.ActionPhase, number)
