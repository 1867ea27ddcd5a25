"""The kit on the reference adapter, which keeps the promise, and on one that does not, for each paragraph."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import pytest

from flyteplugins.agents.conformance.kit import (
    Adapter,
    Capability,
    ConformanceSuite,
    NotConformingError,
    assert_adapter_conforms,
    checks,
    run_check,
)
from flyteplugins.agents.conformance.kit import _checks as kit_checks
from flyteplugins.agents.conformance.kit.testing import check_declaration
from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.conformance.reference.declaration import PARROT

PROMISE = Path(__file__).parents[2] / "PROMISE.md"


def load_broken() -> ModuleType:
    spec = importlib.util.spec_from_file_location("broken_adapters", Path(__file__).with_name("broken.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["broken_adapters"] = module
    spec.loader.exec_module(module)
    return module


broken_adapters = load_broken()
BROKEN, FURTHER = broken_adapters.BROKEN, broken_adapters.FURTHER


class TestConformance(ConformanceSuite):
    adapter = PARROT


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(strict=True) as server:
        yield server


@pytest.mark.parametrize("paragraph", list(checks()))
async def test_an_adapter_that_does_not_keep_a_paragraph_is_caught(
    paragraph: str, record_property: Callable[[str, object], None], server: ModelServer
) -> None:
    assert paragraph in BROKEN, f"Add an adapter to broken.py that does not keep {paragraph}."
    for what, broken in [BROKEN[paragraph], *((what, one) for where, what, one in FURTHER if where == paragraph)]:
        record_property("broken adapter", [paragraph, what])
        await _is_caught(paragraph, broken, server)


async def _is_caught(
    paragraph: str, broken: Callable[[], AbstractContextManager[Adapter]], server: ModelServer
) -> None:
    with broken() as adapter, pytest.raises(Exception, match=r".") as raised:
        await run_check(checks()[paragraph], adapter, server)
    assert not isinstance(raised.value, (TypeError, NameError, ImportError)), "the broken adapter itself is broken"


def test_the_promise_has_a_heading_for_each_check_and_no_other() -> None:
    assert re.findall(r"^### (\S+)$", PROMISE.read_text(), re.MULTILINE) == list(checks())


def test_each_check_says_what_an_adapter_needs() -> None:
    assert [one.paragraph for one in checks().values() if not one.needs.endswith(".")] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"capabilities": {}}, "MODELS"),
        ({"absent": {Capability.STREAMS: "It does not."}}, "STREAMS"),
        ({"absent": {Capability.LIVE_MODE: " "}}, "LIVE_MODE"),
        (
            {
                "capabilities": {**PARROT.capabilities, Capability.LIVE_MODE: "yes"},
                "absent": {Capability.LIVE_MODE: "no"},
            },
            "LIVE_MODE",
        ),
    ],
)
def test_a_declaration_that_lacks_something_is_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(NotConformingError, match=problem):
        check_declaration(dataclasses.replace(PARROT, **change))  # type: ignore[arg-type]


def test_what_may_be_absent_can_be_declared_absent() -> None:
    check_declaration(dataclasses.replace(PARROT, absent={Capability.LIVE_MODE: "it has none"}))
    assert [one.name for one in Capability if one.may_be_absent] == ["LIVE_MODE", "BUILT_IN_TOOLS", "ANY_ENDPOINT"]


def test_a_class_that_replaces_a_standard_test_is_refused() -> None:
    with pytest.raises(TypeError, match="replaces the standard test test_promise"):
        type("Weaker", (ConformanceSuite,), {"test_promise": None})


def test_in_a_program_every_paragraph_that_is_not_kept_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: checks()[name] for name in ("surface.names", "surface.excludes", "limits.errors")}
    monkeypatch.setattr(kit_checks, "checks", lambda: few)
    assert_adapter_conforms(PARROT)
    with (
        BROKEN["surface.excludes"][1]() as adapter,
        BROKEN["limits.errors"][1](),
        pytest.raises(NotConformingError, match="does not keep 2 paragraphs") as raised,
    ):
        assert_adapter_conforms(adapter)
    assert "surface.excludes" in str(raised.value)
    assert "limits.errors" in str(raised.value)
