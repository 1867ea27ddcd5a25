"""The capability table of the README is what the adapters declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from flyteplugins.agents.conformance.kit.__main__ import main

ROOT = Path(__file__).parents[1]
DECLARATIONS = [str(file) for file in sorted(ROOT.glob("plugins/*/tests/test_conformance.py"))]
COMMAND = "python -m flyteplugins.agents.conformance.kit table README.md plugins/*/tests/test_conformance.py --write"


def test_the_table_of_the_readme_is_what_the_adapters_declare() -> None:
    assert len(DECLARATIONS) >= 4
    assert main(["table", str(ROOT / "README.md"), *DECLARATIONS]) == 0, f"Type: {COMMAND}"


def test_a_table_that_says_something_else_is_noticed_and_rewritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    text = (ROOT / "README.md").read_text()
    page.write_text(text.replace("`AgentOutputSchema`", "nothing"))
    assert main(["table", str(page), *DECLARATIONS]) == 1
    assert "--write" in capsys.readouterr().out
    assert main(["table", str(page), *DECLARATIONS, "--write"]) == 0
    assert page.read_text() == text


def test_a_page_without_a_place_for_the_table_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("Nothing.")
    with pytest.raises(ValueError, match="There is no place for the table"):
        main(["table", str(page), *DECLARATIONS])
