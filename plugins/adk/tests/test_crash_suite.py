"""The crash suite of the conformance kit, on this adapter."""

from __future__ import annotations

from flyteplugins.agents.conformance.crash import Dialogue
from flyteplugins.agents.conformance.crash.testing import StreamedCrashSuite

# what the SDK makes up anew for each event
VOLATILE = frozenset({"id", "invocation_id", "timestamp", "long_running_tool_ids", "node_info"})


class TestCrash(StreamedCrashSuite):
    dialogue = Dialogue("adk", model="gemini-3.5-flash", volatile=VOLATILE)
    sdk = ("google.adk", "google.genai", "mcp")
