"""The SDK's sessions on Flyte's storage.

A session's events are a transcript of a memory, which is only added to; its state follows from them. What an app and a user know
across sessions are values of their own, which are replaced only if nobody else did meanwhile.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, cast

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions._session_util import extract_state_delta
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from flyteplugins.agents.core import JSON, MemoryConflictError, MemoryStore, canonical_json

from ._session import check_state, dump_events

__all__ = ["FlyteSessionService"]

_FOLDER = "adk"


class FlyteSessionService(BaseSessionService):
    """Keeps the SDK's sessions in a memory: give it to `run_agent(session_service=...)`, or to the SDK's own `Runner`.

    It works inside of a task, for any number of apps, users and sessions, beside other writers of the same key. Events and state
    have to be JSON values. What is deleted is removed for good.

    Args:
        key: The memory's key, one path segment.
    """

    def __init__(self, key: str) -> None:
        self.key = key

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Make a session.

        Args:
            app_name: The app's name.
            user_id: The user's id.
            state: What it knows; `app:` and `user:` keys are the app's and the user's.
            session_id: Its id; made up by default.

        Returns:
            The session, with what its app and user know.

        Raises:
            AlreadyExistsError: There is one of that id.
            UnserializableError: A value of the state is no JSON value.
            RuntimeError: There is no running task.
        """
        store = self._store()
        number = (session_id or "").strip() or platform_uuid.new_uuid()
        check_state(state or {}, "state")
        deltas = extract_state_delta(state or {})
        path = _session_path(app_name, user_id, number)
        found = await store.stat(path)
        kept: dict[str, JSON] = {
            "app_name": app_name,
            "user_id": user_id,
            "id": number,
            "state": deltas["session"],
            "created": platform_time.get_time(),
            "events": f"{_FOLDER}/session/{uuid.uuid4().hex}",
        }
        exists = AlreadyExistsError(f"Session with id {number} already exists.")
        if found is not None and not found.deleted:
            raise exists
        await self._update(store, app_name, user_id, deltas)
        try:
            await store.write_json(path, kept, expected_version=found.version if found is not None else 0)
        except MemoryConflictError as error:
            raise exists from error
        return await self._session(store, kept, None)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Read a session.

        Args:
            app_name: The app's name.
            user_id: The user's id.
            session_id: Its id.
            config: Which of its events; all by default. Its state is whole in any case.

        Returns:
            The session; `None` if there is none.
        """
        store = self._store()
        kept = await self._kept(store, app_name, user_id, session_id)
        return await self._session(store, kept, config) if kept is not None else None

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """List sessions without their events, the one that was used last at the end.

        Args:
            app_name: The app's name.
            user_id: The user's id; everybody's by default.
        """
        store = self._store()
        folder = f"{_FOLDER}/sessions/{_short(app_name)}" + (f"/{_short(user_id)}" if user_id is not None else "")
        sessions: list[Session] = []
        for path in await store.list_paths(folder):
            kept = cast("dict[str, JSON] | None", await store.read_json(path, default=None))
            if kept is not None:  # it may have been deleted meanwhile
                sessions.append(await self._session(store, kept, GetSessionConfig(num_recent_events=0)))
        sessions.sort(key=lambda one: (one.last_update_time, one.user_id, one.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session for good. What its app and its user know stays.

        Args:
            app_name: The app's name.
            user_id: The user's id.
            session_id: Its id.
        """
        store = self._store()
        kept = await self._kept(store, app_name, user_id, session_id)
        if kept is None:
            return
        await store.delete_path(_session_path(app_name, user_id, session_id), purge=True)
        await store.delete_transcript(str(kept["events"]))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Read what is known of a user across sessions, by keys without `user:`.

        Args:
            app_name: The app's name.
            user_id: The user's id.
        """
        return await self._values(self._store(), _user_path(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event to a session, and its changes of the state; the same event is added once.

        Args:
            session: The session, which gets the event and the changes too.
            event: The event. A piece of an answer is not kept, and neither are `temp:` keys.

        Returns:
            The event.

        Raises:
            SessionNotFoundError: There is no such session.
            UnserializableError: The event has something in it that would be kept as another value.
        """
        if event.partial:
            return event
        await self.append_events(session, [event])
        if not any(one == event for one in session.events if one.id == event.id):
            await super().append_event(session, event)
            session.last_update_time = event.timestamp
        return event

    async def append_events(self, session: Session, events: Sequence[Event]) -> None:
        """Add events to what is kept of a session, all of them or none; the same events are added once.

        Args:
            session: The session, which itself is not changed.
            events: The events.

        Raises:
            SessionNotFoundError: There is no such session.
            UnserializableError: An event has something in it that would be kept as another value.
        """
        store = self._store()
        kept = await self._kept(store, session.app_name, session.user_id, session.id)
        if kept is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        messages = dump_events([_without_temporary(event) for event in events])
        changes: dict[str, Any] = {}
        for event in events:
            changes |= event.actions.state_delta
        await self._update(store, session.app_name, session.user_id, extract_state_delta(changes))
        name = str(kept["events"])
        commit = hashlib.sha256(canonical_json([name, messages])).hexdigest()
        await store.commit(name, await store.snapshot(name), commit, messages)

    def _store(self) -> MemoryStore:
        return MemoryStore.for_key(self.key)

    async def _kept(self, store: MemoryStore, app_name: str, user_id: str, session_id: str) -> dict[str, JSON] | None:
        path = _session_path(app_name, user_id, session_id.strip())
        return cast("dict[str, JSON] | None", await store.read_json(path, default=None))

    async def _session(self, store: MemoryStore, kept: Mapping[str, JSON], config: GetSessionConfig | None) -> Session:
        app_name, user_id = str(kept["app_name"]), str(kept["user_id"])
        events = [Event.model_validate(one) for one in await store.messages(str(kept["events"]))]
        state = dict(cast("dict[str, Any]", kept["state"]))
        for event in events:
            state |= extract_state_delta(event.actions.state_delta)["session"]
        for prefix, path in (
            (State.APP_PREFIX, _app_path(app_name)),
            (State.USER_PREFIX, _user_path(app_name, user_id)),
        ):
            state |= {f"{prefix}{name}": value for name, value in (await self._values(store, path)).items()}
        return Session(
            id=str(kept["id"]),
            app_name=app_name,
            user_id=user_id,
            state=state,
            events=_chosen(events, config),
            last_update_time=events[-1].timestamp if events else float(cast(float, kept["created"])),
        )

    async def _values(self, store: MemoryStore, path: str) -> dict[str, Any]:
        return cast("dict[str, Any]", await store.read_json(path, default={}))

    async def _update(self, store: MemoryStore, app_name: str, user_id: str, deltas: Mapping[str, Any]) -> None:
        for scope, path in (("app", _app_path(app_name)), ("user", _user_path(app_name, user_id))):
            while deltas[scope]:
                found = await store.stat(path)
                values = await self._values(store, path) | deltas[scope]
                try:
                    await store.write_json(path, values, expected_version=found.version if found is not None else 0)
                except MemoryConflictError:
                    continue  # somebody else changed it meanwhile: change what they made of it
                break


def _chosen(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    """The events that a reader wants, as the SDK's own services choose them."""
    if config is None:
        return events
    if config.num_recent_events is not None:
        events = events[-config.num_recent_events :] if config.num_recent_events else []
    if config.after_timestamp is not None:
        first = next((n for n in range(len(events), 0, -1) if events[n - 1].timestamp < config.after_timestamp), 0)
        events = events[first:]
    return events


def _without_temporary(event: Event) -> Event:
    kept = {key: value for key, value in event.actions.state_delta.items() if not key.startswith(State.TEMP_PREFIX)}
    if len(kept) == len(event.actions.state_delta):
        return event
    return event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": kept})})


def _short(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _session_path(app_name: str, user_id: str, session_id: str) -> str:
    return f"{_FOLDER}/sessions/{_short(app_name)}/{_short(user_id)}/{_short(session_id.strip())}.json"


def _app_path(app_name: str) -> str:
    return f"{_FOLDER}/state/{_short(app_name)}/app.json"


def _user_path(app_name: str, user_id: str) -> str:
    return f"{_FOLDER}/state/{_short(app_name)}/users/{_short(user_id)}.json"
