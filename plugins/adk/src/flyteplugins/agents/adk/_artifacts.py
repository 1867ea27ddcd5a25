"""Artifacts that are kept in memory: those of an earlier attempt are there on a resume.

A resume makes no recorded call again, so nothing would put them there. Services that last have them anyway.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.adk.artifacts import BaseArtifactService, InMemoryArtifactService
from google.adk.artifacts.base_artifact_service import ensure_part

from flyteplugins.agents.core import AgentRun, idempotency_key, jsonable

__all__ = ["restore_artifacts", "save_kept"]

_PREFIX = "artifact."


async def save_kept(
    run: AgentRun, service: object, save: Callable[..., Awaitable[Any]], kwargs: Mapping[str, Any]
) -> Any:
    """Save an artifact; where that is in memory, keep it on the run's storage as well.

    Args:
        run: The agent run.
        service: The artifact service.
        save: Its own `save_artifact`.
        kwargs: Its keywords.

    Returns:
        The artifact's version.
    """
    if run.scope is None or not run.recorder.durable or not isinstance(service, InMemoryArtifactService):
        return await save(**kwargs)
    file = f"{run.recorder.number}/{_PREFIX}{idempotency_key()}"
    try:
        kept = json.loads(await run.scope.folder.read(file))
    except FileNotFoundError:
        pass
    else:
        return kept["version"]  # an attempt that ended before it had this on record: it was restored
    version = await save(**kwargs)
    part = ensure_part(kwargs["artifact"]).model_dump(mode="json", exclude_none=True)
    content = {"version": version, "arguments": jsonable({**kwargs, "artifact": part})}
    await run.scope.folder.create(file, json.dumps(content).encode())
    return version


async def restore_artifacts(run: AgentRun, service: BaseArtifactService | None) -> None:
    """Put the artifacts that an earlier attempt saved in memory into this one's service, where they are not.

    Args:
        run: The agent run, which asks for nothing yet.
        service: Its artifact service.
    """
    if run.scope is None or not run.recorder.resumed or not isinstance(service, InMemoryArtifactService):
        return
    kept: list[dict[str, Any]] = []
    for name in await run.scope.folder.names(run.recorder.number):
        if name.rpartition("/")[2].startswith(_PREFIX):
            kept.append(json.loads(await run.scope.folder.read(name)))
    kind = InMemoryArtifactService  # by the class, which is asked itself and not recorded
    for one in sorted(kept, key=lambda one: int(one["version"])):
        arguments = one["arguments"]
        place = {key: arguments.get(key) for key in ("app_name", "user_id", "filename", "session_id")}
        if one["version"] not in await kind.list_versions(service, **place):
            await kind.save_artifact(service, **arguments)
