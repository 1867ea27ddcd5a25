"""The crash suite of the conformance kit, on this adapter."""

from __future__ import annotations

from flyteplugins.agents.conformance.crash import Dialogue
from flyteplugins.agents.conformance.crash.testing import CrashSuite


class TestCrash(CrashSuite):
    dialogue = Dialogue("claude", model="claude-sonnet-5-5")
    sdk = ("claude_agent_sdk", "mcp", "uvicorn")
