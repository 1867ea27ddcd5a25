"""Deep Agents: building one, and the files that it keeps in its state."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from langgraph.channels import BinaryOperatorAggregate, DeltaChannel
from langgraph.pregel import Pregel

from flyteplugins.agents.core import Content, RecordError, V0Content

from ._session import import_v0 as import_messages

__all__ = [
    "FILES",
    "FOLDER",
    "SDK",
    "build_deep_agent",
    "has_files",
    "import_v0",
    "kept_files",
    "load_files",
    "wants_deep_agent",
]

SDK = "deepagents"
"""Whose messages and files a memory holds."""

FILES = "files"
"""The channel of a deep agent's state that holds its files."""

FOLDER = "deepagents/files"
"""Where a memory has them."""

_ONLY_DEEP = frozenset({"subagents", "skills", "memory", "permissions", "backend", "interrupt_on"})


def wants_deep_agent(options: Mapping[str, Any]) -> bool:
    """Whether keywords ask for a deep agent: those that `create_agent` has not."""
    return not _ONLY_DEEP.isdisjoint(options)


def build_deep_agent(
    model: Any, tools: Sequence[Any], as_tools: Callable[[Sequence[Any], str], list[Any]], **options: Any
) -> Pregel[Any, Any, Any, Any]:
    """Build a deep agent.

    Args:
        model: A model's name as `provider:model`, or a chat model.
        tools: The SDK's tools.
        as_tools: Makes the SDK's tools of what the caller gave to a sub-agent; its second argument says whose they are.
        options: Keywords of `create_deep_agent`. They are not changed.

    Raises:
        ImportError: The extra is not installed.
        TypeError: A sub-agent is no mapping.
    """
    try:
        from deepagents import create_deep_agent
    except ImportError as error:
        asked = ", ".join(f"{name}=" for name in sorted(_ONLY_DEEP & set(options)))
        raise ImportError(
            f"{asked} makes a deep agent, and deepagents cannot be imported ({error}). Install the extra: "
            "flyteplugins-agents-langchain[deepagents]."
        ) from error
    if options.get("subagents") is not None:
        options["subagents"] = [_with_tools(one, as_tools) for one in options["subagents"]]
    build = cast("Callable[..., Pregel[Any, Any, Any, Any]]", create_deep_agent)
    return build(model=model, tools=tools, **options)


def _with_tools(subagent: Any, as_tools: Callable[[Sequence[Any], str], list[Any]]) -> Any:
    if not isinstance(subagent, Mapping):
        raise TypeError(
            f"subagents has a {type(subagent).__qualname__} in it; give mappings with a name and a description, and a "
            "system_prompt, or a runnable that is built already."
        )
    if subagent.get("tools") is None:
        return subagent
    whose = f"the sub-agent {subagent.get('name')}"
    return {**subagent, "tools": as_tools(subagent["tools"], whose)}


def has_files(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """Whether a graph's state holds a deep agent's files."""
    channel = graph.channels.get(FILES)
    match channel:
        case BinaryOperatorAggregate():
            merges: Any = channel.operator
        case DeltaChannel():
            merges = channel.reducer
        case _:
            return False
    return str(getattr(merges, "__module__", "")).startswith("deepagents.")


def load_files(kept: Mapping[str, bytes]) -> dict[str, Any]:
    """The files that a run starts from.

    Args:
        kept: What the memory has, by path.

    Raises:
        RecordError: It is something else.
    """
    found: dict[str, Any] = {}
    for path, data in kept.items():
        try:
            file = json.loads(data)
            found[path.removeprefix(FOLDER)] = {"content": str(file["content"]), **file}
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"The memory path {path!r} is no file of a deep agent ({type(error).__name__}: {error}). Delete the path."
            ) from error
    return found


def kept_files(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Content]:
    """What a run leaves to its memory: the files that it changed, and, as `None`, those that it deleted.

    Args:
        before: The files that it started from.
        after: The files that it ended with.

    Raises:
        ValueError: A path is not absolute, so that it has no place in the memory.
    """
    changes: dict[str, Content] = {}
    for path, file in after.items():
        if not path.startswith("/"):
            raise ValueError(
                f"The file {path!r} has no absolute path, so memory_key= cannot keep it. Name it '/{path}'."
            )
        if before.get(path) != file:
            changes[f"{FOLDER}{path}"] = dict(file)
    gone: dict[str, Any] = {f"{FOLDER}{path}": None for path in before if path not in after}
    return {**changes, **gone}


def import_v0(files: Mapping[str, bytes]) -> V0Content:
    """Take over the history and the files that Flyte's own store has.

    Args:
        files: The messages, and the files as text by path or as the SDK has them.

    Raises:
        ValueError: They are something else.
    """
    messages = {path: data for path, data in files.items() if path.endswith("history.json")}
    found: dict[str, Any] = {}
    for path in files.keys() - messages.keys():
        for name, file in json.loads(files[path]).items():
            found[name] = {"content": file, "encoding": "utf-8"} if isinstance(file, str) else _whole(file)
    return V0Content(import_messages(messages).messages if messages else [], kept_files({}, found))


def _whole(file: Any) -> dict[str, Any]:
    """A file as this version of the SDK has it: earlier ones had a list of lines."""
    content = file["content"]
    return {"encoding": "utf-8", **file, "content": "\n".join(content) if isinstance(content, list) else str(content)}
