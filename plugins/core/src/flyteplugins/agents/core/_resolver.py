"""How a worker finds a task whose name in its module is taken by the tool that wraps it.

The one place that uses Flyte's own resolver, which is not public.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._control_flow import guarded
from ._flyte import TaskTemplate

if TYPE_CHECKING:
    AnyTask = TaskTemplate[Any, Any, Any]

__all__ = ["ToolTaskResolver", "attach_tool_resolver"]

_MISSING = object()  # a template of another kind, which has no resolver at all


class ToolTaskResolver:
    """Loads a task by module and name, looking through the tool that `@tool` left in its place."""

    @property
    def import_path(self) -> str:
        """Where a worker imports this class from."""
        return "flyteplugins.agents.core.ToolTaskResolver"

    def load_task(self, loader_args: list[str]) -> AnyTask:
        """Load the task that `loader_args` names, as a worker is to run it.

        Args:
            loader_args: `["mod", <module>, "instance", <name>]`.

        Raises:
            TypeError: The name is neither a task nor a tool of one.
        """
        _, module, _, name, *_ = loader_args
        found: object = getattr(importlib.import_module(module), name)
        task = found if isinstance(found, TaskTemplate) else getattr(found, "__wrapped_task__", None)
        if not isinstance(task, TaskTemplate):
            raise TypeError(
                f"{module}.{name} is a {type(found).__qualname__}: neither a Flyte task nor a tool of one. Was the name given to "
                "something else after `@tool`?"
            )
        return guarded(task)

    def loader_args(self, task: AnyTask, root_dir: Path) -> list[str]:
        """Say how to find a task again.

        Args:
            task: The task.
            root_dir: The folder that module names start from.
        """
        from flyte._internal.resolvers.default import DefaultTaskResolver

        return DefaultTaskResolver().loader_args(task, root_dir)


def attach_tool_resolver(task: AnyTask) -> None:
    """Have workers load a task through the tool that shadows it, unless the task has a resolver of its own.

    This is the one thing that a tool sets on its task: the task that Flyte deploys is the one that the environment holds,
    so a copy would not do. It changes nothing for a task that no tool shadows.
    """
    if getattr(task, "task_resolver", _MISSING) is None:
        task.task_resolver = ToolTaskResolver()  # type: ignore[attr-defined]  # RuntimeTaskTemplate has it
