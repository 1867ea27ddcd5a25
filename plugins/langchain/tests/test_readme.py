"""What the README and the examples show runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

ROOT = Path(__file__).parents[3]
README = (ROOT / "plugins" / "langchain" / "README.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", README, re.DOTALL))
COMMANDS = re.findall(r"<!-- run: (\w+\.py) -->\n```sh\n(.*?)\n```", README)


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_each_program_of_the_readme_runs_with_its_command(
    local_runs: LocalRuns, model_server: ModelServer, tmp_path: Path, run_name: str, program: str, command: str
) -> None:
    file = tmp_path / program
    file.write_text(PROGRAMS[program])
    words = shlex.split(command)
    inputs = dict(zip((word.removeprefix("--") for word in words[5::2]), words[6::2], strict=True))
    outcome = local_runs.run(file, words[4], name=run_name, inputs=inputs)
    assert outcome.succeeded, outcome.output
    assert model_server.journal.count() == 2


def test_every_program_of_the_readme_is_run() -> None:
    assert {program for program, _ in COMMANDS} == set(PROGRAMS)


def test_the_chat_example_remembers(local_runs: LocalRuns, model_server: ModelServer, run_name: str) -> None:
    for number, message in enumerate(("My name is Ada", "What is my name?")):
        inputs = {"message": message, "memory_key": "ada"}
        file = ROOT / "examples" / "langchain_chat.py"
        outcome = local_runs.run(file, "chat", name=f"{run_name}-{number}", inputs=inputs)
        assert outcome.succeeded, outcome.output
    assert "Ada" in str(model_server.journal.requests()[-1].body)


def test_the_graph_example_dies_and_goes_on(local_runs: LocalRuns, model_server: ModelServer, run_name: str) -> None:
    file = ROOT / "examples" / "langgraph_chat.py"
    inputs = {"message": "What is the weather in Oslo?"}
    first = local_runs.run(file, "chat", name=run_name, inputs=inputs)
    assert first.status == 1, first.output
    assert model_server.journal.count() == 1
    second = local_runs.run(file, "chat", name=run_name, inputs=inputs)
    assert second.succeeded, second.output
    assert "turn: get_weather (replayed)" in second.output
    assert "(replayed)" in second.output.split("tool:")[1].split("\n")[0]
    assert model_server.journal.count() == 2


def test_the_deep_agent_example_delegates_and_keeps_its_file(
    local_runs: LocalRuns, model_server: ModelServer, run_name: str
) -> None:
    file = ROOT / "examples" / "deep_agent_chat.py"
    question = "What is the weather in Oslo?"
    model_server.script(
        question.replace("?", ""),
        Reply(calls=(call("task", description="The weather in Oslo", subagent_type="meteorologist"),)),
        Reply(calls=(call("write_file", file_path="/weather.md", content="Oslo: sunny"),)),
        "It is sunny.",
    )
    model_server.script("The weather in Oslo", Reply(calls=(call("get_weather", city="Oslo"),)), "sunny")
    outcome = local_runs.run(file, "chat", name=f"{run_name}-1", inputs={"message": question, "memory_key": "ada"})
    assert outcome.succeeded, outcome.output
    assert model_server.journal.count(model="gpt-4.1-mini") == 2
    outcome = local_runs.run(file, "files", name=f"{run_name}-2", inputs={"memory_key": "ada"})
    assert "deepagents/files/weather.md" in outcome.output
