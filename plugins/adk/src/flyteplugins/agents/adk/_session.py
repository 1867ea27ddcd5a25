"""Memory: the events of a session, from which its state follows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from google.adk.events import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.genai import types
from pydantic_core import PydanticSerializationError, to_jsonable_python

from flyteplugins.agents.core import JSON, RunMemory, UnserializableError, V0Content, import_v0_list

__all__ = ["SDK", "SESSION", "RunSessions", "check_state", "dump_events", "import_v0", "repair_events"]

SDK = "adk"
"""Whose messages the transcript holds."""

SESSION = "flyte-session"
"""The id of an agent run's session."""

_NO_RESULT = "Error: this call has no result. The run that made it ended before it had one."


class RunSessions(InMemorySessionService):
    """The session service of one agent run: its session starts from the memory, and what is new is the memory's in the end.

    An attempt that fails leaves nothing, so that the next one starts from the same.
    """

    async def begin(self, memory: RunMemory, *, app_name: str, user_id: str) -> Session:
        """Make the session.

        Args:
            memory: The agent run's memory.
            app_name: The app's name.
            user_id: The user's id.

        Returns:
            The session, with the events and the state of earlier runs.
        """
        self._place = (app_name, user_id, SESSION)
        session = await self.create_session(app_name=app_name, user_id=user_id, session_id=SESSION)
        for message in memory.history:
            await self.append_event(session, Event.model_validate(message))
        self._earlier = len(session.events)
        return session

    async def go_on(
        self, events: Sequence[Event], state: Mapping[str, Any], *, app_name: str, user_id: str, session_id: str
    ) -> None:
        """Make the session of one that a service of the caller's keeps.

        Args:
            events: Its events.
            state: Its state.
            app_name: The app's name.
            user_id: The user's id.
            session_id: Its id.
        """
        await self.create_session(app_name=app_name, user_id=user_id, session_id=session_id, state=dict(state))
        self._place = (app_name, user_id, session_id)
        self._stored.events = list(events)
        self._earlier = len(events)

    @property
    def _stored(self) -> Session:
        app_name, user_id, session_id = self._place
        return self.sessions[app_name][user_id][session_id]

    def new_events(self) -> list[Event]:
        """What the run added, in order."""
        return self._stored.events[self._earlier :]


def dump_events(events: Sequence[Event]) -> list[JSON]:
    """Events as JSON values.

    Args:
        events: The events.

    Raises:
        UnserializableError: One has something in it that would be kept as another value.
    """
    return [_dump_event(event, f"events[{number}]") for number, event in enumerate(events)]


def check_state(state: Mapping[str, Any], path: str) -> None:
    """Refuse what a state cannot be kept with.

    Args:
        state: Its values.
        path: Where they are, for the error.

    Raises:
        UnserializableError: A value is no JSON value.
    """
    for name, value in state.items():
        try:
            json.dumps(to_jsonable_python(value, inf_nan_mode="constants"), allow_nan=False)
        except (PydanticSerializationError, ValueError) as error:
            raise UnserializableError(
                f"{path}[{name!r}]", f"{error}. Keep JSON values in the state, or name the key temp:{name}."
            ) from error


def _dump_event(event: Event, path: str) -> JSON:
    check_state(event.actions.state_delta, f"{path}.state")
    try:
        dumped = event.model_dump(mode="json", exclude_none=True)
    except (PydanticSerializationError, ValueError) as error:
        raise UnserializableError(path, str(error)) from error
    # by value: what was streamed is of subclasses of the SDK's messages, which say nothing more
    read = Event.model_validate(dumped).content
    if (read and read.model_dump()) != (event.content and event.content.model_dump()):
        raise UnserializableError(
            f"{path}.content", "it holds a value that JSON has no word for, such as NaN, a date or a set"
        )
    return cast(JSON, dumped)


def repair_events(messages: list[JSON]) -> list[JSON]:
    """Mend a session in which a call has no result: a provider refuses that.

    Args:
        messages: What the memory holds.

    Returns:
        The events, with a result that says so behind each such call.
    """
    events = [Event.model_validate(message) for message in messages]
    answered = {response.id for event in events for response in event.get_function_responses()}
    mended: list[JSON] = []
    for message, event in zip(messages, events, strict=True):
        mended.append(message)
        missing = [call for call in event.get_function_calls() if call.id not in answered]
        if missing:
            parts = [
                types.Part(
                    function_response=types.FunctionResponse(id=call.id, name=call.name, response={"error": _NO_RESULT})
                )
                for call in missing
            ]
            answer = Event(
                id=f"{event.id}-no-result",
                invocation_id=event.invocation_id,
                author=event.author,
                branch=event.branch,
                timestamp=event.timestamp,
                content=types.Content(role="user", parts=parts),
                actions=EventActions(),
            )
            mended.append(cast(JSON, answer.model_dump(mode="json", exclude_none=True)))
    return mended


def import_v0(files: Mapping[str, bytes]) -> V0Content:
    """Take over a memory of flyteplugins-agents 2.x, which is a list of events.

    Args:
        files: One file with them.

    Raises:
        ValueError: It does not hold events.
    """
    content = import_v0_list(files)
    for message in content.messages:
        Event.model_validate(cast(Any, message))
    return content
