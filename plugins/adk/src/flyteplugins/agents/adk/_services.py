"""Memory and artifact services: what one gave to a run, it gives to a resume.

What a service is asked outside of a tool's call (a memory that is preloaded into a request, an artifact in an instruction) is
part of how the agent gets to its requests, so it is a leaf, as is what is kept there.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any, cast

from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.genai import types
from pydantic import BaseModel

from flyteplugins.agents.core import JSON, current_run

from ._artifacts import save_kept
from ._loop import on_run_loop

__all__ = ["SERVICE_METHODS", "serve_recorded"]


class _Plain:
    def encode(self, value: Any) -> JSON:
        return cast(JSON, value)

    def decode(self, payload: JSON) -> Any:
        return payload


class _Model:
    def __init__(self, kind: type[BaseModel]) -> None:
        self._kind = kind

    def encode(self, value: BaseModel | None) -> JSON:
        return None if value is None else cast(JSON, value.model_dump(mode="json", exclude_none=True))

    def decode(self, payload: JSON) -> BaseModel | None:
        return None if payload is None else self._kind.model_validate(payload)


SERVICE_METHODS: dict[str, _Plain | _Model] = {
    "search_memory": _Model(SearchMemoryResponse),
    "add_session_to_memory": _Plain(),
    "load_artifact": _Model(types.Part),
    "save_artifact": _Plain(),
    "delete_artifact": _Plain(),
    "list_artifact_keys": _Plain(),
    "list_versions": _Plain(),
}
"""The methods of services that are leaves, and how what they return is kept."""

_EACH_TIME_ANOTHER = frozenset({"session", "session_id"})
"""Arguments that say which session asks; a resume has another."""


async def serve_recorded(
    service: object, name: str, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> Any:
    """Ask a service, or answer from the record.

    Args:
        service: The service.
        name: The method's name.
        call: The service's own method.
        args: Its arguments.
        kwargs: Its keywords.

    Returns:
        What it returned.
    """
    run = current_run()
    if run is None:
        return await call(*args, **kwargs)
    kind = type(service)
    fields: dict[str, object] = {
        "service": f"{kind.__module__}.{kind.__qualname__}.{name}",
        "arguments": {key: _shown(value) for key, value in kwargs.items() if key not in _EACH_TIME_ANOTHER},
    }
    recorder = run.recorder

    async def ask() -> Any:
        if name == "save_artifact" and not args:
            return await save_kept(run, service, call, kwargs)
        return await call(*args, **kwargs)

    recorded = await on_run_loop(lambda: recorder.record("memory", fields, ask, codec=cast(Any, SERVICE_METHODS[name])))
    return recorded.value


def _shown(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return value
