"""The crash suite of the conformance kit, on this adapter."""

from __future__ import annotations

from flyteplugins.agents.conformance.crash import Dialogue
from flyteplugins.agents.conformance.crash.testing import CrashSuite


class TestCrash(CrashSuite):
    dialogue = Dialogue("mistral", model="mistral-large-latest")
    sdk = ("mistralai", "mcp", "httpx2")
