"""What the tests of the plane share."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flyteplugins.agents.conformance.crash.testing import ForkServers
from flyteplugins.agents.conformance.local import SharedForkServer
from flyteplugins.agents.conformance.plane.testing import LocalPlane, load_flow, plane_factory

__all__ = ["plane_factory"]

FLOWS = Path(__file__).parent / "flows"


@pytest.fixture(scope="session")
def flyte_imported(fork_servers: ForkServers) -> tuple[SharedForkServer, ...]:
    """Processes that have imported Flyte. What restarts is started from nothing, as are the programs of the README."""
    return fork_servers()


@pytest.fixture(scope="module")
def plane(plane_factory: Callable[..., LocalPlane], flyte_imported: tuple[SharedForkServer, ...]) -> LocalPlane:
    """A plane that all tests of a module share. Traces are not served to a retry."""
    return plane_factory(forks=flyte_imported, commands=flyte_imported[0])


@pytest.fixture(scope="session")
def flow() -> ModuleType:
    """The tasks to run."""
    return load_flow(FLOWS / "plane_flow.py")


@pytest.fixture(scope="session")
def lines() -> Callable[[Path], list[str]]:
    """Reads what tasks noted."""
    return lambda effects: effects.read_text().splitlines() if effects.exists() else []


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., Any]:
    """Waits for something to become true, and returns it. No test passes by waiting longer."""

    def wait(what: Callable[[], Any], timeout: float = 60.0) -> Any:
        give_up = time.monotonic() + timeout
        while not (found := what()):
            if time.monotonic() > give_up:
                raise AssertionError(f"In {timeout} seconds it did not come about.")
            time.sleep(0.05)
        return found

    return wait


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    """The file in which tasks leave a line per effect."""
    return tmp_path / "effects.txt"


@pytest.fixture(scope="session")
def run_on() -> Callable[..., Any]:
    """Starts a task on a plane: `run_on(plane, task, run_name="...", env_vars={...}, **inputs)`."""

    def start(
        where: LocalPlane,
        task: Any,
        *,
        run_name: str | None = None,
        env_vars: dict[str, str] | None = None,
        **inputs: Any,
    ) -> Any:
        import flyte

        where.connect(FLOWS)
        return flyte.with_runcontext(name=run_name, env_vars=env_vars or {}, copy_style="all").run(task, **inputs)

    return start
