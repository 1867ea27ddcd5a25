"""The list of breakages is not stale: its edits apply, and its tests exist."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def breakages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("breakages", ROOT / "tests" / "breakages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["breakages"] = module
    spec.loader.exec_module(module)
    return module


LIST = breakages().load()


@pytest.mark.parametrize("breakage", LIST, ids=lambda breakage: breakage.name)
def test_the_edit_of_a_breakage_applies(breakage: object) -> None:
    assert breakage.occurrences() == 1, breakage.file  # type: ignore[attr-defined]


def test_the_tests_that_the_list_names_exist(collected: set[str]) -> None:
    named = {test for breakage in LIST for test in breakage.fails} - collected
    files = sorted({test.partition("::")[0] for test in named})
    if not files:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--thorough", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert named - set(done.stdout.splitlines()) == set()
