"""The guide for authors of adapters is true."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flyteplugins.agents.conformance import reference
from flyteplugins.agents.conformance.kit import NotConformingError, checks, run_check
from flyteplugins.agents.conformance.reference.declaration import PARROT

GUIDE = (Path(__file__).parents[2] / "WRITE_YOUR_OWN.md").read_text()
BLOCKS = re.findall(r"<!-- (file|quote|fails): (\S+) -->\n```\w*\n(.*?)```", GUIDE, re.DOTALL)
SOURCE = Path(reference.__path__[0])


def _without_space(text: str) -> str:
    """A program on one line: pages and modules have lines of their own."""
    return "".join(text.split()).replace(",)", ")")


@pytest.mark.parametrize(("name", "text"), [(name, text) for kind, name, text in BLOCKS if kind == "quote"])
def test_what_the_guide_quotes_is_in_the_reference_adapter(name: str, text: str) -> None:
    assert _without_space(text) in _without_space((SOURCE / name).read_text())


async def test_the_first_step_fails_as_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = [text for kind, name, text in BLOCKS if (kind, name) == ("file", "my_parrot.py")]
    (tmp_path / "my_parrot.py").write_text(first)
    monkeypatch.syspath_prepend(tmp_path)
    mine = dataclasses.replace(PARROT, module="my_parrot")
    await run_check(checks()["surface.names"], mine)
    [(paragraph, message)] = [(name, text) for kind, name, text in BLOCKS if kind == "fails"]
    with pytest.raises(NotConformingError, match=re.escape(message.strip())):
        await run_check(checks()[paragraph], mine)


def test_the_last_step_runs_every_check(tmp_path: Path) -> None:
    [last] = [text for kind, name, text in BLOCKS if (kind, name) == ("file", "test_parrot.py")]
    (tmp_path / "test_parrot.py").write_text(last)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_parrot.py"]
    collected = subprocess.run([*argv, "--collect-only"], cwd=tmp_path, capture_output=True, text=True, check=False)
    for paragraph in checks():
        assert f"test_promise[{paragraph}]" in collected.stdout, collected.stdout
    done = subprocess.run([*argv, "-k", "names or excludes"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
