"""A lone adapter, installed into an empty environment, is enough to run an agent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from flyteplugins.agents.conformance.models import ModelServer

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = sorted([*ROOT.glob("plugins/*/pyproject.toml"), ROOT / "conformance" / "pyproject.toml"])

PROGRAM = '''
import flyte
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("alone")

@tool
@env.task
async def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"It is sunny in {city}."

@env.task(report=True)
async def chat(message: str) -> str:
    return await run_agent(message, tools=[get_weather], model="gpt-4.1")
'''


def test_core_and_openai_in_an_empty_environment_run_an_agent(
    tmp_path: Path, home: Path, model_server: ModelServer, certificates: str | None
) -> None:
    environment = tmp_path / "env"
    binaries = environment / "bin"
    uv = Path(sys.executable).with_name("uv")
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "SSL_CERT_FILE")
    environ = {name: value for name, value in os.environ.items() if name not in ours}
    environ |= {"SSL_CERT_FILE": certificates} if certificates else {}  # packages may have to be fetched
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True, env=environ)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", binaries / "python", "--constraint", ROOT / "requirements" / "run.txt",
         ROOT / "plugins" / "core", ROOT / "plugins" / "openai"],
        check=True, env=environ,
    )  # fmt: skip
    (tmp_path / "alone.py").write_text(PROGRAM)
    done = subprocess.run(
        [binaries / "flyte", "run", "--local", "alone.py", "chat", "--message", "What is the weather in Paris?"],
        cwd=tmp_path,
        env=environ | model_server.env() | {"HOME": str(home), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Completed Local Run" in done.stdout, done.stdout + done.stderr
    assert model_server.journal.count() == 2


@pytest.mark.parametrize("file", DISTRIBUTIONS, ids=lambda file: file.parent.name)
def test_siblings_are_pinned_to_our_own_version(file: Path) -> None:
    project = tomllib.loads(file.read_text())["project"]
    assert project["version"].startswith("0.")
    siblings = [name for name in project["dependencies"] if name.startswith("flyteplugins-agents-")]
    assert [name for name in siblings if not name.endswith(f"=={project['version']}")] == []


def test_the_namespace_packages_have_no_init_file() -> None:
    sources = [path for path in ROOT.glob("**/src/flyteplugins") if ".venv" not in path.parts]
    assert sources
    found = [path for source in sources for path in (source / "__init__.py", source / "agents" / "__init__.py")]
    assert [path for path in found if path.exists()] == []


def test_pinned_requirements_name_no_index() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        assert re.findall(r"https?://|--index|--find-links|-i ", file.read_text()) == [], file
