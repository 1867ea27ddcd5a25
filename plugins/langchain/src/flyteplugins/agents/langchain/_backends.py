"""Deep Agents' backends: what is outside of a graph's state is a leaf.

A deep agent's files are in its state, in a file system, in a store or in a sandbox, and tools, middleware and skills reach them
through a backend. What a backend outside of the state is asked is recorded, call by call, whoever asks it: a file is written once
and a command run once, and a resume reads what the first attempt read. The state itself is made again by the replay, so that
`StateBackend` is never a leaf; nor are the tools that use a backend, nor `task`, whose sub-agents' turns are leaves themselves.

Methods are wrapped once per class and process, and do nothing outside of an agent run.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import pathlib
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool

from flyteplugins.agents.core import AgentError, AgentRun, ToolCallRepeated, canonical_json, current_run

from ._bridge import wait_sync
from ._codec import ValueCodec
from ._nodes import agent_name, made_before, note_made, request_key
from ._request import normal_messages

__all__ = ["install_deep", "is_made_again"]

_METHODS = (
    "ls", "read", "grep", "glob", "write", "edit", "delete", "upload_files", "download_files", "execute",
    "execute_with_offload",
)  # fmt: skip

_EFFECTS = frozenset({"write", "edit", "delete", "upload_files", "execute", "execute_with_offload"})

_MADE_AGAIN = frozenset(
    f"deepagents.middleware.{name}" for name in ("filesystem", "subagents", "skills", "_skill_tools", "summarization")
)

_INSIDE: contextvars.ContextVar[str] = contextvars.ContextVar("flyteplugins.agents.langchain.backend", default="")
_SEED: contextvars.ContextVar[bytes | None] = contextvars.ContextVar("flyteplugins.agents.langchain.seed", default=None)

_WRAPPED = "__flyte_backend__"


def is_made_again(tool: BaseTool) -> bool:
    """Whether a tool is one of Deep Agents' own whose call a replay makes again: what happens inside of it is leaves."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    return getattr(function, "__module__", "") in _MADE_AGAIN


def install_deep() -> None:
    """Wrap backends, where Deep Agents is in use at all.

    Raises:
        AgentError: This version has no such method.
    """
    if "deepagents" not in sys.modules:
        return
    protocol = importlib.import_module("deepagents.backends.protocol")
    waiting: list[type] = [protocol.BackendProtocol]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        for name in _METHODS:
            if kind is not protocol.BackendProtocol and kind is not protocol.SandboxBackendProtocol:
                _wrap(kind, name)  # theirs only raise, and are compared with to see what a backend can do
            _wrap(kind, f"a{name}")
    _keep_names_still()


def _wrap(kind: type, name: str) -> None:
    method = vars(kind).get(name)
    if not inspect.isfunction(method) or hasattr(method, _WRAPPED) or getattr(method, "__isabstractmethod__", False):
        return
    made = _recorded_async(method) if inspect.iscoroutinefunction(method) else _recorded(method)
    setattr(made, _WRAPPED, True)
    setattr(kind, name, made)


def _recorded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = _run_of(self)
        if run is None:
            return method(self, *args, **kwargs)

        def call() -> Any:
            token = _INSIDE.set(type(self).__qualname__)
            try:
                return method(self, *args, **kwargs)
            finally:
                _INSIDE.reset(token)

        return wait_sync(lambda in_caller: _leaf(run, self, method, args, kwargs, lambda: in_caller(call)))

    return recorded


def _recorded_async(method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = _run_of(self)
        if run is None:
            return await method(self, *args, **kwargs)

        async def call() -> Any:
            token = _INSIDE.set(type(self).__qualname__)
            try:
                return await method(self, *args, **kwargs)
            finally:
                _INSIDE.reset(token)

        return await _leaf(run, self, method, args, kwargs, call)

    return recorded


def _run_of(backend: Any) -> AgentRun | None:
    """The agent run whose leaf a call is; `None` where it is none."""
    run = current_run()
    if run is None or run.scope is None or not run.recorder.durable:
        return None
    from deepagents.backends import CompositeBackend, StateBackend

    outer = _INSIDE.get()
    if isinstance(backend, StateBackend):
        if outer:
            raise AgentError(
                f"The backend {outer} uses a StateBackend. Its calls are recorded, and a resume would not write to the state. "
                "Use a CompositeBackend, which sends each path to the backend that has it, or derive from StateBackend."
            )
        return None
    if isinstance(backend, CompositeBackend) or outer:
        return None
    return run


async def _leaf(
    run: AgentRun,
    backend: Any,
    method: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    call: Callable[[], Awaitable[Any]],
) -> Any:
    kind = type(backend)
    given = inspect.signature(method).bind(backend, *args, **kwargs).arguments
    name = method.__name__.removeprefix("a") if inspect.iscoroutinefunction(method) else method.__name__
    fields: dict[str, object] = {
        "backend": f"{kind.__module__}.{kind.__qualname__}",
        "place": _place(backend),
        "method": name,
        "arguments": dict(list(given.items())[1:]),
    }
    codec = ValueCodec(f"{kind.__qualname__}.{name}")
    key = request_key(run, fields)
    if (payload := made_before(run, key)) is not None:
        return codec.decode(payload)
    repeated = ToolCallRepeated(**run.call_event(f"{kind.__qualname__}.{name}", "", agent_name(run.name)))
    async with run.recorder.strand(call=False):  # siblings in one tool call are not inside of each other
        recorded = await run.recorder.record(
            "tool",
            fields,
            call,
            codec=codec,
            info=lambda _: {"tool": name, "error": None},
            on_unknown=(lambda _: run.emit(repeated)) if name in _EFFECTS else None,
        )
    note_made(run, key, lambda: codec.encode(recorded.value))
    return recorded.value


def _place(backend: Any) -> list[str]:
    """What tells two backends of one class apart, as far as it is the same in each process."""
    namespace = getattr(backend, "_get_namespace", None)
    if callable(namespace):
        return [str(part) for part in namespace()]
    return sorted(f"{name}={value}" for name, value in vars(backend).items() if isinstance(value, pathlib.PurePath))


# names of files that the SDK makes up


class _Uuids:
    """The module `uuid`, whose random ids are not random while a seed is set."""

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)

    @staticmethod
    def uuid4() -> uuid.UUID:
        seed = _SEED.get()
        return uuid.uuid4() if seed is None else uuid.UUID(bytes=hashlib.sha256(seed).digest()[:16], version=4)


def _keep_names_still() -> None:
    """Have the files that Deep Agents moves old messages to be named alike in each attempt: a model is told their names."""
    for module_name, class_name, methods in (
        ("summarization", "_DeepAgentsSummarizationMiddleware", ("_get_session_id",)),
        ("filesystem", "FilesystemMiddleware", ("_evict_and_truncate_messages", "_aevict_and_truncate_messages")),
    ):
        module = importlib.import_module(f"deepagents.middleware.{module_name}")
        owner = getattr(module, class_name, None)
        if owner is None or not hasattr(module, "uuid") or any(name not in vars(owner) for name in methods):
            version = importlib.metadata.version("deepagents")
            raise AgentError(
                f"deepagents {version} has no {class_name}.{methods[0]}, by which files get names that are the same on a resume. "
                "Install a version that flyteplugins-agents-langchain[deepagents] names."
            )
        if isinstance(module.uuid, _Uuids):
            continue
        vars(module)["uuid"] = _Uuids()
        for name in methods:
            method = vars(owner)[name]
            setattr(owner, name, _seeded_async(method) if inspect.iscoroutinefunction(method) else _seeded(method))


def _seeded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def seeded(self: Any, asked: Any) -> Any:
        token = _SEED.set(_seed(asked))
        try:
            return method(self, asked)
        finally:
            _SEED.reset(token)

    return seeded


def _seeded_async(method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def seeded(self: Any, asked: Any) -> Any:
        token = _SEED.set(_seed(asked))
        try:
            return await method(self, asked)
        finally:
            _SEED.reset(token)

    return seeded


def _seed(asked: Any) -> bytes | None:
    """What a name is made of: the agent run, and the conversation that is moved away."""
    run = current_run()
    if run is None or run.scope is None or not run.recorder.durable:
        return None
    messages = asked["messages"] if isinstance(asked, Mapping) else asked.messages
    identity = [*run.scope.identity, run.recorder.number]
    return canonical_json([identity, normal_messages(cast("Sequence[BaseMessage]", messages))])
