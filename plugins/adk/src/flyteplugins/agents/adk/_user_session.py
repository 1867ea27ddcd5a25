"""A session of the caller's own service, in an agent run.

The SDK reads a session when a run begins and writes to it after every event. A run that dies in the middle would find its own
events in what it reads the next time, and have them twice in the end. So what a run reads is a leaf, and its events are added
when the run has its answer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, cast

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session

from flyteplugins.agents.core import (
    JSON,
    AgentRun,
    JsonCodec,
    MemoryNotice,
    MemoryUnavailableError,
)

from ._session import check_state, dump_events
from ._session_service import FlyteSessionService

__all__ = ["UserSession"]

logger = logging.getLogger("flyteplugins.agents")


@dataclass
class UserSession:
    """A session that an agent run goes on with.

    Attributes:
        service: The caller's service; `None` where it has no storage.
        app_name: The app's name.
        user_id: The user's id.
        id: The session's id.
        events: Its events before the run, the same on every attempt.
        state: Its state before the run, that of its app and user included.
    """

    service: BaseSessionService | None
    app_name: str
    user_id: str
    id: str
    events: list[Event]
    state: dict[str, Any]

    @classmethod
    async def open(
        cls,
        run: AgentRun,
        service: BaseSessionService,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        required: bool,
    ) -> UserSession:
        """Read the session, or make it; what was read is a leaf.

        Args:
            run: The agent run.
            service: The caller's service.
            app_name: The app's name.
            user_id: The user's id.
            session_id: The session's id.
            required: Whether it is an error if Flyte's storage cannot be found; else the run goes on without, and says so.

        Raises:
            MemoryUnavailableError: There is no storage, and it is required.
            UnserializableError: The session holds something that has no JSON form.
        """
        self = cls(service, app_name, user_id, session_id, [], {})
        if isinstance(service, FlyteSessionService):
            try:
                if run.scope is None:
                    raise MemoryUnavailableError(
                        f"There is no place for the sessions of {service.key!r} outside of a Flyte task."
                    )
                service._store()
            except MemoryUnavailableError as error:
                if required:
                    raise
                message = f"{error} The agent goes on without an earlier session."
                logger.warning("%s", message)
                await run.emit(MemoryNotice(run=run.id, agent=run.name, message=message))
                self.service = None
                return self

        async def read() -> JSON:
            found = await self._stored()
            if found is None:  # with what its app and user know
                found = await service.create_session(app_name=app_name, user_id=user_id, session_id=session_id)
            check_state(found.state, "state")
            return {"events": dump_events(found.events), "state": cast(JSON, found.state)}

        recorded = await run.recorder.record("memory", self._fields("read"), read, codec=JsonCodec())
        kept = cast("dict[str, Any]", recorded.value)
        self.events = [Event.model_validate(one) for one in kept["events"]]
        self.state = kept["state"]
        return self

    async def commit(self, run: AgentRun, events: list[Event]) -> None:
        """Add what the run has to the session, once over all attempts.

        Args:
            run: The agent run.
            events: Its events.

        Raises:
            UnserializableError: One has something in it that would be kept as another value.
        """
        run.meter.check()  # a run over its budget has no answer, whoever swallowed the error
        service = self.service
        if service is None or not events:
            return

        async def dump() -> JSON:
            return dump_events(events)

        # the ids of events and calls are made up on each attempt: those that are added are one attempt's
        recorded = await run.recorder.record("memory", self._fields("events"), dump, codec=JsonCodec())
        new = [Event.model_validate(one) for one in cast("list[Any]", recorded.value)]

        async def write() -> JSON:
            live = await self._stored()
            if live is None:  # it was deleted meanwhile
                live = await service.create_session(app_name=self.app_name, user_id=self.user_id, session_id=self.id)
            there = {event.id for event in live.events}
            left = [event for event in new if event.id not in there]  # an attempt may have died while it added them
            if isinstance(service, FlyteSessionService):
                if left:
                    await service.append_events(live, left)
            else:
                for event in left:
                    await service.append_event(live, event)
                await service.flush()
            return len(new)

        await run.recorder.record("memory", self._fields("commit"), write, codec=JsonCodec())

    async def _stored(self) -> Session | None:
        assert self.service is not None
        return await self.service.get_session(app_name=self.app_name, user_id=self.user_id, session_id=self.id)

    def _fields(self, what: str) -> dict[str, object]:
        kind = type(self.service)
        key = self.service.key if isinstance(self.service, FlyteSessionService) else ""
        return {
            "session service": f"{kind.__module__}.{kind.__qualname__} {key}".strip(),
            "session": [self.app_name, self.user_id, self.id],
            "what": what,
        }
