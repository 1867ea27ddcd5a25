"""What the tests of the LangChain adapter share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sdk_modules() -> tuple[str, ...]:
    """What the processes that run programs have imported before."""
    return (
        "flyteplugins.agents.langchain.*",
        "langchain.agents",
        "langgraph.graph",
        "langgraph.prebuilt",
        "langchain_openai",
        "deepagents",
    )
