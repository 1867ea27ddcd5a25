"""What every test of the adapter has."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sdk_modules() -> tuple[str, ...]:
    """The SDK that processes have imported before they run a program."""
    return (
        "flyteplugins.agents.mistral.*",
        "mistralai.client",
        "mistralai.extra.run.context",
        "mistralai.client.models",
    )
