"""Approve, deny, expire, answer again, restart, forget, in any order: an approved call runs once, and no other runs."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flyte
import flyte.errors
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flyteplugins.agents.core import AgentTool, Approval, ErrorClass, Folder, agent_run
from flyteplugins.agents.core import _approval as approval_module
from flyteplugins.agents.core import _approval_asking as asking_module
from flyteplugins.agents.core import _run as run_module
from flyteplugins.agents.core import _tools as tools_module
from flyteplugins.agents.core._scope import AttemptState, TaskScope

TIMEOUT = 100.0


class RefusedError(Exception):
    """The platform takes no such signal."""


@dataclass
class Condition:
    """One condition as Flyte keeps it."""

    deadline: float
    attempt: int
    value: bool | None = None
    by: str = ""
    ended: float = 0.0
    timed_out: bool = False
    forgotten: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Platform:
    """Flyte, as far as conditions go: it may forget them, and its wait gives `None` after a restart."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.attempt = 0
        self.conditions: dict[str, Condition] = {}
        self.created: Counter[str] = Counter()

    def time(self) -> float:
        return self.now

    async def aio(self, name: str, *, timeout: float, **_: Any) -> Any:
        condition = self.conditions.get(name)
        if condition is None or condition.forgotten:
            self.created[name] += 1
            condition = self.conditions[name] = Condition(self.now + timeout, self.attempt)

        async def wait() -> bool | None:
            await condition.over.wait()
            if condition.timed_out:
                raise flyte.errors.ConditionTimedoutError("too late")
            return condition.value if condition.attempt == self.attempt else None

        return SimpleNamespace(wait=SimpleNamespace(aio=wait))

    async def find(self, scope: TaskScope, name: str) -> Any:
        condition = self.conditions.get(name)
        if condition is None:
            return None
        return asking_module._Found(
            condition.value, condition.by, condition.ended, condition.over.is_set(), condition.timed_out
        )

    def signal(self, name: str, value: bool) -> None:
        condition = self.conditions[name]
        if condition.timed_out or condition.value not in (None, value):
            raise RefusedError
        if condition.value is None:
            condition.value, condition.by, condition.ended = value, "alice", self.now
            condition.over.set()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for condition in self.conditions.values():
            if condition.value is None and self.now >= condition.deadline:
                condition.timed_out, condition.ended = True, condition.deadline
                condition.over.set()


@contextmanager
def installed(platform: Platform, scope: list[TaskScope]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (approval_module, run_module, tools_module):
            patch.setattr(module, "current_scope", lambda: scope[0])
        patch.setattr(flyte, "new_condition", platform)
        patch.setattr(asking_module, "_find", platform.find)
        patch.setattr(asking_module, "time", SimpleNamespace(time=platform.time))
        yield


class Approvals(RuleBasedStateMachine):
    """An agent with three calls that wait, on a worker that may die at any time."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.platform = Platform()
        self.scope: list[TaskScope] = []
        self.patches = installed(self.platform, self.scope)
        self.patches.__enter__()
        self.ran: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.answers: list[list[str]] = []
        self.worker: asyncio.Task[None] | None = None
        self.start()

    def start(self) -> None:
        """A worker begins, or takes up what the one before it left."""
        self.platform.attempt += 1
        self.scope[:] = [TaskScope("", "", "", "run", "a0", "remote", Folder.at(self.folder.name), "", AttemptState())]
        self.worker = self.loop.create_task(self.work())
        self.settle()

    def settle(self) -> None:
        """Let the worker do what is to be done; that it does nothing else is for the invariants to see."""

        async def settle() -> None:
            async with asyncio.timeout(15):
                while not self.is_settled():  # noqa: ASYNC110 - its files are written by threads
                    await asyncio.sleep(0.005)

        self.loop.run_until_complete(settle())

    def is_settled(self) -> bool:
        assert self.worker is not None
        if self.worker.done():
            return True
        approved = [what for what, verdict in self.first.items() if verdict == "approved"]
        kept = [file.name.partition(".")[0] for file in Path(self.folder.name).rglob("*.*.*")]
        return (
            len(self.platform.conditions) == 3
            and kept.count("approval") == len(self.first) < 3
            and kept.count("tool") == len(approved)
        )

    async def work(self) -> None:
        def act(what: str) -> str:
            self.ran[what] += 1
            return f"did {what}"

        tool = AgentTool(act, requires_approval=Approval(timeout=TIMEOUT))
        async with agent_run(
            framework="test", name="agent", input="go", memory_key=None, configuration={},
            classify=lambda error: ErrorClass.RETRY_ATTEMPT, observability=False,
        ):  # fmt: skip
            outcomes = await asyncio.gather(*(tool.call({"what": what}) for what in "abc"))
        self.answers.append([outcome.text for outcome in outcomes])

    def condition(self, what: str) -> str | None:
        digest = approval_module.ApprovalItem.of("act", {"what": what}).digest
        return next((name for name in self.platform.conditions if digest in name), None)

    @rule(what=st.sampled_from("abc"), value=st.booleans())
    def answer(self, what: str, value: bool) -> None:
        """Somebody approves or denies, perhaps for the second time, perhaps while the worker is down."""
        name = self.condition(what)
        if name is None:
            return
        verdict = "approved" if value else "denied"
        try:
            self.platform.signal(name, value)
        except RefusedError:
            assert self.first[what] != verdict
            return
        assert self.first.setdefault(what, verdict) == verdict
        if self.worker is not None:
            self.settle()

    @rule(seconds=st.sampled_from([TIMEOUT / 2, TIMEOUT]))
    def time_passes(self, seconds: float) -> None:
        self.platform.pass_time(seconds)
        for what in "abc":
            name = self.condition(what)
            if name is not None and self.platform.conditions[name].timed_out:
                self.first.setdefault(what, "expired")
        if self.worker is not None:
            self.settle()

    @precondition(lambda self: self.worker is not None)
    @rule()
    def worker_dies(self) -> None:
        assert self.worker is not None
        self.worker.cancel()
        self.loop.run_until_complete(asyncio.wait([self.worker]))
        self.worker = None

    @precondition(lambda self: self.worker is None)
    @rule()
    def worker_comes_back(self) -> None:
        self.start()

    @rule()
    def platform_forgets(self) -> None:
        for condition in self.platform.conditions.values():
            condition.forgotten = condition.over.is_set()

    @invariant()
    def only_what_was_approved_ran_and_once_and_nobody_was_asked_twice(self) -> None:
        if not hasattr(self, "platform"):
            return
        assert all(times == 1 for times in self.ran.values()), self.ran
        assert all(self.first.get(what) == "approved" for what in self.ran), (self.ran, self.first)
        assert all(times == 1 for times in self.platform.created.values()), self.platform.created
        assert len(self.platform.conditions) <= 3

    @invariant()
    def what_was_decided_has_become_of_it(self) -> None:
        if not hasattr(self, "platform") or self.worker is None:
            return
        assert {what for what in self.first if self.first[what] == "approved"} == set(self.ran)
        if len(self.first) == 3:
            assert self.worker.done()
            self.worker.result()

    def teardown(self) -> None:
        if not hasattr(self, "platform"):
            return
        try:
            if self.worker is None:
                self.start()
            self.platform.pass_time(TIMEOUT)
            self.settle()
            assert self.worker is not None
            self.loop.run_until_complete(asyncio.wait_for(asyncio.shield(self.worker), 10))
            told = {"approved": "did {}", "denied": "denied it", "expired": "nobody answered in time"}
            for text, what in zip(self.answers[-1], "abc", strict=True):
                assert told[self.first.get(what, "expired")].format(what) in text
            assert all(answers == self.answers[0] for answers in self.answers)
        finally:
            if self.worker is not None and not self.worker.done():
                self.worker_dies()
            self.patches.__exit__(None, None, None)
            self.loop.close()
            self.folder.cleanup()


TestApprovals = Approvals.TestCase
TestApprovals.settings = settings(
    max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture
def story() -> Iterator[Approvals]:
    """The same agent, for orders that are worth a test of their own."""
    machine = Approvals()
    machine.begin()
    yield machine
    machine.teardown()


def test_an_answer_that_came_while_the_worker_was_down_counts_also_where_it_is_forgotten(story: Approvals) -> None:
    story.worker_dies()
    story.answer(what="a", value=True)
    story.platform_forgets()
    story.worker_comes_back()
    assert story.ran == Counter("a")
    story.only_what_was_approved_ran_and_once_and_nobody_was_asked_twice()


def test_a_wait_that_gives_no_value_is_no_answer(story: Approvals) -> None:
    story.worker_dies()
    story.worker_comes_back()
    story.answer(what="a", value=True)
    assert story.ran == Counter("a")
