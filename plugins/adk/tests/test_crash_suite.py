"""The crash suite of the conformance kit, on this adapter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flyteplugins.agents.conformance.crash import Dialogue, LocalPlace, PlanePlace, crash_at
from flyteplugins.agents.conformance.crash.testing import CrashSuite
from flyteplugins.agents.conformance.faults import Fault
from flyteplugins.agents.conformance.local import ForkServer, LocalRuns
from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.conformance.plane import LocalPlane

# what the SDK makes up anew for each event
VOLATILE = frozenset({"id", "invocation_id", "timestamp", "long_running_tool_ids", "node_info"})
STREAMED = Dialogue("adk", model="gemini-2.5-flash", streamed=True, volatile=VOLATILE)


class TestCrash(CrashSuite):
    dialogue = Dialogue("adk", model="gemini-2.5-flash", volatile=VOLATILE)
    sdk = ("google.adk", "google.genai", "mcp")

    @pytest.mark.parametrize(
        "fault", [Fault("after-call", 5), Fault("after-record", 4), Fault("before-call", 8)], ids=str
    )
    def test_a_streamed_run_that_is_killed_tells_what_an_unbroken_one_tells(
        self,
        server: ModelServer,
        fork_servers: Callable[..., tuple[ForkServer, ...]],
        sdk_modules: tuple[str, ...],
        tmp_path_factory: pytest.TempPathFactory,
        fault: Fault,
    ) -> None:
        runs = LocalRuns(tmp_path_factory.mktemp("home"), server.env(), fork_servers(*sdk_modules))
        place = LocalPlace(STREAMED, runs, server, tmp_path_factory.mktemp("crash"))
        unbroken = place.run(memory=True)
        assert [kind for kind, _ in unbroken.told] == ["turn finished"] * 4 + ["text delta"] * 4 + ["turn finished"]
        crash_at(place, unbroken, fault, memory=True)
        runs.remove()

    def test_a_streamed_run_on_the_plane_tells_what_an_unbroken_one_tells(
        self, server: ModelServer, the_plane: LocalPlane, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        place = PlanePlace(STREAMED, the_plane, server, tmp_path_factory.mktemp("crash"))
        unbroken = place.run(memory=True)
        assert sum(kind == "text delta" for kind, _ in unbroken.told) == 4
        crash_at(place, unbroken, Fault("after-record", 6), memory=True)
