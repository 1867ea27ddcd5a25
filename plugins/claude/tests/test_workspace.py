"""The folder that an attempt runs in: the next one has another, in another state, or none that git knows."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions

from flyteplugins.agents.claude import run_agent
from flyteplugins.agents.conformance.models import ModelServer, Reply, call

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("workspace")


WHERE: list[Path] = []  # where attempts run, the latest last: no input, which would be another run


@env.task
async def delegate() -> str:
    options = ClaudeAgentOptions(cwd=WHERE[-1], system_prompt={"type": "preset", "preset": "claude_code"})
    helper = AgentDefinition(description="Helps.", prompt="You help.")
    return str(await run_agent("delegate", options=options, subagents={"helper": helper}))


def git(folder: Path, *command: str) -> None:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.test")
    subprocess.run(["git", *identity, *command], cwd=folder, check=True, capture_output=True)


async def test_what_git_says_of_the_folder_is_no_part_of_a_turn_neither_the_agents_nor_a_sub_agents(
    model_env: ModelServer, run_task: RunTask, tmp_path: Path
) -> None:
    """Claude Code tells both of the branch, of changed files and of the latest commits."""
    model_env.script(
        "^delegate$",
        Reply(calls=(call("Agent", description="help", prompt="do your part", subagent_type="helper"),)),
        "done",
    )
    model_env.script("^do your part$", "my part")
    folder = tmp_path / "checkout"
    folder.mkdir()
    WHERE.append(folder)
    git(folder, "init", "-q", "-b", "main")
    (folder / "one").touch()
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    assert await run_task(delegate, name="run") == "done"
    told = str([entry.body for entry in model_env.journal.all])
    assert told.count("Current branch: main") == 3  # else there is nothing to see here
    (folder / "two").touch()
    git(folder, "checkout", "-qb", "other")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "# claudeMd")
    (folder / "three").touch()
    assert await run_task(delegate, name="run") == "done"
    shutil.rmtree(folder / ".git")
    WHERE.append(folder.rename(tmp_path / "elsewhere"))
    assert await run_task(delegate, name="run") == "done"
    assert model_env.journal.count() == 3
