"""The checks as tests: an adapter takes them in with one class.

    class TestConformance(ConformanceSuite):
        adapter = Adapter(title="OpenAI Agents SDK", module="flyteplugins.agents.openai", ...)

It needs pytest and pytest-asyncio.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from flyteplugins.agents.conformance.models import ModelServer

from ._adapter import Adapter
from ._capabilities import Capability
from ._checks import checks, expect, run_check

__all__ = ["ConformanceSuite"]

_STANDARD = ("test_promise", "test_every_capability_is_declared")


class ConformanceSuite:
    """Every paragraph of the promise, as a test that has its name.

    Attributes:
        adapter: The adapter.
    """

    adapter: ClassVar[Adapter]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a class that drops a standard test."""
        super().__init_subclass__(**kwargs)
        for name in _STANDARD:
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__} replaces the standard test {name}, so that something would not be checked. Call yours "
                    "something else; what an adapter lacks is said in its declaration."
                )

    @pytest.fixture(scope="class")
    @classmethod
    def conformance_server(cls) -> Iterator[ModelServer]:
        """The model server of the class's checks."""
        with ModelServer(strict=True) as server:
            yield server

    def test_every_capability_is_declared(self) -> None:
        """An adapter says of each capability in what form it has it, or why it lacks it, where it may."""
        check_declaration(self.adapter)

    @pytest.mark.asyncio
    @pytest.mark.parametrize("paragraph", list(checks()))
    async def test_promise(self, paragraph: str, conformance_server: ModelServer) -> None:
        """One paragraph of the promise; see PROMISE.md."""
        await run_check(checks()[paragraph], self.adapter, conformance_server)


def check_declaration(adapter: Adapter) -> None:
    """See that an adapter declares every capability, and lacks none that it may not lack.

    Raises:
        NotConformingError: It does not.
    """
    said = {*adapter.capabilities, *adapter.absent}
    silent = [one.name for one in Capability if one not in said and not one.may_be_absent]
    expect(silent, [], "capabilities that the declaration says nothing about", "Add them to `capabilities`.")
    lacking = [one.name for one in adapter.absent if not one.may_be_absent]
    expect(lacking, [], "capabilities that are declared absent and may not be", "Build them.")
    both = [one.name for one in adapter.absent if one in adapter.capabilities]
    expect(both, [], "capabilities that are declared both there and absent", "Decide.")
    empty = [one.name for one, words in {**adapter.capabilities, **adapter.absent}.items() if not words.strip()]
    expect(empty, [], "capabilities without words for the docs", "Say in what form, or why not.")
