"""What the README says can be done."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import flyteplugins.agents.conformance.plane as package
from flyteplugins.agents.conformance.plane._cli import _parser

README = (Path(str(package.__file__)).parent / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_its_python_is_python() -> None:
    assert _blocks("python")
    for block in _blocks("python"):
        compile(block, "README.md", "exec")


def test_its_command_starts_a_plane() -> None:
    command = next(line for block in _blocks("") for line in block.splitlines() if " up " in line)
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", package.__name__]
    options = _parser().parse_args(words[3:])
    assert (options.data, options.port) == (Path("plane"), 8090)


def test_the_options_that_it_names_exist() -> None:
    known = _parser().parse_args(["up", "--data", "d"])
    table = README.partition("## Modes")[2].partition("### ")[0]
    named = set(re.findall(r"`--([a-z-]+)", table))
    assert named
    assert {name.replace("-", "_") for name in named} <= set(vars(known))
