"""The model seam: each request of the SDK's own runner is a turn, and each turn is a leaf.

The runner starts a conversation and appends tool results to it. In the default mode both become the same request: a start with
the whole history that the server is told not to keep, so that a replay depends on no state of the server. With server state they
are what the runner meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from mistralai.client.conversations import Conversations
from mistralai.client.models import (
    ConversationEvents,
    ConversationResponse,
    FunctionCallEntry,
    MessageOutputEvent,
    ResponseDoneEvent,
    ResponseErrorEvent,
    ToolCallConfirmation,
)
from mistralai.client.sdkconfiguration import SDKConfiguration
from mistralai.client.utils import RetryConfig

from flyteplugins.agents.core import JSON, AgentError, AgentRun, BudgetExceededError, HandOff, TurnFacts, Usage

from ._backoff import NO_RETRIES, ask_again
from ._codec import EventsCodec, ResponseCodec
from ._entries import Entry, message_text, plain, response_of, sendable
from ._request import Request, request_fields
from ._server_state import STATUS, ServerConversation, streamed, whole

__all__ = ["IncompleteStreamError", "RecordedConversations"]


class IncompleteStreamError(ConnectionError):
    """A stream said that it failed, or ended before its answer was complete."""


class RecordedConversations(Conversations):
    """The SDK's conversations, of one agent run.

    Args:
        configuration: How requests are made; the run's own.
        run: The agent run.
        request: What each turn is asked with.
        history: What was said before the run.
        server: The conversation on the server, with server state.
        max_turns: How many turns the run may take; `None` for no limit.
        retries: How failing requests are repeated.
        parent_ref: The client, which lives as long as this does.

    Attributes:
        added: What the run has added to the conversation: inputs, outputs and tool results, in order.
        waiting: Calls that the server makes once they are confirmed, by id: entries of `added`. Their `confirmation_status` says
            what was decided.
    """

    def __init__(
        self,
        configuration: SDKConfiguration,
        *,
        run: AgentRun,
        request: Request,
        history: Sequence[Entry],
        server: ServerConversation | None,
        max_turns: int | None,
        retries: RetryConfig | None,
        parent_ref: object,
    ) -> None:
        super().__init__(configuration, parent_ref=parent_ref)
        self.added: list[Entry] = []
        self.waiting: dict[str, Entry] = {}
        self._run = run
        self._request = request
        self._history = list(history)
        self._server = server
        self._max_turns = max_turns
        self._retries = retries
        self._sdk = Conversations(configuration, parent_ref=parent_ref)
        self._turns = 0
        self._confirmations: list[dict[str, str]] = []
        self._agent = run.name

    async def start_async(self, *, inputs: Any, **_: Any) -> ConversationResponse:
        """Make the runner's first turn."""
        return await self._turn(inputs)

    async def append_async(
        self, *, inputs: Any = None, tool_confirmations: Any = None, **_: Any
    ) -> ConversationResponse:
        """Make one of the runner's later turns."""
        return await self._turn(inputs, tool_confirmations)

    async def start_stream_async(self, *, inputs: Any, **_: Any) -> Any:
        """Make the runner's first turn, streamed."""
        return self._stream_turn(inputs)

    async def append_stream_async(self, *, inputs: Any = None, tool_confirmations: Any = None, **_: Any) -> Any:
        """Make one of the runner's later turns, streamed."""
        return self._stream_turn(inputs, tool_confirmations)

    async def _turn(self, inputs: Sequence[Any], confirmations: Any = None) -> ConversationResponse:
        entries = self._begin(inputs, confirmations)
        with self._whole_conversation(entries):
            recorded = await self._run.turn(
                self._fields(entries),
                self._ask(entries),
                codec=ResponseCodec(),
                facts=_facts,
                model=self._request.called,
                agent=self._agent,
            )
        await self._received(recorded.value)
        return _without_status(recorded.value)

    async def _stream_turn(
        self, inputs: Sequence[Any], confirmations: Any = None
    ) -> AsyncGenerator[ConversationEvents, None]:
        entries = self._begin(inputs, confirmations)
        events: list[ConversationEvents] = []
        pieces = self._run.stream_turn(
            self._fields(entries),
            self._ask_streamed(entries),
            codec=EventsCodec(),
            facts=lambda value: _facts(response_of(value)),
            delta=_delta,
            is_last=lambda event: isinstance(event.data, ResponseDoneEvent),
            model=self._request.called,
            agent=self._agent,
        )
        with self._whole_conversation(entries):
            async with contextlib.aclosing(pieces):
                async for event in pieces:
                    events.append(event.model_copy(deep=True))  # the runner joins texts in place
                    yield event
        await self._received(response_of(events))

    def _begin(self, inputs: Sequence[Any], confirmations: Sequence[ToolCallConfirmation] | None) -> list[Entry]:
        if self._max_turns is not None and self._turns >= self._max_turns:
            raise AgentError(
                f"The agent took {self._turns} turns and has no answer. Raise max_turns, or give None for no limit."
            )
        self._turns += 1
        entries = [plain(entry) for entry in inputs or ()]
        self.added += entries
        self._confirmations = [
            {"tool_call_id": call, "confirmation": confirmation}
            for call, entry in self.waiting.items()
            for confirmation, status in STATUS.items()
            if entry["confirmation_status"] == status
        ]
        self._confirmations += [  # the caller's, about calls of an earlier run
            {"tool_call_id": one.tool_call_id, "confirmation": str(one.confirmation)} for one in confirmations or ()
        ]
        self.waiting.clear()
        return entries

    @contextlib.contextmanager
    def _whole_conversation(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Have a budget's error carry what the server keeps, too: the request to it holds only what is new."""
        try:
            yield
        except BudgetExceededError as error:
            if self._server is not None and self._server.id is not None:
                before = [*self._history, *self.added[: len(self.added) - len(entries)]]
                error.messages[:0] = cast("list[JSON]", sendable(before))
            raise

    def _fields(self, entries: Sequence[Entry]) -> dict[str, object]:
        url, _ = self.sdk_configuration.get_server_details()
        where: Mapping[str, object] = {"store": False}
        messages: Sequence[Entry] = [*self._history, *self.added]
        if self._server is not None:
            where = self._server.where() | ({"confirmations": self._confirmations} if self._confirmations else {})
            messages = entries if self._server.id is not None else messages
        return request_fields(self._request, server_url=url, messages=messages, where=where)

    def _ask(self, entries: Sequence[Entry]) -> Callable[[], Awaitable[ConversationResponse]]:
        transcript = [*self._history, *self.added]
        if self._server is not None:
            server, confirmations = self._server, self._confirmations
            return lambda: server.ask(whole(self._sdk), entries, transcript, confirmations)
        return lambda: ask_again(lambda: self._start(self._sdk.start_async, transcript), self._retries)

    def _ask_streamed(self, entries: Sequence[Entry]) -> Callable[[], AsyncIterator[ConversationEvents]]:
        transcript, confirmations = [*self._history, *self.added], self._confirmations

        async def stream() -> AsyncIterator[ConversationEvents]:
            if self._server is not None:
                events = await self._server.ask(streamed(self._sdk), entries, transcript, confirmations)
            else:
                method = cast(
                    "Callable[..., Awaitable[AsyncIterator[ConversationEvents]]]", self._sdk.start_stream_async
                )
                events = await ask_again(lambda: self._start(method, transcript), self._retries)
            done = False
            async for event in events:
                if isinstance(event.data, ResponseErrorEvent):
                    raise IncompleteStreamError(
                        f"The stream of the answer ended in an error of the provider's: {event.data.message} "
                        f"(code {event.data.code})."
                    )
                done = done or isinstance(event.data, ResponseDoneEvent)
                yield event
            if not done:
                raise IncompleteStreamError("The stream of the answer ended before the answer was complete.")

        return stream

    async def _start(self, method: Callable[..., Awaitable[Any]], transcript: Sequence[Entry]) -> Any:
        return await method(inputs=sendable(transcript), store=False, retries=NO_RETRIES, **self._request.start())

    async def _received(self, response: ConversationResponse) -> None:
        """Go on from an answer, live or from its record."""
        if self._server is not None:
            self._server.answered(response)
        for output in response.outputs:
            entry = plain(output)
            self.added.append(entry)
            if entry["type"] == "agent.handoff":
                source = entry.get("previous_agent_name") or self._agent
                target = entry.get("next_agent_name") or entry.get("next_agent_id") or ""
                await self._run.emit(HandOff(run=self._run.id, agent=source, source=source, target=target))
                self._agent = target
            if entry.get("confirmation_status") == "pending":
                if self._server is None:
                    raise AgentError(
                        f"The call {entry['tool_call_id']} of {entry['name']} waits on the server for a confirmation, which only "
                        "a conversation that the server keeps can be given. Nothing was confirmed or refused. Give run_agent "
                        "server_state=True, or take requires_confirmation off the connector."
                    )
                self.waiting[entry["tool_call_id"]] = entry


def _without_status(response: ConversationResponse) -> ConversationResponse:
    """A response in which no call waits: streamed, the SDK's runner hands such calls to the run context; whole, it raises."""
    if not any(isinstance(output, FunctionCallEntry) and output.confirmation_status for output in response.outputs):
        return response
    outputs = [
        output.model_copy(update={"confirmation_status": None}) if isinstance(output, FunctionCallEntry) else output
        for output in response.outputs
    ]
    return response.model_copy(update={"outputs": outputs})


def _facts(response: ConversationResponse) -> TurnFacts:
    entries = [plain(entry) for entry in response.outputs]
    usage = response.usage
    return TurnFacts(
        text="".join(message_text(entry) for entry in entries if entry["type"] == "message.output"),
        tool_calls=tuple(str(entry["name"]) for entry in entries if entry["type"] == "function.call"),
        usage=Usage(
            requests=1,
            input_tokens=(usage.prompt_tokens or 0) + (usage.connector_tokens or 0),
            output_tokens=usage.completion_tokens or 0,
        ),
        messages=cast("list[JSON]", sendable(entries)),
        provider="mistral",
    )


def _delta(event: ConversationEvents) -> str:
    if isinstance(event.data, MessageOutputEvent):
        return message_text(
            {"content": event.data.content}
            if isinstance(event.data.content, str)
            else {"content": [plain(event.data.content)]}
        )
    return ""
