"""Approvals on a laptop as tests: an adapter takes them in with one class.

    from flyteplugins.agents.conformance.approvals import ApprovalSuite, reviewer

    __all__ = ["reviewer"]


    class TestApprovals(ApprovalSuite):
        adapter = "claude"

Each of the SDK's own ways to ask is one more class: with another `gate`, or with `options` of its own, made with `did_refund`.
It needs pytest, pytest-asyncio, and the fixtures `model_env` and `run_task`.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

import flyte
import flyte.errors
import pytest

from flyteplugins.agents.core import Approval, ApprovalAnswered, ApprovalPendingError, Event, canonical_json

from .models import ModelServer, Reply, call
from .reviewer import Reviewer, reviewer

__all__ = ["ApprovalSuite", "did_refund", "done", "look_up", "refund", "reviewer"]

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


async def did_refund(order: str, cents: int = 100) -> str:
    """What `refund` does, for a tool of the SDK's own.

    Args:
        order: The order.
        cents: How much.
    """
    return str(await refund(order, cents))


@pytest.fixture
def done() -> list[str]:
    """What `refund` and `look_up` did in the test that runs now, for an adapter's further tests."""
    _DONE.clear()
    return _DONE


class ApprovalSuite:
    """Tools that a person decides about, beside tools that nobody is asked about.

    Attributes:
        adapter: The adapter's module below `flyteplugins.agents`.
        model: What to give as the model, where the adapter has no default.
        gate: The keywords of its `tool` by which a person is asked; the SDK's own option, where the adapter takes that as well.
        shown: The arguments that a person is shown, and whose digest is approved, of a call with `order="a"`. What a function of
            the SDK's fills in by itself is not among them.
        limited: The keywords of `run_agent` by which what `options` asks about has to be answered in a minute; none where
            the tool says so itself.
    """

    adapter: ClassVar[str]
    model: ClassVar[str] = ""
    gate: ClassVar[Mapping[str, Any]] = {"requires_approval": True}
    shown: ClassVar[Mapping[str, Any]] = {"order": "a", "cents": 100}
    limited: ClassVar[Mapping[str, Any]] = {}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        """The keywords of `run_agent` by which a person is asked about `refund`, and nobody about `look_up`.

        Args:
            agents: The adapter's module.
        """
        return self._with_model(agents.tool(refund, **self.gate), agents.tool(look_up))

    def _with_model(self, *tools: Any) -> dict[str, Any]:
        return {"tools": list(tools)} | ({"model": self.model} if self.model else {})

    @pytest.fixture
    def agents(self) -> ModuleType:
        """The adapter's module; nothing has been done yet."""
        _DONE.clear()
        return importlib.import_module(f"flyteplugins.agents.{self.adapter}")

    @pytest.mark.parametrize("listened_to", [False, True])
    async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, listened_to: bool
    ) -> None:
        """One is approved, one denied, one not asked about; the next attempt asks nobody. The digest is that of what runs."""
        _propose(model_env, "refund", "look_up", "refund")
        reviewer.says('"a"', "yes")
        reviewer.says('"c"', "no: it is too late")
        events: list[Event] = []

        @env.task
        async def asking() -> str:
            on_event = events.append if listened_to else None
            return str(await agents.run_agent("go", on_event=on_event, **self.options(agents)))

        for _ in range(2):
            assert await run_task(asking, name="run") == "all done"
        assert sorted(_DONE) == ["look up b", "refund a 100"]
        assert len(reviewer.asked) == 2
        assert model_env.journal.count() == 2
        told = str(model_env.journal.requests()[-1].body)
        assert all(text in told for text in ("refunded a", "found b", "a person denied it", "it is too late"))
        digest = hashlib.sha256(canonical_json(self.shown)).hexdigest()
        assert any(digest in text for text in reviewer.asked)
        if listened_to:
            answers = [event for event in events if isinstance(event, ApprovalAnswered)]
            assert sorted((one.decision, one.replayed) for one in answers) == [
                ("approved", False), ("approved", True), ("denied", False), ("denied", True),
            ]  # fmt: skip
            assert digest in {one.digest for one in answers if one.decision == "approved"}

    async def test_two_calls_that_are_alike_are_two_questions_whose_answers_do_not_mix(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
    ) -> None:
        """One is approved and one denied; on a replay the model is given the same of each, so that it is not asked again."""
        _propose(model_env, "refund", "refund", orders="aa")
        reviewer.says('"a"', "yes", "no")

        @env.task
        async def asking() -> str:
            return str(await agents.run_agent("go", **self.options(agents)))

        for _ in range(2):
            assert await run_task(asking, name="run") == "all done"
        assert _DONE == ["refund a 100"]
        assert len(reviewer.asked) == 2
        assert model_env.journal.count() == 2

    async def test_nobody_answers_in_time_and_the_model_is_told(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
    ) -> None:
        """A deadline that passes is a refusal, which the model reads."""
        _propose(model_env, "refund")
        reviewer.says('"a"', None)

        @env.task
        async def asking() -> str:
            gated = agents.tool(refund, requires_approval=Approval(timeout=60))
            options = {**self.options(agents), **self.limited} if self.limited else self._with_model(gated)
            return str(await agents.run_agent("go", **options))

        for _ in range(2):
            assert await run_task(asking, name="run") == "all done"
        assert _DONE == []
        [question] = reviewer.asked
        assert "Without an answer by" in question
        assert "nobody answered in time" in str(model_env.journal.requests()[-1].body)

    async def test_edited_arguments_run_as_edited(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
    ) -> None:
        """What a person typed is what runs, once; what does not fit, or is no answer, is asked for again."""
        _propose(model_env, "refund")
        reviewer.says("is no answer", '{"order": "b", "cents": "7"}')
        reviewer.says("do not fit", "what?")
        reviewer.says('"a"', '{"order": "b", "cents": "seven"}')

        @env.task
        async def asking() -> str:
            gated = agents.tool(refund, requires_approval=Approval(edit=True))
            return str(await agents.run_agent("go", **self._with_model(gated)))

        for _ in range(2):
            assert await run_task(asking, name="run") == "all done"
        assert _DONE == ["refund b 7"]
        assert len(reviewer.asked) == 3

    async def test_what_waits_is_no_answer_and_goes_on_when_somebody_is_there(
        self, agents: ModuleType, model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
    ) -> None:
        """Without anybody to ask the run is pending, or fails and says so; the same run goes on when there is somebody."""
        _propose(model_env, "refund")
        reviewer.present = False
        full = True

        @env.task(retries=2)
        async def asking() -> str:
            if not full:
                return str(await agents.run_agent("go", **self.options(agents)))
            result = await agents.run_agent("go", full_result=True, **self.options(agents))
            return f"{result.output} {result.text!r} {result.pending}"

        digest = hashlib.sha256(canonical_json(self.shown)).hexdigest()
        assert await run_task(asking, name="run") == f"None '' ('refund sha256:{digest}',)"
        full = False
        with pytest.raises(flyte.errors.RuntimeUserError, match="is pending: there is no terminal") as raised:
            await run_task(asking, name="run")
        assert raised.value.code == "ApprovalPending"
        assert _DONE == []
        reviewer.present = True
        reviewer.says('"a"', "yes")
        assert await run_task(asking, name="run") == "all done"
        assert _DONE == ["refund a 100"]
        assert model_env.journal.count() == 2

    async def test_outside_of_a_task_nothing_that_waits_is_an_answer_either(
        self, agents: ModuleType, model_env: ModelServer, reviewer: Reviewer
    ) -> None:
        """Nobody can go on with such a run: what waits is named, and there is no answer."""
        _propose(model_env, "refund")
        reviewer.present = False
        result = await agents.run_agent("go", full_result=True, **self.options(agents))
        assert (result.output, result.text) == (None, "")
        assert [one.partition(":")[0] for one in result.pending] == ["refund sha256"]
        with pytest.raises(ApprovalPendingError, match="is pending: there is no terminal"):
            await agents.run_agent("go", **self.options(agents))
        assert _DONE == []


def _propose(model: ModelServer, *names: str, orders: str = "abcdef") -> None:
    calls = tuple(call(name, order=order) for name, order in zip(names, orders, strict=False))
    model.script("^go$", Reply(calls=calls), "all done")
