"""What tests of whole programs have: processes that have imported each agent SDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyteplugins.agents.conformance.crash.testing import ForkServers
from flyteplugins.agents.conformance.local import SharedForkServer

ADAPTERS = sorted(
    file.parent.name
    for file in Path(__file__).parents[1].glob("plugins/*/pyproject.toml")
    if file.parent.name != "core"
)


@pytest.fixture(scope="session")
def any_sdk(fork_servers: ForkServers) -> tuple[SharedForkServer, ...]:
    """Starts programs that may use any of the SDKs. Those of the tour, among others, start from nothing."""
    return fork_servers(*(f"flyteplugins.agents.{adapter}.*" for adapter in ADAPTERS))
