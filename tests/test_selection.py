"""What `make test` leaves out of the crash suites, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.crash import BOUNDARIES
from flyteplugins.agents.conformance.crash.testing import ON_THE_PLANE

ROOT = Path(__file__).parents[1]
SUITES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/tests/test_*crash*.py"))
PLACES = {boundary.name for boundary in BOUNDARIES} | {str(fault) for fault in ON_THE_PLANE}


def places(*options: str) -> dict[str, set[str]]:
    """The places to die at that are collected, by suite."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, set[str]] = defaultdict(set)
    for line in done.stdout.splitlines():
        test, _, place = line.removesuffix("]").partition("[")
        if "_is_killed_at_a_boundary_" in test:
            found[test.rpartition("::")[0]].add(place)
    return found


def test_each_place_to_die_at_is_some_adapters_turn() -> None:
    found = places(*SUITES)
    assert len(found) == 8
    assert set.union(*found.values()) == PLACES
    assert max(map(len, found.values())) <= len(PLACES) / 3


@pytest.mark.parametrize("how", ["--thorough", "by name"])
def test_nothing_is_left_out_where_all_is_asked_for(how: str) -> None:
    suite = "plugins/mistral/tests/test_crash_suite.py"
    [found] = places(*((suite, how) if how == "--thorough" else (f"{suite}::TestCrash",))).values()
    assert found == PLACES
