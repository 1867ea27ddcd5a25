"""What the README and the example show is what happens."""

from __future__ import annotations

import re
from pathlib import Path

from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer

ROOT = Path(__file__).parents[3]
README = (ROOT / "plugins" / "claude" / "README.md").read_text()


def test_the_program_of_the_readme_runs(
    local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, run_name: str
) -> None:
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "readme_claude_chat.py"
    file.write_text(program)
    outcome = local_runs.run(file, "chat", name=run_name, inputs={"message": "What is the weather in Paris?"})
    assert outcome.succeeded, outcome.output
    assert "sunny in Paris" in outcome.output
    assert model_server.journal.count() == 2


def test_the_example_remembers_in_another_process_what_it_was_told(
    local_runs: LocalRuns, model_server: ModelServer, run_name: str
) -> None:
    file = ROOT / "examples" / "claude_chat.py"
    for number, (message, answer) in enumerate(
        [("My name is Ada", "Ada"), ("What is my name?", "Your name is Ada"), ("What is the weather in Rome?", "21 °C")]
    ):
        inputs = {"message": message, "memory_key": "ada"}
        outcome = local_runs.run(file, "chat", name=f"{run_name}-{number}", inputs=inputs)
        assert outcome.succeeded, outcome.output
        assert answer in outcome.output
    assert {entry.path for entry in model_server.journal.requests()} == {"/anthropic/v1/messages"}
