"""Run a script with fault points installed: `python -m flyteplugins.agents.conformance.faults SCRIPT [ARGUMENTS ...]`.

The points and the plan come from the environment. Flyte's worker starts itself through this when `_F_EXEC_WRAPPER`
names it (`flyte/_bin/runtime.py`), so that neither the worker nor what it runs needs to know.
"""

from __future__ import annotations

import os
import runpy
import sys

from . import DIRECTORY_VARIABLE, PLAN_VARIABLE, POINTS_VARIABLE, install, load_points, parse_plan


def main() -> None:
    """Check the environment, install the points, and become the script."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m flyteplugins.agents.conformance.faults SCRIPT [ARGUMENTS ...]")
    try:
        plan = parse_plan(os.environ.get(PLAN_VARIABLE, ""))
        points = load_points(os.environ.get(POINTS_VARIABLE, ""))
    except ValueError as e:
        sys.exit(str(e))
    if plan and not os.environ.get(DIRECTORY_VARIABLE):
        sys.exit(
            f"{PLAN_VARIABLE} is set and {DIRECTORY_VARIABLE} is not: name a folder in which this run's faults count."
        )
    install(points)
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
