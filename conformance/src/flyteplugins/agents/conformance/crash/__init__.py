"""Kill an agent at every boundary, and compare what comes out with an agent that was left alone.

The agent is a standard dialogue: five turns, two parallel task tools, an inline tool, and a memory. It is written once, against
the surface that every adapter exports, and run with an adapter's own SDK over HTTP. Between any two things that it does there is
a boundary; a worker is killed there with SIGKILL, the run goes on in another process, and the answer, the requests to the model,
the effects of the tools, the transcript and the usage have to be those of an unbroken run.

`python -m flyteplugins.agents.conformance.crash --help` tells how to kill at all of them, or at random ones.
"""

from __future__ import annotations

from ._boundaries import BOUNDARIES, POINTS, Boundary, allowance
from ._dialogue import QUESTION, Dialogue, Outcome
from ._places import LocalPlace, Place, PlanePlace, kept_messages
from ._suite import compare, crash_at

__all__ = [
    "BOUNDARIES",
    "POINTS",
    "QUESTION",
    "Boundary",
    "Dialogue",
    "LocalPlace",
    "Outcome",
    "Place",
    "PlanePlace",
    "allowance",
    "compare",
    "crash_at",
    "kept_messages",
]
