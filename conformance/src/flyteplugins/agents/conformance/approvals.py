"""Approvals on a laptop as tests: an adapter takes them in with one class.

    from flyteplugins.agents.conformance.approvals import ApprovalSuite, reviewer

    __all__ = ["reviewer"]


    class TestApprovals(ApprovalSuite):
        adapter = "claude"

It needs pytest, pytest-asyncio, and the fixtures `model_env` and `run_task`.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

import flyte
import pytest

from flyteplugins.agents.core import Approval

from .models import ModelServer, Reply, call
from .reviewer import Reviewer, reviewer

__all__ = ["ApprovalSuite", "reviewer"]

env = flyte.TaskEnvironment("approvals", cache="disable")

RunTask = Callable[..., Awaitable[Any]]

_DONE: list[str] = []
"""What the tools of the test that runs now did."""


@env.task
async def refund(order: str, cents: int = 100) -> str:
    """Refund an order."""
    _DONE.append(f"refund {order} {cents}")
    return f"refunded {order}"


@env.task
async def look_up(order: str) -> str:
    """Look an order up."""
    _DONE.append(f"look up {order}")
    return f"found {order}"


class ApprovalSuite:
    """Tools that a person decides about, beside tools that nobody is asked about.

    Attributes:
        adapter: The adapter's module below `flyteplugins.agents`.
        gate: The keywords of its `tool` by which a person is asked; the SDK's own option, where the adapter takes that as well.
    """

    adapter: ClassVar[str]
    gate: ClassVar[Mapping[str, Any]] = {"requires_approval": True}

    @pytest.fixture
    def agents(self) -> ModuleType:
        """The adapter's module; nothing has been done yet."""
        _DONE.clear()
        return importlib.import_module(f"flyteplugins.agents.{self.adapter}")

    async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
    ) -> None:
        """One is approved, one denied, one not asked about; the next attempt asks nobody."""
        _propose(model_env, "refund", "look_up", "refund")
        reviewer.says('"a"', "yes")
        reviewer.says('"c"', "no: it is too late")

        @env.task
        async def asking() -> str:
            tools = [agents.tool(refund, **self.gate), agents.tool(look_up)]
            return str(await agents.run_agent("go", tools=tools))

        for _ in range(2):
            assert await run_task(asking, name="run") == "all done"
        assert sorted(_DONE) == ["look up b", "refund a 100"]
        assert len(reviewer.asked) == 2
        assert model_env.journal.count() == 2
        told = str(model_env.journal.requests()[-1].body)
        assert all(text in told for text in ("refunded a", "found b", "it is too late"))

    async def test_edited_arguments_run_as_edited(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
    ) -> None:
        """What a person typed is what runs, once."""
        _propose(model_env, "refund")
        reviewer.says('"a"', '{"order": "b", "cents": 7}')

        @env.task
        async def asking() -> str:
            tools = [agents.tool(refund, requires_approval=Approval(edit=True))]
            return str(await agents.run_agent("go", tools=tools))

        for _ in range(2):
            assert await run_task(asking, name="run") == "all done"
        assert _DONE == ["refund b 7"]

    async def test_what_waits_is_no_answer_and_goes_on_when_somebody_is_there(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
    ) -> None:
        """Without anybody to ask the run is pending; the same run goes on when there is somebody."""
        _propose(model_env, "refund")
        reviewer.present = False

        @env.task(retries=2)
        async def asking() -> str:
            result = await agents.run_agent("go", full_result=True, tools=[agents.tool(refund, **self.gate)])
            return f"{result.output} {[one.partition(':')[0] for one in result.pending]}"

        assert await run_task(asking, name="run") == "None ['refund sha256']"
        assert _DONE == []
        reviewer.present = True
        reviewer.says('"a"', "yes")
        assert await run_task(asking, name="run") == "all done []"
        assert _DONE == ["refund a 100"]
        assert model_env.journal.count() == 2


def _propose(model: ModelServer, *names: str) -> None:
    calls = tuple(call(name, order=order) for name, order in zip(names, "abcdef", strict=False))
    model.script("go", Reply(calls=calls), "all done")
