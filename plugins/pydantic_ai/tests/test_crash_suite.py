"""The crash suite of the conformance kit, on this adapter."""

from __future__ import annotations

from pathlib import Path

import flyte

from flyteplugins.agents.conformance.crash import Dialogue
from flyteplugins.agents.conformance.crash.testing import CrashSuite
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.plane import LocalPlane, load_flow


class TestCrash(CrashSuite):
    # the SDK writes clocks and run ids into every message
    dialogue = Dialogue(
        "pydantic_ai", model="openai:gpt-4.1", volatile=frozenset({"timestamp", "run_id", "conversation_id"})
    )
    sdk = ("pydantic_ai", "openai")

    def test_a_retry_that_a_worker_asks_for_reaches_the_model_at_once(
        self, the_plane: LocalPlane, server: ModelServer, tmp_path: Path
    ) -> None:
        folder = Path(__file__).parent / "apps"
        flow = load_flow(folder / "picky.py")
        server.clear()
        server.script(
            "go", Reply(calls=(call("spell", city="Osslo"),)), Reply(calls=(call("spell", city="Oslo"),)), "done"
        )
        the_plane.connect(folder)
        effects = tmp_path / "effects"
        started = flyte.with_runcontext(env_vars={"EFFECTS": str(effects)}, copy_style="all").run(
            flow.chat, message="go"
        )
        started.wait(quiet=True)
        assert started.phase == "succeeded", the_plane.worker_log(started.name)
        assert started.outputs()[0] == "done ['ModelRetry: Spell it Oslo.', None]"
        assert effects.read_text().split() == ["Osslo", "Oslo"]
