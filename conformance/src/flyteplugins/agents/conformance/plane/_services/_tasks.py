"""Registered tasks."""

# ruff: noqa: ARG002 - the signatures are the protocol's

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from flyteidl2.common import identity_pb2
from flyteidl2.task import task_definition_pb2, task_service_pb2
from flyteidl2.task.task_service_connect import TaskService

from flyteplugins.agents.conformance.plane._identity import caller
from flyteplugins.agents.conformance.plane._listing import page
from flyteplugins.agents.conformance.plane._plane import Plane
from flyteplugins.agents.conformance.plane._store import DeployedTask
from flyteplugins.agents.conformance.plane._views import timestamp

Context = RequestContext[Any, Any]


class Tasks(TaskService):
    """The service of registered tasks."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def deploy_task(
        self, request: task_service_pb2.DeployTaskRequest, ctx: Context
    ) -> task_service_pb2.DeployTaskResponse:
        """Register one version of a task."""
        if request.triggers:
            raise ConnectError(
                Code.UNIMPLEMENTED, f"This plane has no triggers: deploy {request.task_id.name} without them."
            )
        task_id = request.task_id
        task = DeployedTask(
            project=task_id.project,
            domain=task_id.domain,
            name=task_id.name,
            version=task_id.version,
            spec=request.spec.SerializeToString(),
            deployed=time.time(),
            by=caller(ctx.request_headers()).SerializeToString(),
        )
        if not self._plane.store.add_task(task):
            raise ConnectError(Code.ALREADY_EXISTS, f"Task {task_id.name} is registered in version {task_id.version}.")
        return task_service_pb2.DeployTaskResponse()

    async def get_task_details(
        self, request: task_service_pb2.GetTaskDetailsRequest, ctx: Context
    ) -> task_service_pb2.GetTaskDetailsResponse:
        """One version of a task."""
        task = self._plane.registered(request.task_id)
        details = task_definition_pb2.TaskDetails(
            task_id=request.task_id, metadata=_metadata(task), spec=task_definition_pb2.TaskSpec.FromString(task.spec)
        )
        return task_service_pb2.GetTaskDetailsResponse(details=details)

    async def list_tasks(
        self, request: task_service_pb2.ListTasksRequest, ctx: Context
    ) -> task_service_pb2.ListTasksResponse:
        """The registered tasks of a project and domain."""
        if request.known_filters:
            raise ConnectError(Code.UNIMPLEMENTED, "This plane lists tasks by name only.")
        tasks = self._plane.store.tasks(request.project_id.name, request.project_id.domain)
        shown, token = page(tasks, request.request, _FIELDS)
        org = request.project_id.organization
        listed = [
            task_definition_pb2.Task(
                task_id=task_definition_pb2.TaskIdentifier(
                    org=org, project=task.project, domain=task.domain, name=task.name, version=task.version
                ),
                metadata=_metadata(task),
            )
            for task in shown
        ]
        return task_service_pb2.ListTasksResponse(tasks=listed, token=token)


def _metadata(task: DeployedTask) -> task_definition_pb2.TaskMetadata:
    spec = task_definition_pb2.TaskSpec.FromString(task.spec)
    return task_definition_pb2.TaskMetadata(
        deployed_by=identity_pb2.EnrichedIdentity.FromString(task.by),
        deployed_at=timestamp(task.deployed),
        short_name=spec.short_name,
        environment_name=spec.environment.name,
        short_description=spec.documentation.short_description,
    )


_FIELDS: Final[dict[str, Callable[[DeployedTask], str | float]]] = {
    "created_at": lambda task: task.deployed,
    "name": lambda task: task.name,
    "version": lambda task: task.version,
}
