"""The list of checks, and how one fails."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from flyteplugins.agents.conformance.models import ModelServer

from ._adapter import Adapter
from ._capabilities import Capability
from ._stage import Stage, open_stage

__all__ = ["Check", "NotConformingError", "assert_adapter_conforms", "check", "checks", "expect", "run_check"]

Function = Callable[[Stage], Awaitable[None]]

_CHECKS: dict[str, Check] = {}

_MODULES = ("surface", "turns", "keys", "tools", "memory", "limits", "people", "records")


class NotConformingError(AssertionError):
    """An adapter does not keep a paragraph of the promise. The message says what was found, and what to do."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        paragraph: The paragraph of `PROMISE.md` that it checks.
        capability: The capability that the paragraph is about; `None` where it is about all of them.
        function: Makes it.
    """

    paragraph: str
    capability: Capability | None
    function: Function

    @property
    def needs(self) -> str:
        """What an adapter has to do, in a sentence."""
        return (self.function.__doc__ or "").strip().split("\n")[0]


def check(paragraph: str, capability: Capability | None = None) -> Callable[[Function], Function]:
    """Enter a check into the list.

    Args:
        paragraph: The paragraph of `PROMISE.md` that it checks.
        capability: The capability that the paragraph is about.
    """

    def enter(function: Function) -> Function:
        if paragraph in _CHECKS:
            raise ValueError(f"The paragraph {paragraph} has a check already: {_CHECKS[paragraph].function.__name__}.")
        _CHECKS[paragraph] = Check(paragraph, capability, function)
        return function

    return enter


def checks() -> dict[str, Check]:
    """Every check, by paragraph."""
    for module in _MODULES:
        importlib.import_module(f"{__package__}.promise.{module}")
    return dict(_CHECKS)


def expect(found: Any, wanted: Any, what: str, todo: str) -> None:
    """Compare, and fail with a sentence.

    Args:
        found: What was found.
        wanted: What the promise says.
        what: What it is, such as "requests for a turn that is on record".
        todo: What the adapter's author is to do.
    """
    if found != wanted:
        raise NotConformingError(f"{what}: found {found!r}, and the promise is {wanted!r}. {todo}")


async def run_check(one: Check, adapter: Adapter, server: ModelServer | None = None) -> None:
    """Make a check of an adapter.

    Raises:
        NotConformingError: The adapter does not keep the paragraph.
    """
    with open_stage(adapter, server) as stage:
        try:
            await one.function(stage)
        except NotConformingError as error:
            raise NotConformingError(f"{one.paragraph} ({one.needs}) {error}") from error.__cause__


def assert_adapter_conforms(adapter: Adapter) -> None:
    """Make every check of an adapter, and fail with what it does not keep.

    Args:
        adapter: The adapter.

    Raises:
        NotConformingError: It does not conform; the message has a line for each paragraph.
    """
    failures: list[str] = []

    async def make() -> None:
        with ModelServer(strict=True) as server:
            for one in checks().values():
                try:
                    await run_check(one, adapter, server)
                except Exception as error:  # noqa: BLE001 - whatever it is, the next check is made
                    failures.append(f"{type(error).__name__}: {one.paragraph}: {error}")

    asyncio.run(make())
    if failures:
        raise NotConformingError(f"{adapter.title} does not keep {len(failures)} paragraphs:\n" + "\n".join(failures))
