"""Where we are in Flyte, and what belongs to one attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flyte
import pytest

from flyteplugins.agents.core import TaskScope, current_scope
from flyteplugins.agents.core._scope import agents_home

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


def test_memories_live_in_the_users_home_unless_they_are_moved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(agents_home()) == home / ".flyte" / "agents"
    monkeypatch.setenv("FLYTE_AGENTS_HOME", str(tmp_path))
    assert Path(agents_home()) == tmp_path
