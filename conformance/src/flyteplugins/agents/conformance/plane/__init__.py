"""A Flyte control plane on one machine: the real SDK, CLI and workers, in one process that can be killed.

It is for tests and demonstrations, and says in its README what it does not do. Start it with

    python -m flyteplugins.agents.conformance.plane up --data DIR --port 8090

or in tests with the fixtures of `flyteplugins.agents.conformance.plane.testing`.
"""

from .local import LocalPlane, kill_worker, load_flow
from .modes import Drop, Modes
from .server import PlaneError, Settings, serve

__all__ = [
    # serve one in this process
    "PlaneError",
    "Settings",
    "serve",
    # how it behaves
    "Drop",
    "Modes",
    # have one in a process of its own
    "LocalPlane",
    "kill_worker",
    "load_flow",
]
