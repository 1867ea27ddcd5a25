"""Where we are in Flyte, and what belongs to one attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import flyte
import pytest

from flyteplugins.agents.core import AgentError, TaskScope, current_scope
from flyteplugins.agents.core._scope import RESUME, agents_home

if TYPE_CHECKING:
    from .conftest import Attempts

env = flyte.TaskEnvironment("core-scope-tests")

_SEEN: list[TaskScope | None] = []


def test_outside_of_a_task_there_is_no_scope() -> None:
    assert current_scope() is None


async def test_the_scope_is_the_running_task(attempt: Attempts) -> None:
    async def body() -> tuple[TaskScope | None, Any]:
        return current_scope(), flyte.ctx()

    scope, context = await attempt(body)
    assert scope is not None
    assert (scope.org, scope.project, scope.domain, scope.run) == ("", "", "", attempt.name)
    assert scope.action == context.task_action.name
    assert scope.mode == "local"
    assert scope.folder.uri == f"{context.run_base_dir}/flyte-agents"
    assert scope.identity == ["", "", "", attempt.name, scope.action]


async def test_an_attempt_has_a_state_of_its_own_and_shares_it_within(attempt: Attempts) -> None:
    async def body() -> list[TaskScope]:
        scopes = [current_scope(), *await asyncio.gather(*(asyncio.to_thread(current_scope) for _ in range(5)))]
        return [scope for scope in scopes if scope is not None]

    first = await attempt(body)
    assert len(first) == 6
    assert len({id(scope.state) for scope in first}) == 1
    second = await attempt(body)
    assert second[0].identity == first[0].identity
    assert second[0].state is not first[0].state


@flyte.trace
async def in_a_trace() -> str:
    scope = current_scope()
    assert scope is not None
    return scope.action


@env.task
async def child() -> str:
    _SEEN.append(current_scope())
    return ""


async def test_in_a_trace_the_scope_is_still_the_tasks(attempt: Attempts) -> None:
    async def body() -> tuple[str, str]:
        scope = current_scope()
        assert scope is not None
        return scope.action, await in_a_trace()

    action, traced = await attempt(body)
    assert traced == action


async def test_a_child_task_has_another_scope_and_the_same_folder(attempt: Attempts) -> None:
    async def body() -> TaskScope | None:
        await child()
        return current_scope()

    scope = await attempt(body)
    child_scope = _SEEN.pop()
    assert scope is not None
    assert child_scope is not None
    assert child_scope.identity != scope.identity
    assert child_scope.folder == scope.folder
    assert child_scope.state is not scope.state


_ATTEMPTS: list[TaskScope | None] = []


@env.task(retries=1)
async def fails_once() -> str:
    _ATTEMPTS.append(current_scope())
    if len(_ATTEMPTS) == 1:
        raise ConnectionError
    return ""


async def test_a_retry_in_the_same_process_is_another_attempt_of_the_same_action(
    run_task: Callable[..., Awaitable[Any]],
) -> None:
    _ATTEMPTS.clear()
    await run_task(fails_once)
    first, second = _ATTEMPTS
    assert first is not None
    assert second is not None
    assert first.identity == second.identity
    assert first.state is not second.state


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this code a worker's, of the run `second` with a base directory."""

    def start(base: str) -> None:
        action = SimpleNamespace(org="o", project="p", domain="d", run_name="second", name="a0")
        raw_data = SimpleNamespace(path="/raw")
        context = SimpleNamespace(mode="remote", task_action=action, run_base_dir=base, raw_data_path=raw_data, data={})
        monkeypatch.setattr(flyte, "ctx", lambda: context)

    return start


@pytest.mark.parametrize(
    ("named", "base", "folder"),
    [
        ("first", "s3://bucket/runs/second", "s3://bucket/runs/first/flyte-agents"),
        ("first", "s3://bucket/runs/second/", "s3://bucket/runs/first/flyte-agents"),
        ("s3://old/place/first/", "s3://bucket/runs/x1", "s3://old/place/first/flyte-agents"),
        ("/data/first", "/data/second", "/data/first/flyte-agents"),
    ],
)
def test_a_run_on_a_cluster_goes_on_from_the_records_of_another_one(
    worker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, named: str, base: str, folder: str
) -> None:
    worker(base)
    monkeypatch.setenv(RESUME, named)
    scope = current_scope()
    assert scope is not None
    assert scope.folder.uri == folder
    assert scope.run == "second", "conditions and actions are this run's"
    assert scope.identity == ["o", "p", "d", "first", "a0"], "memory and idempotency keys are the other's"


@pytest.mark.parametrize("named", ["", "second"])
def test_a_run_that_names_no_other_one_has_its_own_records(
    worker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    worker("s3://bucket/runs/second")
    monkeypatch.setenv(RESUME, named)
    scope = current_scope()
    assert scope is not None
    assert scope.folder.uri == "s3://bucket/runs/second/flyte-agents"
    assert scope.identity == ["o", "p", "d", "second", "a0"]


def test_where_the_other_runs_records_cannot_be_told_the_error_says_what_to_give(
    worker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker("s3://bucket/x7")
    monkeypatch.setenv(RESUME, "first")
    with pytest.raises(AgentError, match=r"s3://bucket/x7.*Give the URI of the other run's base directory"):
        current_scope()


async def test_a_run_that_left_no_records_is_not_gone_on_from(
    worker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker(str(tmp_path / "second"))
    monkeypatch.setenv(RESUME, "frist")
    scope = current_scope()
    assert scope is not None
    with pytest.raises(AgentError, match=rf"no record of an agent run in {tmp_path}/frist/flyte-agents"):
        await scope.check_origin()
    await scope.folder.create("a0/some-run/run.0.x", b"")
    await scope.check_origin()


async def test_on_a_laptop_a_run_goes_on_under_its_own_name_only(
    attempt: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> TaskScope | None:
        return current_scope()

    monkeypatch.setenv(RESUME, "first")
    with pytest.raises(Exception, match=r"unset FLYTE_AGENTS_RESUME, and type `flyte run --local --name first"):
        await attempt(body)


def test_memories_live_in_the_users_home_unless_they_are_moved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(agents_home()) == home / ".flyte" / "agents"
    monkeypatch.setenv("FLYTE_AGENTS_HOME", str(tmp_path))
    assert Path(agents_home()) == tmp_path
