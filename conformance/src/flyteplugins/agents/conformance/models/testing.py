"""pytest fixtures. Use them with `pytest_plugins = ["flyteplugins.agents.conformance.models.testing"]`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ._server import ModelServer


@pytest.fixture(scope="session")
def model_server_process() -> Iterator[ModelServer]:
    """One strict server for the whole session; use `model_server`, which starts each test with a clean one."""
    with ModelServer(strict=True) as server:
        yield server


@pytest.fixture
def model_server(model_server_process: ModelServer) -> Iterator[ModelServer]:
    """A strict model server without scripts, faults, journal entries or server-side state."""
    model_server_process.clear()
    yield model_server_process
    model_server_process.clear()


@pytest.fixture
def model_env(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """The model server, with the environment variables that point every SDK at it."""
    for name, value in model_server.env().items():
        monkeypatch.setenv(name, value)
    return model_server
