"""What `make test` leaves out of the crash suites, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.crash import BOUNDARIES
from flyteplugins.agents.conformance.crash.testing import ON_THE_PLANE

ROOT = Path(__file__).parents[1]
SUITES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("plugins/*/tests/test_*crash*.py"))
PLACES = {boundary.name for boundary in BOUNDARIES} | {str(fault) for fault in ON_THE_PLANE}


def collect(*options: str) -> list[str]:
    """The tests that are collected."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def places(tests: Iterable[str]) -> dict[str, set[str]]:
    """The places to die at, by suite."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in tests:
        test, _, place = line.removesuffix("]").partition("[")
        if "_is_killed_at_a_boundary_" in test:
            found[test.rpartition("::")[0]].add(place)
    return found


@pytest.fixture(scope="module")
def by_default(request: pytest.FixtureRequest, collected: set[str]) -> list[str]:
    """What is left of the crash suites."""
    if set(SUITES) <= {test.partition("::")[0] for test in collected} and not request.config.getoption("thorough"):
        return [item.nodeid for item in request.session.items]
    return collect(*SUITES)


def test_each_place_to_die_at_is_some_adapters_turn(by_default: list[str]) -> None:
    found = places(by_default)
    assert len(found) == 8
    assert set.union(*found.values()) == PLACES
    assert max(map(len, found.values())) <= len(PLACES) / 3


def test_what_is_about_an_adapter_is_looked_at_once(by_default: list[str]) -> None:
    name = "::test_the_worker_of_a_tool_does_not_load_the_sdk"
    assert sorted(test.split("/")[1] for test in by_default if test.endswith(name)) == [
        *("adk", "claude", "langchain", "mistral", "openai", "pydantic_ai"),
    ]


@pytest.mark.parametrize("how", ["--thorough", "by name"])
def test_nothing_is_left_out_where_all_is_asked_for(how: str) -> None:
    suite = "plugins/mistral/tests/test_crash_suite.py"
    [found] = places(collect(*((suite, how) if how == "--thorough" else (f"{suite}::TestCrash",)))).values()
    assert found == PLACES
