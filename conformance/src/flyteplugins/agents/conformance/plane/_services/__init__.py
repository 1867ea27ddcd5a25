"""The Flyte services that the SDK, the CLI and the worker call, as the ASGI applications that `flyteidl2` ships.

A call that is not here is answered with `UNIMPLEMENTED`.
"""

from __future__ import annotations

from flyteidl2.actions.actions_service_connect import ActionsServiceASGIApplication
from flyteidl2.cluster.service_connect import ClusterServiceASGIApplication
from flyteidl2.dataproxy.dataproxy_service_connect import DataProxyServiceASGIApplication
from flyteidl2.imagebuilder.service_connect import ImageServiceASGIApplication
from flyteidl2.task.task_service_connect import TaskServiceASGIApplication
from flyteidl2.workflow.queue_service_connect import QueueServiceASGIApplication
from flyteidl2.workflow.run_service_connect import RunServiceASGIApplication
from flyteidl2.workflow.state_service_connect import StateServiceASGIApplication
from starlette.types import ASGIApp

from flyteplugins.agents.conformance.plane._plane import Plane

from ._actions import Actions, Queue, State
from ._data import Cluster, Data
from ._images import Images
from ._runs import Runs
from ._tasks import Tasks

_MAX_MESSAGE = 64 << 20  # bytes; the SDK's own limit for inputs is 10 MiB


def services(plane: Plane) -> dict[str, ASGIApp]:
    """The services of a plane, by the path that they are served under."""
    applications = (
        ActionsServiceASGIApplication(Actions(plane), read_max_bytes=_MAX_MESSAGE),
        QueueServiceASGIApplication(Queue(plane), read_max_bytes=_MAX_MESSAGE),
        StateServiceASGIApplication(State(plane), read_max_bytes=_MAX_MESSAGE),
        RunServiceASGIApplication(Runs(plane), read_max_bytes=_MAX_MESSAGE),
        TaskServiceASGIApplication(Tasks(plane), read_max_bytes=_MAX_MESSAGE),
        DataProxyServiceASGIApplication(Data(plane), read_max_bytes=_MAX_MESSAGE),
        ImageServiceASGIApplication(Images(), read_max_bytes=_MAX_MESSAGE),
        ClusterServiceASGIApplication(Cluster(), read_max_bytes=_MAX_MESSAGE),
    )
    return {application.path: application for application in applications}
