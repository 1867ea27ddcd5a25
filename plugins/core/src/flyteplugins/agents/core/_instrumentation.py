"""Hooks through which an observability package watches agents that an adapter runs, without core knowing of it.

There are two ways in. A payload hook is given what the SDK's own run takes (a LangChain config, run hooks, options), and returns
it with a handler attached; a call wrapper is given the SDK's call itself. And where neither is needed, a hook may listen to the
neutral event stream. None of them may change what the agent does: one that fails is logged once and left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

from ._events import Event, EventSink, deliver
from ._structure import without_contents

__all__ = [
    "CallWrapper",
    "Instrumentor",
    "apply_call_wrapper",
    "apply_instrumentation",
    "instrumented_frameworks",
    "listeners",
    "register_call_wrapper",
    "register_instrumentor",
    "unregister_call_wrapper",
    "unregister_instrumentor",
]

logger = logging.getLogger("flyteplugins.agents")

T = TypeVar("T")

Instrumentor: TypeAlias = Callable[[Any], Any]
"""Takes the framework's native payload, and returns the one to use. Of events: takes one event; may be a coroutine function."""

CallWrapper: TypeAlias = Callable[[Any], Any]
"""Takes the SDK's callable, and returns the one to call instead, with the same signature."""

ALL = "*"
"""As a framework's name: every one. For events only."""

_ALIASES = {"google": "adk"}
"""Names that published programs use."""

_payloads: dict[str, Instrumentor] = {}
_listeners: dict[str, Instrumentor] = {}
_wrappers: dict[str, CallWrapper] = {}
_told: set[tuple[str, int]] = set()
_lock = threading.Lock()


def register_instrumentor(
    framework: str, instrumentor: Instrumentor, *, of: Literal["payload", "events"] = "payload"
) -> None:
    """Watch the agents of a framework, in this process, from the next agent run on. Replaces what was registered before.

    Args:
        framework: The adapter's name: `openai`, `adk` (or `google`), `langchain`, `langgraph`, `deepagents`, `pydantic_ai`,
            `mistral`, `claude`; for events also `*` for every one.
        instrumentor: Of a payload: a function that is given what the SDK's own run takes, or `None` where the caller gave
            nothing, and returns what to use instead. It is given a copy as far as dicts and lists go, so that the caller's
            stays as it is. Of events: a plain or a coroutine function that is given each `Event` of each agent run.
        of: What it is given. With `observability="structure"` a payload hook is not asked, since nobody could keep contents from
            it, and events come without contents. With `observability=False` neither is.

    Raises:
        TypeError: It cannot be called.
        ValueError: `of` is neither.
    """
    if of not in ("payload", "events"):
        raise ValueError(f"of is {of!r}; give 'payload' or 'events'.")
    _check(framework, instrumentor, "An instrumentor")
    (_payloads if of == "payload" else _listeners)[_name(framework)] = instrumentor


def unregister_instrumentor(framework: str) -> None:
    """Remove what was registered for a framework: for its payloads and for its events. There need not be anything."""
    _payloads.pop(_name(framework), None)
    _listeners.pop(_name(framework), None)


def register_call_wrapper(framework: str, wrapper: CallWrapper) -> None:
    """Wrap the SDK's own call of each agent run of a framework. Replaces what was registered before.

    For SDKs that cannot be watched by handing an object to them, as Claude's, whose turns arrive as messages of `query`.

    Args:
        framework: The adapter's name, as for `register_instrumentor`.
        wrapper: Given the callable that the adapter is about to call, returns one with the same signature. It is not asked
            with `observability=False` or `"structure"`.

    Raises:
        TypeError: It cannot be called.
    """
    _check(framework, wrapper, "A call wrapper")
    _wrappers[_name(framework)] = wrapper


def unregister_call_wrapper(framework: str) -> None:
    """Remove a framework's call wrapper. There need not be one."""
    _wrappers.pop(_name(framework), None)


def instrumented_frameworks() -> tuple[str, ...]:
    """The frameworks for which something is registered, sorted."""
    return tuple(sorted({*_payloads, *_listeners, *_wrappers}))


def apply_instrumentation(framework: str, payload: T) -> T:
    """Offer the SDK's native payload to the framework's instrumentor. Adapters do, by `AgentRun.instrumented`.

    Args:
        framework: The adapter's name.
        payload: What the SDK's own run takes.

    Returns:
        What the instrumentor returned; the payload itself where there is none, or where it failed or returned nothing.
    """
    instrumentor = _payloads.get(_name(framework))
    if instrumentor is None:
        return payload
    try:
        offered: T | None = instrumentor(_copied(payload))
    except Exception as error:  # noqa: BLE001 - watching an agent is no reason for it to stop
        _tell(framework, instrumentor, f"raised {type(error).__name__}: {error}")
        return payload
    if offered is None and payload is not None:
        _tell(framework, instrumentor, "returned None in place of the payload")
        return payload
    return payload if offered is None else offered


def apply_call_wrapper(framework: str, call: T) -> T:
    """Offer the SDK's own callable to the framework's wrapper. Adapters do, by `AgentRun.wrapped_call`.

    Args:
        framework: The adapter's name.
        call: What the adapter is about to call.

    Returns:
        What to call: the callable itself where there is no wrapper, or where it failed or returned nothing that can be called.
    """
    wrapper = _wrappers.get(_name(framework))
    if wrapper is None:
        return call
    try:
        wrapped: T = wrapper(call)
    except Exception as error:  # noqa: BLE001 - as above
        _tell(framework, wrapper, f"raised {type(error).__name__}: {error}")
        return call
    if not callable(wrapped):
        _tell(framework, wrapper, f"returned {wrapped!r}, which cannot be called")
        return call
    return wrapped


def listeners(framework: str, *, contents: bool) -> list[EventSink]:
    """The sinks of an agent run that registered instrumentors of events are.

    Args:
        framework: The adapter's name.
        contents: Whether they are given what was said; else its size and hash.
    """
    name = _name(framework)
    return [_listen(name, _listeners[key], contents) for key in (name, ALL) if key in _listeners]


def _listen(framework: str, instrumentor: Instrumentor, contents: bool) -> EventSink:
    failed = False

    async def listen(event: Event) -> None:
        nonlocal failed
        if failed:
            return
        try:
            await deliver(instrumentor, event if contents else without_contents(event))
        except Exception as error:  # noqa: BLE001 - as above
            failed = True
            _tell(framework, instrumentor, f"raised {type(error).__name__}: {error}")

    return listen


def _copied(payload: Any) -> Any:
    """A copy of dicts and lists, two levels deep: what a hook that appends a handler changes."""
    if type(payload) is dict:
        return {key: _shallow(value) for key, value in payload.items()}
    return _shallow(payload)


def _shallow(value: Any) -> Any:
    return value.copy() if type(value) in (dict, list) else value


def _name(framework: str) -> str:
    return _ALIASES.get(framework, framework)


def _check(framework: str, hook: object, what: str) -> None:
    if not callable(hook):
        raise TypeError(f"{what} of {framework!r} is called with one argument; {hook!r} cannot be called.")


def _tell(framework: str, hook: object, problem: str) -> None:
    with _lock:
        if (framework, id(hook)) in _told:
            return
        _told.add((framework, id(hook)))
    logger.warning(
        "What %r registered for agents of %s %s. Agents run without it; this is said once.",
        getattr(hook, "__module__", type(hook).__module__), framework, problem,
    )  # fmt: skip
