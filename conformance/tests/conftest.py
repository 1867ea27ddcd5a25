"""Prints, at the end, which adapters that do not keep a paragraph of the promise were caught."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Read it from the tests' reports, which come from the workers of a parallel run as well."""
    rows = [
        (*map(str, value), outcome == "passed")
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in report.user_properties
        if name == "broken adapter"
    ]
    if not rows:
        return
    terminalreporter.section("adapters that do not keep the promise")
    for paragraph, what, caught in rows:
        terminalreporter.write_line(f"{'caught' if caught else 'NOT CAUGHT':12} {paragraph:22} {what}")
