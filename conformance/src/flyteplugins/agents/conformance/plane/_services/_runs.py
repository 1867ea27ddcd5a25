"""Runs: start one, look at it, list, abort and signal."""

# ruff: noqa: ARG002 - the signatures are the protocol's

from __future__ import annotations

import hashlib
import random
import string
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from flyteidl2.common import identifier_pb2
from flyteidl2.common import run_pb2 as common_run_pb2
from flyteidl2.core import literals_pb2
from flyteidl2.task import task_definition_pb2
from flyteidl2.workflow import run_definition_pb2
from flyteidl2.workflow import run_service_pb2 as run_pb
from flyteidl2.workflow.run_service_connect import RunService

from flyteplugins.agents.conformance.plane._identity import caller
from flyteplugins.agents.conformance.plane._listing import page
from flyteplugins.agents.conformance.plane._plane import Plane
from flyteplugins.agents.conformance.plane._store import PAUSED, ROOT, Action, ActionKey, Run

from ._data import inputs_hash, read_data, write

Context = RequestContext[Any, Any]

_ORG: Final = "local"  # for clients that name none
_NAME: Final = string.ascii_lowercase + string.digits
_PRIMITIVE: Final = {"bool_value": "boolean", "int_value": "integer"}


class Runs(RunService):
    """The service of runs."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def create_run(self, request: run_pb.CreateRunRequest, ctx: Context) -> run_pb.CreateRunResponse:
        """Start a run of a task, sent along or registered."""
        plane, spec = self._plane, request.run_spec
        run_id = self._run_id(request)
        task = self._task(request)
        if spec.relation.relation_type == common_run_pb2.RELATION_TYPE_RECOVER:
            source = plane.root(spec.relation.related_to)
            if source.live:
                raise ConnectError(
                    Code.FAILED_PRECONDITION,
                    f"Run {source.run} is not over: wait for its end or abort it, then recover it.",
                )
        if spec.raw_data_storage.raw_data_prefix:
            plane.path(spec.raw_data_storage.raw_data_prefix)
        base = plane.path(spec.run_base_dir) if spec.run_base_dir else plane.layout.runs
        run_base = str(base / run_id.name)
        if request.HasField("offloaded_input_data"):
            input_uri, digest = request.offloaded_input_data.uri, request.offloaded_input_data.inputs_hash
            plane.path(input_uri)
        else:
            input_uri, digest = f"{run_base}/inputs/inputs.pb", inputs_hash(request.inputs, task)
            write(plane.path(input_uri), request.inputs.SerializeToString(deterministic=True))
        plane.store.add_run(
            Run(run_id.name, run_id.org, run_id.project, run_id.domain, spec.SerializeToString(), time.time())
        )
        plane.enqueue(
            ActionKey(run_id.name, ROOT),
            parent="",
            input_uri=input_uri,
            run_base=run_base,
            group="",
            spec=task,
            cache_key=_root_cache_key(task, digest),
        )
        return run_pb.CreateRunResponse(run=plane.views.run(plane.root(run_id)))

    def _run_id(self, request: run_pb.CreateRunRequest) -> identifier_pb2.RunIdentifier:
        run_id = identifier_pb2.RunIdentifier()
        if request.HasField("run_id"):
            run_id.CopyFrom(request.run_id)
            # The name becomes part of paths.
            if not run_id.name or not run_id.name.replace("-", "").replace("_", "").isalnum():
                raise ConnectError(
                    Code.INVALID_ARGUMENT, f"{run_id.name!r} cannot name a run: use letters, digits, '-' and '_'."
                )
            if self._plane.store.run(run_id.name) is not None:
                raise ConnectError(Code.ALREADY_EXISTS, f"There is a run {run_id.name} already.")
        else:
            run_id.org = request.project_id.organization
            run_id.project, run_id.domain = request.project_id.name, request.project_id.domain
            run_id.name = "r" + "".join(random.choices(_NAME, k=15))
        run_id.org = run_id.org or _ORG
        if not run_id.project or not run_id.domain:
            raise ConnectError(Code.INVALID_ARGUMENT, f"Run {run_id.name} names no project or no domain.")
        return run_id

    def _task(self, request: run_pb.CreateRunRequest) -> run_definition_pb2.TaskAction:
        if request.HasField("trigger_name"):
            raise ConnectError(Code.UNIMPLEMENTED, "This plane has no triggers: run the task itself.")
        spec = request.task_spec
        if request.HasField("task_id"):
            spec = task_definition_pb2.TaskSpec.FromString(self._plane.registered(request.task_id).spec)
        if not spec.task_template.container.args:
            raise ConnectError(
                Code.UNIMPLEMENTED,
                f"Task {spec.task_template.id.name} is a {spec.task_template.type!r}: this plane runs Python tasks.",
            )
        given = spec.task_template.id
        return run_definition_pb2.TaskAction(
            spec=spec,
            id=task_definition_pb2.TaskIdentifier(
                org=given.org, project=given.project, domain=given.domain, name=given.name, version=given.version
            ),
        )

    async def get_run_details(self, request: run_pb.GetRunDetailsRequest, ctx: Context) -> run_pb.GetRunDetailsResponse:
        """Everything about a run."""
        return run_pb.GetRunDetailsResponse(details=self._plane.views.run_details(self._plane.root(request.run_id)))

    async def watch_run_details(
        self, request: run_pb.WatchRunDetailsRequest, ctx: Context
    ) -> AsyncIterator[run_pb.WatchRunDetailsResponse]:
        """Everything about a run, again with each change of its root, until it is over."""
        async for action in self._watch(self._plane.root(request.run_id)):
            yield run_pb.WatchRunDetailsResponse(details=self._plane.views.run_details(action))

    async def get_action_details(
        self, request: run_pb.GetActionDetailsRequest, ctx: Context
    ) -> run_pb.GetActionDetailsResponse:
        """Everything about an action."""
        return run_pb.GetActionDetailsResponse(details=self._plane.views.details(self._plane.get(request.action_id)))

    async def watch_action_details(
        self, request: run_pb.WatchActionDetailsRequest, ctx: Context
    ) -> AsyncIterator[run_pb.WatchActionDetailsResponse]:
        """Everything about an action, again with each change, until it is over."""
        async for action in self._watch(self._plane.get(request.action_id)):
            yield run_pb.WatchActionDetailsResponse(details=self._plane.views.details(action))

    async def _watch(self, action: Action) -> AsyncIterator[Action]:
        with self._plane.store.watch("action", action.run, action.name) as news:
            while True:
                now = self._plane.store.action(action.key)
                if now is None:
                    return
                yield now
                if not now.live:
                    return
                await news.next()

    async def get_action_data(self, request: run_pb.GetActionDataRequest, ctx: Context) -> run_pb.GetActionDataResponse:
        """An action's inputs and outputs."""
        data = read_data(self._plane, self._plane.get(request.action_id))
        return run_pb.GetActionDataResponse(inputs=data.inputs, outputs=data.outputs)

    async def get_action_data_u_r_is(
        self, request: run_pb.GetActionDataURIsRequest, ctx: Context
    ) -> run_pb.GetActionDataURIsResponse:
        """Where an action's inputs and outputs are, whether or not they are still there."""
        action = self._plane.get(request.action_id)
        return run_pb.GetActionDataURIsResponse(inputs_uri=action.input_uri, outputs_uri=action.output_uri)

    async def list_runs(self, request: run_pb.ListRunsRequest, ctx: Context) -> run_pb.ListRunsResponse:
        """The runs of a project and domain."""
        plane = self._plane
        roots = []
        for run in plane.store.runs(request.project_id.name, request.project_id.domain):
            root = plane.store.action(ActionKey(run.name, ROOT))
            if root is not None:
                roots.append(root)
        if request.paused_actions_only:
            roots = [root for root in roots if any(a.phase == PAUSED for a in plane.store.actions(root.run))]
        shown, token = page(roots, request.request, _FIELDS)
        return run_pb.ListRunsResponse(runs=[plane.views.run(root) for root in shown], token=token)

    async def list_actions(self, request: run_pb.ListActionsRequest, ctx: Context) -> run_pb.ListActionsResponse:
        """The actions of a run."""
        actions = self._plane.store.actions(self._plane.root(request.run_id).run)
        shown, token = page(actions, request.request, _FIELDS)
        return run_pb.ListActionsResponse(actions=[self._plane.views.action(a) for a in shown], token=token)

    async def watch_actions(
        self, request: run_pb.WatchActionsRequest, ctx: Context
    ) -> AsyncIterator[run_pb.WatchActionsResponse]:
        """The actions of a run, then each as it changes, until the run is over."""
        root = self._plane.root(request.run_id)
        with self._plane.store.watch("run", root.run) as news:
            changed = self._plane.store.actions(root.run)
            while True:
                yield run_pb.WatchActionsResponse(
                    enriched_actions=[
                        run_definition_pb2.EnrichedAction(action=self._plane.views.action(action), meets_filter=True)
                        for action in changed
                    ]
                )
                if not self._plane.root(request.run_id).live:
                    return
                found = [self._plane.store.action(ActionKey(root.run, name)) for name in await news.next()]
                changed = [action for action in found if action is not None]

    async def abort_run(self, request: run_pb.AbortRunRequest, ctx: Context) -> run_pb.AbortRunResponse:
        """Abort a run."""
        root = self._plane.root(request.run_id)
        self._plane.abort(root, request.reason or "aborted", caller(ctx.request_headers()))
        return run_pb.AbortRunResponse()

    async def abort_action(self, request: run_pb.AbortActionRequest, ctx: Context) -> run_pb.AbortActionResponse:
        """Abort an action and what it asked for."""
        action = self._plane.get(request.action_id)
        self._plane.abort(action, request.reason or "aborted", caller(ctx.request_headers()))
        return run_pb.AbortActionResponse()

    async def signal_event(self, request: run_pb.SignalEventRequest, ctx: Context) -> run_pb.SignalEventResponse:
        """Signal a condition."""
        primitive = literals_pb2.Primitive()
        given = request.payload.WhichOneof("value")
        if given is not None:
            setattr(primitive, _PRIMITIVE.get(given, given), getattr(request.payload, given))
        literal = literals_pb2.Literal(scalar=literals_pb2.Scalar(primitive=primitive))
        self._plane.conditions.signal(self._plane.get(request.action_id), literal, caller(ctx.request_headers()))
        return run_pb.SignalEventResponse()


def _root_cache_key(task: run_definition_pb2.TaskAction, digest: str) -> str:
    """The cache key of a run's root. A worker names its children's itself, so a root and a child share no entry."""
    template = task.spec.task_template
    if not template.metadata.discoverable:
        return ""
    parts = (digest, template.id.name, template.metadata.discovery_version)
    interface = template.interface.SerializeToString(deterministic=True)
    return "root:" + hashlib.sha256("\0".join(parts).encode() + interface).hexdigest()


def _task_id(action: Action) -> task_definition_pb2.TaskIdentifier:
    if action.kind != "task":
        return task_definition_pb2.TaskIdentifier()
    return run_definition_pb2.TaskAction.FromString(action.spec).id


_FIELDS: Final[dict[str, Callable[[Action], str | float]]] = {
    "action_type": lambda action: str({"task": 1, "trace": 2, "condition": 3}[action.kind]),
    "created_at": lambda action: action.created,
    "name": lambda action: action.name,
    "parent_name": lambda action: action.parent,
    "phase": lambda action: str(action.phase),
    "task_name": lambda action: _task_id(action).name,
    "task_version": lambda action: _task_id(action).version,
    "updated_at": lambda action: action.ended or action.started or action.created,
}
