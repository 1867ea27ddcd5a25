"""A worker finds a task whose name in its module is taken by the tool that wraps it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import flyte
import pytest
from flyte._internal.runtime.entrypoints import load_task
from flyte.extend import AsyncFunctionTaskTemplate

from flyteplugins.agents.core import AgentTool, NativeTool, ToolTaskResolver, attach_tool_resolver

APP = '''
import flyte
from flyteplugins.agents.core import AgentTool, NativeTool

env = flyte.TaskEnvironment("shadow-app")


def tool(target):
    return NativeTool(AgentTool(target), sdk="no_such_sdk", factory="no_such_adapter:build")


@tool
@env.task
async def shadowed(city: str) -> str:
    """A task."""
    return city


@env.task
async def visible(city: str) -> str:
    """A task."""
    return city


visible_as_a_tool = tool(visible)


@tool
def plain(city: str) -> str:
    """A function."""
    return city


NUMBER = 5
'''


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "shadowapp.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("shadowapp")
    sys.modules.pop("shadowapp", None)


@pytest.mark.parametrize("name", ["shadowed", "visible"])
def test_a_worker_loads_the_task_that_was_deployed(app: Any, name: str, tmp_path: Path) -> None:
    task = app.env.tasks[f"shadow-app.{name}"]
    resolver = task.task_resolver
    assert isinstance(resolver, ToolTaskResolver)
    arguments = resolver.loader_args(task, tmp_path)
    assert arguments == ["mod", "shadowapp", "instance", name]
    loaded = load_task(resolver.import_path, *arguments)  # what `a0` does
    assert isinstance(loaded, AsyncFunctionTaskTemplate)
    assert (loaded.name, inspect.unwrap(loaded.func)) == (task.name, task.func)


async def test_the_loaded_task_runs(app: Any) -> None:
    task = load_task(ToolTaskResolver().import_path, "mod", "shadowapp", "instance", "shadowed")
    assert await task.forward("Oslo") == "Oslo"


@pytest.mark.parametrize(("name", "found"), [("NUMBER", "a int"), ("plain", "NativeTool"), ("env", "TaskEnvironment")])
def test_what_is_no_task_is_an_error_that_says_what_it_is(app: ModuleType, name: str, found: str) -> None:
    with pytest.raises(TypeError, match=rf"shadowapp\.{name} is .*neither a Flyte task nor a tool") as caught:
        ToolTaskResolver().load_task(["mod", "shadowapp", "instance", name])
    assert found in str(caught.value)


def test_a_name_that_is_not_there_is_an_error(app: ModuleType) -> None:
    with pytest.raises(AttributeError, match="gone"):
        ToolTaskResolver().load_task(["mod", "shadowapp", "instance", "gone"])


def test_a_task_keeps_a_resolver_of_its_own() -> None:
    env = flyte.TaskEnvironment("own-resolver")

    class OwnResolver(ToolTaskResolver):
        pass

    @env.task
    async def task() -> str:
        """A task."""
        return ""

    task.task_resolver = OwnResolver()
    attach_tool_resolver(task)
    assert type(task.task_resolver) is OwnResolver


def test_making_a_tool_changes_nothing_else_of_its_task() -> None:
    env = flyte.TaskEnvironment("unchanged")

    @env.task(retries=2, cache="disable")
    async def task(number: int) -> str:
        """A task."""
        return ""

    before = {key: value for key, value in vars(task).items() if key != "task_resolver"}
    assert getattr(task, "task_resolver") is None  # noqa: B009 - mypy would take it for always so
    NativeTool(AgentTool(task, name="other", description="Else."), sdk="no_such_sdk", factory="no_such_adapter:build")
    assert {key: value for key, value in vars(task).items() if key != "task_resolver"} == before
    assert isinstance(task.task_resolver, ToolTaskResolver)
    assert env.tasks["unchanged.task"] is task
