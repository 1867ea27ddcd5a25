"""`flyte run FILE TASK` for a task that is a tool as well: the tool has taken the task's name in the module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

__all__ = ["show_tasks_of_tools"]

_CLI = "flyte.cli._run"
_installed = False


def show_tasks_of_tools() -> None:
    """Have the command line that runs in this process offer the tasks of a module's tools beside its other tasks.

    Nothing happens where no command line runs, as in a worker. It looks for instances of Flyte's task class in a module, which
    a tool is not: it passes for its SDK's own class.
    """
    global _installed
    if _installed or _CLI not in sys.modules:
        return
    wrapt.wrap_function_wrapper(sys.modules[_CLI], "TaskPerFileGroup._filter_objects", _with_tools)
    _installed = True


def _with_tools(
    found: Callable[[ModuleType], dict[str, Any]], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    from ._native import NativeTool

    (module,) = (*args, *kwargs.values())
    tools = {name: value for name, value in vars(module).items() if issubclass(type(value), NativeTool)}
    tasks = {name: tool.__wrapped_task__ for name, tool in tools.items()}
    return found(module) | {name: task for name, task in tasks.items() if task is not None}
