"""What tests of whole programs have: processes that have imported each agent SDK."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.local import ForkServer

ADAPTERS = sorted(
    file.parent.name
    for file in Path(__file__).parents[1].glob("plugins/*/pyproject.toml")
    if file.parent.name != "core"
)


@pytest.fixture(scope="session")
def any_sdk() -> Iterator[ForkServer]:
    """Starts programs that may use any of the SDKs. Those of the tour, among others, start from nothing."""
    with ForkServer([f"flyteplugins.agents.{adapter}.*" for adapter in ADAPTERS], hash_seed=1) as server:
        yield server
