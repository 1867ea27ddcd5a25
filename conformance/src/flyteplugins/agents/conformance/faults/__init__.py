"""Kill a worker at a named point of its work, once, so that what a retry does can be seen.

A *fault point* is a named place in the code. A process reaches it either by calling `reach("name")` or because the
point's definition (`FaultPoint`) names a function that is wrapped when its module is imported. Nothing is patched
unless the process is started through this package:

    export AGENTS_FAULTS="after-model-call@2" AGENTS_FAULT_DIR=/tmp/faults
    python -m flyteplugins.agents.conformance.faults SCRIPT [ARGUMENTS ...]

The environment says what happens (see `PLAN_VARIABLE`, `DIRECTORY_VARIABLE` and `POINTS_VARIABLE`). Each time a point
is reached it gets the next number of that point *in its run*, counted on disk over all processes and attempts; the
process whose number is named in the plan dies by SIGKILL. As no two calls get the same number, each fault strikes once,
and the retry lives.
"""

from ._plan import (
    DIRECTORY_VARIABLE,
    PLAN_VARIABLE,
    POINTS_VARIABLE,
    Fault,
    FaultPoint,
    dump_points,
    load_points,
    parse_plan,
)
from ._reach import FaultRecord, reach, reached, struck
from ._wrap import install

__all__ = [
    # what to do
    "Fault",
    "FaultPoint",
    "parse_plan",
    "dump_points",
    "load_points",
    # where to do it
    "install",
    "reach",
    # what happened
    "FaultRecord",
    "reached",
    "struck",
    # the environment
    "DIRECTORY_VARIABLE",
    "PLAN_VARIABLE",
    "POINTS_VARIABLE",
]
