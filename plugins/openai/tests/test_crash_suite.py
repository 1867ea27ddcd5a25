"""The crash suite of the conformance kit, on this adapter."""

from __future__ import annotations

from pathlib import Path

from flyteplugins.agents.conformance.crash import BOUNDARIES, Dialogue, LocalPlace, Outcome
from flyteplugins.agents.conformance.crash.testing import ThoroughCrashSuite
from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer


class TestCrash(ThoroughCrashSuite):
    dialogue = Dialogue("openai", model="gpt-4.1")
    sdk = ("agents", "openai")

    def test_processes_that_start_from_nothing_reach_the_same_boundaries(
        self, local: tuple[LocalPlace, Outcome], server: ModelServer, tmp_path: Path
    ) -> None:
        """`make crash` starts them so, and a boundary that is never reached would show nothing."""
        forked, unbroken = local
        (tmp_path / "home").mkdir()
        runs = LocalRuns(tmp_path / "home", server.env())
        fresh = LocalPlace(self.dialogue, runs, server, tmp_path)
        try:
            assert fresh.run(memory=True) == unbroken
        finally:
            runs.remove()
        assert fresh.boundaries() == {boundary.name: forked.occurrences(boundary.name) for boundary in BOUNDARIES}
