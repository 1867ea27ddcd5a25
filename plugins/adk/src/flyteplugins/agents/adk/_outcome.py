"""What came of a run: read from the SDK's events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from google.adk.events import Event
from google.genai import types

from ._codec import ValueCodec
from ._model import response_text

__all__ = ["Outcome"]


@dataclass
class Outcome:
    """What came of a run, so far.

    Attributes:
        events: The events, without pieces of answers.
        text: The answer.
        author: The agent that gave it.
        error: The event that says why there is none.
        waiting: The calls that wait for somebody, by their id, each with the agent that made it.
    """

    events: list[Event] = field(default_factory=list)
    text: str = ""
    author: str = ""
    error: Event | None = None
    waiting: dict[str, tuple[str, types.FunctionCall]] = field(default_factory=dict)

    def see(self, event: Event) -> None:
        """Take an event in.

        Args:
            event: The next event of the run.
        """
        if event.partial:
            return
        self.events.append(event)
        for call in event.get_function_calls():
            if call.id and call.id in (event.long_running_tool_ids or ()):
                self.waiting[call.id] = event.author, call
        for response in event.get_function_responses():
            self.waiting.pop(response.id or "", None)
        if event.error_code:
            self.error = event
            return
        if event.is_final_response() and (text := _answer(event)):
            self.text, self.author, self.error = text, event.author, None

    def answered(self, message: types.Content) -> None:
        """Take in what a person answered.

        Args:
            message: The message with the answers.
        """
        for part in message.parts or ():
            if part.function_response is not None:
                self.waiting.pop(part.function_response.id or "", None)

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of the calls that wait."""
        return tuple(call.name or "" for _, call in self.waiting.values())


def _answer(event: Event) -> str:
    """The text of a final event; where a tool's result is the answer, that result."""
    if text := response_text([event]):
        return text
    if event.actions.skip_summarization and not event.actions.escalate:
        for response in event.get_function_responses():
            result = response.response or {}
            value = result["result"] if result.keys() == {"result"} else result
            if value is not None:
                return value if isinstance(value, str) else json.dumps(ValueCodec().encode(value), ensure_ascii=False)
    if event.output is not None:
        return event.output if isinstance(event.output, str) else json.dumps(ValueCodec().encode(event.output))
    return ""
