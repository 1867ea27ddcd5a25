"""What a worker calls: one service in the newer dialect, two in the older, which has no conditions."""

# ruff: noqa: ARG002 - the signatures are the protocol's

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from flyteidl2.actions import actions_service_pb2 as actions_pb
from flyteidl2.actions.actions_service_connect import ActionsService
from flyteidl2.workflow import queue_service_pb2 as queue_pb
from flyteidl2.workflow import state_service_pb2 as state_pb
from flyteidl2.workflow.queue_service_connect import QueueService
from flyteidl2.workflow.state_service_connect import StateService

from flyteplugins.agents.conformance.plane._identity import caller
from flyteplugins.agents.conformance.plane._plane import Plane, Spec
from flyteplugins.agents.conformance.plane._store import ActionKey

Context = RequestContext[Any, Any]

_ABORTED = "aborted by the action that asked for it"


class Actions(ActionsService):
    """The newer dialect, which the plane has its workers speak."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def enqueue(self, request: actions_pb.EnqueueRequest, ctx: Context) -> actions_pb.EnqueueResponse:
        """Ask for an action."""
        _enqueue(self._plane, request.action)
        return actions_pb.EnqueueResponse()

    async def watch_for_updates(
        self, request: actions_pb.WatchForUpdatesRequest, ctx: Context
    ) -> AsyncIterator[actions_pb.WatchForUpdatesResponse]:
        """Hear of an action's children."""
        async for message in self._plane.watch_children(request.parent_action_id):
            if isinstance(message, state_pb.ControlMessage):
                yield actions_pb.WatchForUpdatesResponse(control_message=message)
            else:
                yield actions_pb.WatchForUpdatesResponse(action_update=message)

    async def abort(self, request: actions_pb.AbortRequest, ctx: Context) -> actions_pb.AbortResponse:
        """Abort an action."""
        self._plane.abort(self._plane.get(request.action_id), request.reason or _ABORTED, caller(ctx.request_headers()))
        return actions_pb.AbortResponse()

    async def signal(self, request: actions_pb.SignalRequest, ctx: Context) -> actions_pb.SignalResponse:
        """Signal a condition."""
        by = request.signalled_by if request.HasField("signalled_by") else caller(ctx.request_headers())
        self._plane.conditions.signal(self._plane.get(request.action_id), request.value, by)
        return actions_pb.SignalResponse()


class Queue(QueueService):
    """Asking for actions in the older dialect."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def enqueue_action(
        self, request: queue_pb.EnqueueActionRequest, ctx: Context
    ) -> queue_pb.EnqueueActionResponse:
        """Ask for an action."""
        _enqueue(self._plane, request)
        return queue_pb.EnqueueActionResponse()

    async def abort_queued_action(
        self, request: queue_pb.AbortQueuedActionRequest, ctx: Context
    ) -> queue_pb.AbortQueuedActionResponse:
        """Abort an action."""
        self._plane.abort(self._plane.get(request.action_id), request.reason or _ABORTED, caller(ctx.request_headers()))
        return queue_pb.AbortQueuedActionResponse()


class State(StateService):
    """Hearing of actions in the older dialect."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def watch(self, request: state_pb.WatchRequest, ctx: Context) -> AsyncIterator[state_pb.WatchResponse]:
        """Hear of an action's children."""
        async for message in self._plane.watch_children(request.parent_action_id):
            if isinstance(message, state_pb.ControlMessage):
                yield state_pb.WatchResponse(control_message=message)
            else:
                yield state_pb.WatchResponse(action_update=message)


def _enqueue(plane: Plane, asked: actions_pb.Action | queue_pb.EnqueueActionRequest) -> None:
    kind = asked.WhichOneof("spec")
    if kind is None:  # the 2.12 SDK sends a condition so in the older dialect
        raise ConnectError(
            Code.INVALID_ARGUMENT, f"{asked.action_id.name} is neither task, trace nor condition; set _U_USE_ACTIONS=1."
        )
    spec: Spec = getattr(asked, kind)
    plane.enqueue(
        ActionKey(asked.action_id.run.name, asked.action_id.name),
        parent=asked.parent_action_name,
        input_uri=asked.input_uri,
        run_base=asked.run_output_base,
        group=asked.group,
        spec=spec,
        cache_key=asked.task.cache_key.value if kind == "task" else "",
    )
