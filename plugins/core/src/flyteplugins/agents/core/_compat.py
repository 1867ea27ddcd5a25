"""Names that programs written for other adapters of this kind use, over what this package calls by its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._memory import MemoryStore
from ._tools import as_agent_tool

__all__ = ["coerce_tool_args", "resolve_memory", "task_json_schema"]


def task_json_schema(target: Any) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, as a model is shown it.

    Args:
        target: A task, a callable, or a tool of any adapter.

    Raises:
        TypeError: It is none of them.
    """
    return dict(as_agent_tool(target).schema.parameters)


def coerce_tool_args(target: Any, arguments: str | bytes | Mapping[str, Any] | None) -> dict[str, Any]:
    """Read a model's arguments by the types of a tool's parameters.

    Args:
        target: A task, a callable, or a tool of any adapter.
        arguments: What the model said: JSON text, or a mapping.

    Returns:
        The arguments to call it with, defaults included.

    Raises:
        ToolArgumentError: They do not fit; the message is made for the model.
        TypeError: `target` is not a tool.
    """
    return as_agent_tool(target).schema.validate(arguments)


def resolve_memory(memory_key: str | None) -> MemoryStore | None:
    """The memory of a key, in the running task; `None` for no key.

    Args:
        memory_key: One path segment.

    Raises:
        ValueError: The key is not one path segment.
        RuntimeError: There is no running task.
        MemoryUnavailableError: Flyte does not say where data is kept.
    """
    return MemoryStore.for_key(memory_key) if memory_key is not None else None
