"""Each adapter with the oldest SDK that it declares, and each adapter alone.

Type:  make test-oldest                 all of them
       make test-oldest ADAPTER=openai  one of them
       make test-oldest SUBSET=crash    the crash suites instead

For each adapter it makes an environment below .venv-oldest/ in which what our distributions depend on is as old as they say it
may be, and runs the adapter's tests there. Then it builds wheels of core and the adapter, installs these two into an empty
environment, and runs a small program of ten lines with Flyte's command line against the offline model server.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flyteplugins.agents.conformance.models import ModelServer

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-oldest"
UV = Path(sys.executable).with_name("uv")
SUBSETS = {
    "short": ("conformance", "errors", "keys", "memory", "tools", "turns"),
    "crash": ("crash_suite", "crash_resume"),
}
TEST_NEEDS = ("hypothesis", "opentelemetry-sdk", "pytest-timeout")


@dataclass(frozen=True)
class Adapter:
    """What has to be said of an adapter's environments.

    Attributes:
        name: Its folder, and the last part of its import.
        sdk: Distributions that are its SDK, to be told what was tested.
        model: The model of the small program.
        extra: The adapter's extra that its tests need.
        provider: What a user installs besides, by choosing a provider.
        tests: What its tests need.
    """

    name: str
    sdk: tuple[str, ...]
    model: str
    extra: str = ""
    provider: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


ADAPTERS = (
    Adapter(
        "adk", ("google-adk", "google-genai"), "gemini-2.5-flash", "[mcp]", tests=("anthropic", "langgraph", "openai")
    ),
    Adapter("claude", ("claude-agent-sdk", "mcp"), "claude-sonnet-4-5"),
    Adapter(
        "langchain",
        ("langchain", "langchain-core", "langgraph", "deepagents"),
        "openai:gpt-4.1",
        "[deepagents]",
        provider=("langchain-openai",),
        tests=(
            "langchain-anthropic",
            "langchain-mistralai",
            "langchain-google-genai",
            "langchain-tests",
            "langgraph-checkpoint-conformance>=0.0.2,<0.1",
        ),
    ),
    Adapter("mistral", ("mistralai",), "mistral-large-latest"),
    Adapter("openai", ("openai-agents",), "gpt-4.1"),
    Adapter(
        "pydantic_ai",
        ("pydantic-ai-slim",),
        "openai:gpt-4.1",
        provider=("pydantic-ai-slim[openai]",),
        tests=("pydantic-ai-slim[anthropic,mcp,mistral,openai]",),
    ),
)

PROGRAM = '''
import flyte
from flyteplugins.agents.{name} import run_agent, tool
env = flyte.TaskEnvironment("alone")
@tool
@env.task
async def get_weather(city: str) -> str:
    """Get the current weather for a city."""
    return f"It is sunny in {{city}}."
@env.task(report=True)
async def chat(message: str) -> str:
    return await run_agent(message, tools=[get_weather], model="{model}")
'''


class FailedError(Exception):
    """An adapter does not pass; the message says where to look."""


def environment_of(folder: Path) -> dict[str, str]:
    """The variables of a process in another environment."""
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    return kept | {"PATH": f"{folder / 'bin'}{os.pathsep}{kept['PATH']}"}


def run(*argv: str | Path, folder: Path, log: Path) -> None:
    """Run a command in an environment, its output into a file."""
    with log.open("a") as output:
        output.write(f"$ {' '.join(map(str, argv))}\n")
        output.flush()
        done = subprocess.run(
            argv, cwd=ROOT, env=environment_of(folder), stdout=output, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode != 0:
        raise FailedError(f"{' '.join(map(str, argv[:4]))} ... ended with {done.returncode}; see {log}")


def new_environment(folder: Path, log: Path) -> Path:
    """Make an empty environment, and return its Python."""
    run(UV, "venv", "--quiet", "--clear", "--python", sys.executable, folder, folder=folder, log=log)
    return folder / "bin" / "python"


def versions(python: Path, distributions: Sequence[str]) -> str:
    """What is installed there."""
    program = (
        "import importlib.metadata as m, sys; have = {one.name for one in m.distributions()}; "
        "print(*(f'{one} {m.version(one)}' for one in sys.argv[1:] if one in have), sep=', ')"
    )
    done = subprocess.run([python, "-c", program, *distributions], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def with_the_oldest(adapter: Adapter, subset: str, log: Path) -> str:
    """Run an adapter's tests with the oldest of what it may be installed with."""
    folder = FOLDER / adapter.name
    python = new_environment(folder, log)
    install = (UV, "pip", "install", "--quiet", "--python", python)
    ours = ["-e", "plugins/core", "-e", f"plugins/{adapter.name}{adapter.extra}", "-e", "conformance[pytest]"]
    needs = [*adapter.provider, *adapter.tests]
    extras = [need for need in needs if need.partition("[")[0] in adapter.sdk]  # the SDK itself, with more of it
    run(*install, "--resolution", "lowest-direct", *ours, *extras, folder=folder, log=log)
    kept = folder / "oldest.txt"
    frozen = subprocess.run(
        [UV, "pip", "freeze", "--exclude-editable", "--python", python], capture_output=True, text=True, check=True
    )
    kept.write_text(frozen.stdout)
    run(*install, "--constraint", kept, *TEST_NEEDS, *needs, folder=folder, log=log)  # not what is tested
    tests = ROOT / "plugins" / adapter.name / "tests"
    files = [file for part in SUBSETS[subset] if (file := tests / f"test_{part}.py").exists()]
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, folder=folder, log=log)
    return versions(python, [*adapter.sdk, "flyte"])


def alone(adapter: Adapter, log: Path) -> str:
    """Install core and one adapter into an empty environment, and run an agent there."""
    folder = FOLDER / f"{adapter.name}-alone"
    python = new_environment(folder, log)
    with tempfile.TemporaryDirectory() as name, ModelServer() as server:
        place = Path(name)
        for part in ("core", adapter.name):
            run(UV, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", place,
                ROOT / "plugins" / part, folder=folder, log=log)  # fmt: skip
        wheels = sorted(place.glob("*.whl"))
        run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", "requirements/run.txt",
            *wheels, *adapter.provider, folder=folder, log=log)  # fmt: skip
        others = [part for other in ADAPTERS if other is not adapter for part in other.sdk if part not in adapter.sdk]
        found = subprocess.run(
            [UV, "pip", "list", "--format", "freeze", "--python", python], capture_output=True, text=True, check=True
        ).stdout
        installed = {line.partition("==")[0] for line in found.splitlines()}
        # an SDK may itself stand on a library that another one is made of
        surplus = installed & {*others, "flyteplugins-agents-conformance"} - {"google-genai", "mcp"}
        if surplus:
            raise FailedError(f"An environment with {adapter.name} alone has {', '.join(sorted(surplus))} in it.")
        program = place / "alone.py"
        program.write_text(PROGRAM.format(name=adapter.name, model=adapter.model))
        done = subprocess.run(
            [
                folder / "bin" / "flyte",
                "run",
                "--local",
                "alone.py",
                "chat",
                "--message",
                "What is the weather in Paris?",
            ],
            cwd=place,
            env=environment_of(folder) | server.env() | {"HOME": str(place), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        log.write_text(log.read_text() + done.stdout + done.stderr)
        if "Completed Local Run" not in done.stdout or server.journal.count() != 2:
            raise FailedError(f"The small program asked {server.journal.count()} times, not twice; see {log}")
    return versions(python, [*adapter.sdk, "flyte"])


def main() -> int:
    """Read the command line, and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "adapters", nargs="*", metavar="ADAPTER", help="one of: " + ", ".join(one.name for one in ADAPTERS)
    )
    parser.add_argument("--subset", choices=SUBSETS, default="short")
    options = parser.parse_args()
    if unknown := sorted(set(options.adapters) - {one.name for one in ADAPTERS}):
        parser.error(f"there is no adapter {', '.join(unknown)}; there are {', '.join(one.name for one in ADAPTERS)}")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / ".gitignore").write_text("*\n")
    failed = 0
    for adapter in ADAPTERS:
        if options.adapters and adapter.name not in options.adapters:
            continue
        log = FOLDER / f"{adapter.name}.log"
        log.write_text("")
        for what, check in (("oldest", lambda a, at: with_the_oldest(a, options.subset, at)), ("alone", alone)):
            began = time.monotonic()
            try:
                outcome = f"passed ({check(adapter, log)})"
            except FailedError as error:
                outcome, failed = f"FAILED: {error}", failed + 1
            print(f"{adapter.name}, {what}: {outcome} [{time.monotonic() - began:.0f} s]", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
