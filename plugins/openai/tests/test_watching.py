"""An agent is watched while it runs: at a terminal, and from an app that its events are posted to."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.local import LocalRuns
from flyteplugins.agents.conformance.models import ModelServer

ROOT = Path(__file__).parents[3]
CHAT = ROOT / "examples" / "chat.py"
WATCH = ROOT / "examples" / "watch.py"


def in_a_terminal(argv: list[str], env: dict[str, str]) -> str:
    """What a person sees who types a command into a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(argv, cwd=ROOT, env=env, stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    shown = b""
    try:
        while more := os.read(master, 65536):
            shown += more
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(master)
        process.wait()
    return shown.decode()


@pytest.mark.parametrize("switch", ["", "0"], ids=["by default", "switched off"])
def test_flyte_run_local_shows_turns_and_tools_at_a_terminal(
    switch: str, home: Path, model_server: ModelServer, run_name: str
) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLYTE")}
    env |= model_server.env() | {"HOME": str(home), "COLUMNS": "200", "TERM": "xterm-256color", "NO_COLOR": "1"}
    env |= {"FLYTE_AGENTS_PROGRESS": switch}
    flyte = str(Path(sys.executable).with_name("flyte"))
    question = "What is the weather in Paris?"
    shown = in_a_terminal([flyte, "run", "--local", "--name", run_name, str(CHAT), "chat", "--message", question], env)
    assert "Completed Local Run" in shown, shown
    told = [line for line in shown.splitlines() if re.match(r"\S+ [▶●→✓■] ", line)]
    if switch == "0":
        assert told == []
        return
    assert [line.split()[1] for line in told] == ["▶", "●", "→", "✓", "●", "■"], shown
    assert "calls get_weather" in told[1]
    assert 'get_weather(city="Paris")' in told[2]


def test_without_a_terminal_nothing_is_shown(local_runs: LocalRuns, model_server: ModelServer, run_name: str) -> None:
    outcome = local_runs.run(CHAT, "chat", name=run_name, inputs={"message": "What is the weather in Paris?"})
    assert outcome.succeeded, outcome.output
    assert "●" not in outcome.output


def test_the_example_prints_the_text_of_a_task_that_runs_elsewhere(
    local_runs: LocalRuns, model_server: ModelServer, run_name: str
) -> None:
    app = subprocess.Popen([sys.executable, WATCH, "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert app.stdout is not None
    try:
        first = app.stdout.readline()
        [url] = re.findall(r"http://127\.0\.0\.1:\d+", first)
        outcome = local_runs.run(
            WATCH, "tell", name=run_name, inputs={"question": "Tell me a long story"}, env={"WATCH_URL": url}
        )
        assert outcome.succeeded, outcome.output
    finally:
        app.terminate()
        rest, _ = app.communicate()
    text, _, end = rest.partition("\n[a turn of")
    assert len(text.split()) > 50
    assert text.split()[-1].strip(".") in outcome.output
    assert end.rstrip().endswith("is done]")


def test_an_app_that_is_not_there_costs_the_run_nothing(
    local_runs: LocalRuns, model_server: ModelServer, run_name: str
) -> None:
    outcome = local_runs.run(
        WATCH,
        "tell",
        name=run_name,
        inputs={"question": "Tell me a long story"},
        env={"WATCH_URL": "http://127.0.0.1:9"},
    )
    assert outcome.succeeded, outcome.output
    assert "events were not sent to http://127.0.0.1:9" in outcome.output
