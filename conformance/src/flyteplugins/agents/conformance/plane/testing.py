"""Fixtures with planes for tests.

Import them where pytest finds them, for instance in `conftest.py`:

    from flyteplugins.agents.conformance.plane.testing import plane, plane_factory

Each plane has a data folder of its own below pytest's temporary folder and a port of its own, and leaves no process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .local import LocalPlane, kill_worker, load_flow

__all__ = ["LocalPlane", "kill_worker", "load_flow", "plane", "plane_factory"]


@pytest.fixture(scope="module")
def plane_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalPlane]]:
    """Starts planes, with the arguments of `LocalPlane` except its folder; they end with the module's tests.

    The client side of flyte keeps its files in a temporary home and does not report home meanwhile.
    """
    started: list[LocalPlane] = []

    def start(**arguments: object) -> LocalPlane:
        plane = LocalPlane(tmp_path_factory.mktemp("plane"), **arguments)  # type: ignore[arg-type]  # passed on as given
        started.append(plane)
        return plane.start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("DO_NOT_TRACK", "1")
        try:
            yield start
        finally:
            for plane in started:
                plane.close()


@pytest.fixture(scope="module")
def plane(plane_factory: Callable[..., LocalPlane]) -> LocalPlane:
    """A plane that all tests of a module share. Traces are not served to a retry."""
    return plane_factory()
