"""What the tests of this adapter's processes have imported before they run a program."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sdk_modules() -> tuple[str, ...]:
    return ("flyteplugins.agents.pydantic_ai.*", "pydantic_ai", "pydantic_ai.models.openai")
