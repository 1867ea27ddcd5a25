"""A tree of agents whose process dies: what a child reached by transfer said and did is on record as the root's is."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.faults import (
    DIRECTORY_VARIABLE,
    PLAN_VARIABLE,
    POINTS_VARIABLE,
    Fault,
    FaultPoint,
    dump_points,
)
from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

APP = Path(__file__).parent / "apps" / "tree.py"
QUESTION = "Buy some tea."

ASKED = FaultPoint("answered", "flyteplugins.agents.core._recorder:ask", "before")

# Leaves of a run, in the order in which they are made: the root's turn, the shop's, the price, a turn, the order, a turn.
LEAVES = {"the shop's first turn": (2, 1), "the order": (5, 3), "the last turn": (6, 3)}


@pytest.mark.parametrize(("leaf", "asked"), LEAVES.values(), ids=LEAVES)
def test_a_tree_goes_on_where_its_process_was_killed(
    local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, leaf: int, asked: int
) -> None:
    """Each turn was asked once, each tool ran once, and the state that a tool wrote is in the request after it."""
    model_server.script(
        "Buy some tea",
        Reply(calls=(call("transfer_to_agent", agent_name="shop"),)),
        Reply(calls=(call("price", item="tea"),)),
        Reply(calls=(call("order", item="tea"),)),
        "You have tea.",
    )
    name = f"tree-{uuid.uuid4().hex[:12]}"
    environment = {
        "CRASH_FOLDER": str(tmp_path),
        PLAN_VARIABLE: str(Fault("answered", leaf)),
        POINTS_VARIABLE: dump_points([ASKED]),
        DIRECTORY_VARIABLE: str(tmp_path / "faults"),
    }

    def run() -> bool:
        outcome = local_runs.run(APP, "chat", name=name, inputs={"message": QUESTION}, env=environment)
        assert outcome.succeeded or outcome.status == -9, outcome.output
        return outcome.succeeded

    assert not run()
    assert model_server.journal.count() == asked
    assert run()
    assert model_server.journal.per_turn(user=QUESTION) == {1: 1, 2: 1, 3: 1, 4: 1}
    assert Counter((tmp_path / "effects").read_text().split("\n")[:-1]) == Counter(["price tea", "order tea"])
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["text"] == "You have tea."
    assert [agent for agent, _ in result["turns"]] == ["root", "shop", "shop", "shop"]
    assert [replayed for _, replayed in result["turns"]] == [True] * asked + [False] * (4 - asked)
    assert "Sold so far: tea." in json.dumps(model_server.journal.requests(turn=4)[0].body)
