"""Tools of the SDK whose effects happen in this process: shells, editors, computers and custom tools. Recorded as inline leaves.

The SDK runs each kind in a class of its own, with hooks and approvals around one call of what the caller gave: an executor, an
editor, a driver. That one call is the leaf, so that hooks are called on a replay as well. The SDK gets a copy of the tool.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar, cast

from agents import ApplyPatchOperation, ApplyPatchResult, ShellResult
from agents.run_internal.tool_actions import (
    ApplyPatchAction,
    ComputerAction,
    CustomToolAction,
    LocalShellAction,
    ShellAction,
)
from pydantic import TypeAdapter

from flyteplugins.agents.core import JSON, AgentRun, current_run, jsonable

from ._codec import dump_model

__all__ = ["SEAMS"]

T = TypeVar("T")
Wrapper = Callable[[Callable[..., Awaitable[Any]], object, tuple[Any, ...], Mapping[str, Any]], Awaitable[Any]]

_IDS = frozenset({"id", "call_id", "status"})


class _TypeCodec(Generic[T]):
    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)

    def encode(self, value: T) -> JSON:
        return cast(JSON, self._adapter.dump_python(value, mode="json"))

    def decode(self, payload: JSON) -> T:
        return self._adapter.validate_python(payload)


_SHELL: _TypeCodec[ShellResult | str] = _TypeCodec(ShellResult | str)
_PATCH: _TypeCodec[ApplyPatchResult | str | None] = _TypeCodec(ApplyPatchResult | str | None)
_TEXT: _TypeCodec[str] = _TypeCodec(str)


async def _recorded(
    name: str, tool_call: Any, call: Callable[[], Any], codec: _TypeCodec[T], agent: str, arguments: Any = None
) -> T:
    run: AgentRun | None = current_run()
    assert run is not None  # the seam looked

    async def make() -> T:
        made = call()
        return cast(T, await made if inspect.isawaitable(made) else made)

    if arguments is None:
        whole = jsonable(dump_model(tool_call))
        arguments = (
            {key: value for key, value in whole.items() if key not in _IDS} if isinstance(whole, dict) else whole
        )
    identity = tool_call.get("call_id") if isinstance(tool_call, Mapping) else getattr(tool_call, "call_id", "")
    recorded = await run.inline_tool(
        name, arguments, make, codec=codec, shown=_shown, call_id=str(identity or ""), agent=agent
    )
    return recorded.value


def _shown(value: object) -> str:
    if isinstance(value, ShellResult):
        return "\n".join(part for entry in value.output for part in (entry.stdout, entry.stderr) if part)
    if isinstance(value, ApplyPatchResult):
        return value.output or value.status or ""
    return "" if value is None else str(value)


def _with(call: Any, field: str, **changes: Any) -> Any:
    """A copy of a call whose tool is a copy with other fields."""
    tool = copy.copy(getattr(call, field))
    for name, value in changes.items():
        setattr(tool, name, value)
    return dataclasses.replace(call, **{field: tool})


async def _local_shell(
    wrapped: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    if current_run() is None:
        return await wrapped(*args, **kwargs)
    call, agent = kwargs["call"], kwargs["agent"].name
    execute = call.local_shell_tool.executor

    async def executor(request: Any) -> str:
        return await _recorded("local_shell", call.tool_call, lambda: execute(request), _TEXT, agent)

    return await wrapped(*args, **{**kwargs, "call": _with(call, "local_shell_tool", executor=executor)})


async def _shell(
    wrapped: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    call, agent = kwargs["call"], kwargs["agent"].name
    execute = call.shell_tool.executor
    if current_run() is None or execute is None:
        return await wrapped(*args, **kwargs)

    async def executor(request: Any) -> ShellResult | str:
        return await _recorded(call.shell_tool.name, call.tool_call, lambda: execute(request), _SHELL, agent)

    return await wrapped(*args, **{**kwargs, "call": _with(call, "shell_tool", executor=executor)})


async def _custom(
    wrapped: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    if current_run() is None:
        return await wrapped(*args, **kwargs)
    call, agent = kwargs["call"], kwargs["agent"].name
    tool = call.custom_tool

    async def invoke(context: Any, text: str) -> str:
        async def make() -> str:
            made = tool.on_invoke_tool(context, text)
            return str(await made if inspect.isawaitable(made) else made)  # as the SDK tells the model

        return await _recorded(tool.name, call.tool_call, make, _TEXT, agent, arguments=text)

    return await wrapped(*args, **{**kwargs, "call": _with(call, "custom_tool", on_invoke_tool=invoke)})


class _Editor:
    """An editor whose operations are leaves."""

    def __init__(self, editor: Any, tool_call: Any, agent: str) -> None:
        self._editor = editor
        self._tool_call = tool_call
        self._agent = agent

    async def _apply(self, operation: ApplyPatchOperation) -> ApplyPatchResult | str | None:
        edit = getattr(self._editor, operation.type)
        arguments = {name: getattr(operation, name) for name in ("type", "path", "diff", "move_to")}
        return await _recorded(
            "apply_patch", self._tool_call, lambda: edit(operation), _PATCH, self._agent, arguments=arguments
        )

    create_file = update_file = delete_file = _apply


async def _apply_patch(
    wrapped: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    if current_run() is None:
        return await wrapped(*args, **kwargs)
    call = kwargs["call"]
    editor = _Editor(call.apply_patch_tool.editor, call.tool_call, kwargs["agent"].name)
    return await wrapped(*args, **{**kwargs, "call": _with(call, "apply_patch_tool", editor=editor)})


async def _computer(
    wrapped: Callable[..., Awaitable[str]], _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    run = current_run()
    if run is None:
        return await wrapped(*args, **kwargs)
    tool_call = args[1] if len(args) > 1 else kwargs["tool_call"]
    return await _recorded("computer", tool_call, lambda: wrapped(*args, **kwargs), _TEXT, run.name)


SEAMS: tuple[tuple[type, str, Wrapper], ...] = (
    (LocalShellAction, "execute", _local_shell),
    (ShellAction, "execute", _shell),
    (CustomToolAction, "execute", _custom),
    (ApplyPatchAction, "execute", _apply_patch),
    (ComputerAction, "_execute_action_and_capture", _computer),
)
"""Where the SDK runs them, and what stands around that."""
