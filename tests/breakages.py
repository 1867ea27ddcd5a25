"""Make each edit of the lists of breakages (ours and the adapters') in a copy of the sources, and see that the named tests fail.

Type:  make breakages                     all of them
       make breakages ONLY="the model"    those whose name has these words in it
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("plugins", "conformance")


@dataclass(frozen=True)
class Breakage:
    """An edit of the source, and the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    fails: tuple[str, ...]

    def occurrences(self) -> int:
        """How often the text to replace is in the file: once, unless the list is stale."""
        return (ROOT / self.file).read_text().count(self.old)


def load() -> list[Breakage]:
    """Read the list."""
    lists = [ROOT / "breakages.toml", *sorted(ROOT.glob("plugins/*/breakages.toml"))]
    entries = [entry for file in lists for entry in tomllib.loads(file.read_text())["breakage"]]
    return [
        Breakage(entry["name"], entry["file"], entry["old"], entry["new"], tuple(entry["fails"])) for entry in entries
    ]


def fresh_copy(copy: Path) -> None:
    """Copy what the tests need into a folder."""
    for source in SOURCES:
        shutil.rmtree(copy / source, ignore_errors=True)
        shutil.copytree(ROOT / source, copy / source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in (
        "tests",
        "examples",
        "requirements",
        "conftest.py",
        "pyproject.toml",
        "README.md",
        "breakages.toml",
        "Makefile",
    ):
        target = copy / name
        if not target.exists():
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, target)


def failed(tests: Sequence[str], copy: Path) -> set[str]:
    """Run tests in a copy, and return those that failed."""
    paths = [str(path) for source in SOURCES for path in sorted(copy.glob(f"{source}/**/src"))]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-rA", "--thorough", *tests]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    report = done.stdout.splitlines()
    return {
        test
        for test in tests
        if any(line.startswith((f"FAILED {test}", f"ERROR {test}")) for line in report)
        or any(line.startswith(f"ERROR {test.partition('::')[0]}") for line in report)
        or not report
    }


def not_noticed(breakage: Breakage, copy: Path) -> list[str]:
    """Run the tests of a breakage on a copy with its edit, and return those that passed all the same."""
    fresh_copy(copy)
    file = copy / breakage.file
    file.write_text(file.read_text().replace(breakage.old, breakage.new))
    return sorted(set(breakage.fails) - failed(breakage.fails, copy))


def main(only: str) -> int:
    """Go through the list."""
    unnoticed = 0
    chosen = [breakage for breakage in load() if only in breakage.name]
    if not chosen:  # pytest would run everything
        print(f"No breakage has {only!r} in its name.")
        return 1
    with tempfile.TemporaryDirectory(prefix="breakages-") as folder:
        fresh_copy(Path(folder))
        broken = failed(sorted({test for breakage in chosen for test in breakage.fails}), Path(folder))
        if broken:
            print(f"These fail without any breakage, so nothing can be told from them: {', '.join(sorted(broken))}")
            return 1
        for breakage in chosen:
            passed = not_noticed(breakage, Path(folder))
            unnoticed += len(passed)
            print(f"{'NOT NOTICED' if passed else 'noticed':12} {breakage.name}", flush=True)
            for test in passed:
                print(f"             passed all the same: {test}")
    print(f"{len(chosen)} breakages, {unnoticed} tests that did not notice theirs")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(os.environ.get("ONLY", "")))
