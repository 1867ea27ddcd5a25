"""What every test of the adapter has."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sdk_modules() -> tuple[str, ...]:
    """The SDK that processes have imported before they run a program."""
    return ("flyteplugins.agents.claude.*", "claude_agent_sdk", "mcp", "uvicorn", "httpx2")
