"""What the tests of the ADK adapter share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sdk_modules() -> tuple[str, ...]:
    """What the processes that run programs have imported before."""
    return ("flyteplugins.agents.adk.*", "google.adk.runners", "google.adk.models.google_llm", "google.adk.apps")
