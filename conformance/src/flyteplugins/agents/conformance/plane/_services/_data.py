"""Inputs, outputs, reports, code and logs. The "signed" URLs that it hands out are the plane's own `/blob`."""

# ruff: noqa: ARG002 - the signatures are the protocol's

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext
from flyteidl2.cluster import payload_pb2 as cluster_pb
from flyteidl2.cluster.service_connect import ClusterService
from flyteidl2.common import run_pb2 as common_run_pb2
from flyteidl2.dataproxy import dataproxy_service_pb2 as data_pb
from flyteidl2.dataproxy.dataproxy_service_connect import DataProxyService
from flyteidl2.logs.dataplane import payload_pb2 as logs_pb
from flyteidl2.task import common_pb2, task_definition_pb2
from flyteidl2.workflow import run_definition_pb2

from flyteplugins.agents.conformance.plane._plane import Plane
from flyteplugins.agents.conformance.plane._store import QUEUED, RECOVERED, RUNNING, SUCCEEDED, Action
from flyteplugins.agents.conformance.plane._views import timestamp

Context = RequestContext[Any, Any]

_LOG_POLL: Final = 0.2  # seconds between looks at a log that is being written
_LOG_CHUNK: Final = 1 << 20  # bytes of a log in one message
_EXPIRES: Final = 3600  # seconds; told to clients, as the protocol wants it


class Data(DataProxyService):
    """The service of data and logs."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def create_upload_location(
        self, request: data_pb.CreateUploadLocationRequest, ctx: Context
    ) -> data_pb.CreateUploadLocationResponse:
        """A place for a file, and where to send it."""
        root = (
            request.filename_root or request.content_md5.hex() or hashlib.sha256(request.filename.encode()).hexdigest()
        )
        file = self._plane.layout.uploads / request.project / request.domain / root / request.filename
        if not file.resolve().is_relative_to(self._plane.layout.uploads):
            raise ConnectError(Code.INVALID_ARGUMENT, f"{root}/{request.filename} leads out of the folder for uploads.")
        return data_pb.CreateUploadLocationResponse(
            signed_url=_url(self._plane, file), native_url=str(file), expires_at=timestamp(time.time() + _EXPIRES)
        )

    async def upload_inputs(self, request: data_pb.UploadInputsRequest, ctx: Context) -> data_pb.UploadInputsResponse:
        """Keep a run's inputs until the run is created."""
        plane = self._plane
        spec = request.task_spec
        if request.HasField("task_id"):
            spec = task_definition_pb2.TaskSpec.FromString(plane.registered(request.task_id).spec)
        raw = request.inputs.SerializeToString(deterministic=True)
        base = plane.path(request.base_dir) if request.base_dir else plane.layout.uploads
        file = base / "inputs" / hashlib.sha256(raw).hexdigest() / "inputs.pb"
        write(file, raw)
        digest = inputs_hash(request.inputs, run_definition_pb2.TaskAction(spec=spec))
        return data_pb.UploadInputsResponse(
            offloaded_input_data=common_run_pb2.OffloadedInputData(uri=str(file), inputs_hash=digest)
        )

    async def get_action_data(
        self, request: data_pb.GetActionDataRequest, ctx: Context
    ) -> data_pb.GetActionDataResponse:
        """An action's inputs and outputs."""
        return read_data(self._plane, self._plane.get(request.action_id))

    async def create_download_link(
        self, request: data_pb.CreateDownloadLinkRequest, ctx: Context
    ) -> data_pb.CreateDownloadLinkResponse:
        """Where to get a report or a code bundle."""
        action = self._plane.get(request.action_attempt_id.action_id)
        if request.artifact_type == data_pb.ARTIFACT_TYPE_REPORT:
            attempt = request.action_attempt_id.attempt
            file = self._plane.layout.attempt(action.run_base, action.name, attempt) / "report.html"
            if not file.exists():
                raise ConnectError(
                    Code.NOT_FOUND, f"Attempt {attempt} of {action.run}/{action.name} has flushed no report."
                )
        else:
            template = run_definition_pb2.TaskAction.FromString(action.spec).spec.task_template
            uri = template.metadata.code_bundle_uri
            if not uri:
                raise ConnectError(Code.NOT_FOUND, f"{action.run}/{action.name} runs no code bundle.")
            file = self._plane.path(uri)
        link = data_pb.PreSignedURLs(signed_url=[_url(self._plane, file)], expires_at=timestamp(time.time() + _EXPIRES))
        return data_pb.CreateDownloadLinkResponse(pre_signed_urls=link)

    async def tail_logs(
        self, request: data_pb.TailLogsRequest, ctx: Context
    ) -> AsyncIterator[data_pb.TailLogsResponse]:
        """An attempt's log, and what is added to it until the attempt is over."""
        action = self._plane.get(request.action_id)
        number = request.attempt or action.attempt
        file = self._plane.launcher.log(action, number)
        if not file.exists():
            raise ConnectError(Code.NOT_FOUND, f"Attempt {number} of {action.run}/{action.name} has no log.")
        with file.open("rb") as lines:
            while True:
                # Look at the state before the file: what is written between the two is then read in the next round.
                running = self._running(action, number)
                while chunk := lines.readlines(_LOG_CHUNK):
                    written = timestamp(file.stat().st_mtime)
                    shown = [
                        logs_pb.LogLine(message=line.decode(errors="replace"), timestamp=written) for line in chunk
                    ]
                    yield data_pb.TailLogsResponse(logs=[data_pb.TailLogsResponse.Logs(lines=shown)])
                if not running:
                    return
                await asyncio.sleep(_LOG_POLL)

    def _running(self, action: Action, number: int) -> bool:
        """Whether anything may be added to the attempt's log: one whose worker was lost starts again, in the same log."""
        attempt = self._plane.store.attempt(action.key, number)
        now = self._plane.store.action(action.key)
        return now is not None and now.live and attempt is not None and attempt.phase in (QUEUED, RUNNING)


class Cluster(ClusterService):
    """The service that sends clients to a cluster; here there is only the one."""

    async def select_cluster(
        self, request: cluster_pb.SelectClusterRequest, ctx: Context
    ) -> cluster_pb.SelectClusterResponse:
        """No endpoint: the client is to stay with the one that it has."""
        return cluster_pb.SelectClusterResponse()


def inputs_hash(inputs: common_pb2.Inputs, task: run_definition_pb2.TaskAction) -> str:
    """The digest of a root's inputs for its cache key, without those that its task has the cache ignore."""
    ignored = set(task.spec.task_template.metadata.cache_ignore_input_vars)
    kept = common_pb2.Inputs(literals=[literal for literal in inputs.literals if literal.name not in ignored])
    return hashlib.sha256(kept.SerializeToString(deterministic=True)).hexdigest()


def read_data(plane: Plane, action: Action) -> data_pb.GetActionDataResponse:
    """An action's inputs and outputs.

    Raises:
        ConnectError: `NOT_FOUND`, one of them should be there and is not.
    """
    outputs_uri = action.output_uri if action.kind == "trace" else f"{action.output_uri}/outputs.pb"
    data = data_pb.GetActionDataResponse(
        inputs=common_pb2.Inputs(), outputs=common_pb2.Outputs(), inputs_uri=action.input_uri, outputs_uri=outputs_uri
    )
    if action.kind != "condition":  # it has neither; its value is in its details
        data.inputs.ParseFromString(_read(plane.path(action.input_uri), "inputs", action))
        if action.phase in (SUCCEEDED, RECOVERED) and action.output_uri:
            data.outputs.ParseFromString(_read(plane.path(outputs_uri), "outputs", action))
    return data


def _read(file: Path, what: str, action: Action) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise ConnectError(
            Code.NOT_FOUND, f"The {what} of {action.run}/{action.name} are no longer at {file}."
        ) from None


def write(file: Path, content: bytes) -> None:
    """Write a file as a whole, or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{file.name}.{os.urandom(8).hex()}.part")
    part.write_bytes(content)
    part.replace(file)


def _url(plane: Plane, file: Path) -> str:
    return f"{plane.endpoint}/blob/{file.relative_to(plane.layout.data)}"
