"""A conversation that the server keeps: what became of a request whose answer was lost, and how to go on.

An append has no idempotency key. Sent again after it was applied, a strict server refuses it and a lenient one says everything
twice. So before an append is repeated, in this attempt or in the next, the conversation's history is read: our entries with the
answer behind them are that answer; none are sent; anything else is somebody else's, and the conversation branches before it.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from mistralai.client import errors
from mistralai.client.conversations import Conversations
from mistralai.client.models import ConversationEvents, ConversationResponse
from mistralai.client.utils import RetryConfig

from flyteplugins.agents.core import JSON, AgentError, AgentRun, JsonCodec, MemoryNotice

from ._backoff import NO_RETRIES, Unsettled, ask_again
from ._entries import Entry, events_of, plain, sendable
from ._request import Request

__all__ = ["Endpoint", "Head", "ServerConversation", "streamed", "whole"]

logger = logging.getLogger("flyteplugins.agents")

PATIENCE = 30.0
"""How long a request that was applied may stay without an answer in the history, in seconds, before it is taken for dead."""

STATUS = {"allow": "allowed", "deny": "denied"}
"""What a call's `confirmation_status` is after a confirmation."""

T = TypeVar("T")


@dataclass(frozen=True)
class Endpoint(Generic[T]):
    """The SDK's methods for one way of answering: as a response, or as a stream of events."""

    start: Callable[..., Awaitable[T]]
    append: Callable[..., Awaitable[T]]
    restart: Callable[..., Awaitable[T]]
    adopt: Callable[[ConversationResponse], T]
    """Makes what the others return of an answer that was found in the history."""


def whole(sdk: Conversations) -> Endpoint[ConversationResponse]:
    """The methods that return a response."""
    return Endpoint(sdk.start_async, sdk.append_async, sdk.restart_async, lambda response: response)


def streamed(sdk: Conversations) -> Endpoint[AsyncIterator[ConversationEvents]]:
    """The methods that return a stream of events."""
    start: Any = sdk.start_stream_async  # whose streams are iterators, which their types do not say
    append: Any = sdk.append_stream_async
    restart: Any = sdk.restart_stream_async
    return Endpoint(start, append, restart, lambda response: _each(events_of(response)))


async def _each(events: Sequence[ConversationEvents]) -> AsyncIterator[ConversationEvents]:
    for event in events:
        yield event


@dataclass(frozen=True)
class Head:
    """Where a conversation was when the run began.

    Attributes:
        there: Whether the server has it.
        last: The id of its last entry.
        entries: Its entries, where they were asked for.
    """

    there: bool
    last: str | None = None
    entries: tuple[Entry, ...] = ()


class _State(enum.Enum):
    """What the history says of a request."""

    ABSENT = "it was not applied"
    PENDING = "it was applied, and has no answer yet"
    MOVED = "somebody else's entries follow"
    GONE = "the conversation, or the entry that the request follows, is not there"


class ServerConversation:
    """The conversation of one run, on the server.

    Args:
        run: The agent run.
        sdk: The SDK's own methods.
        request: What the run asks with.
        retries: The caller's choice of retries.
        conversation_id: The conversation to continue; the first turn starts one by default.
        after: The last entry of it that the run knows of, by id.
        moved: Whether other entries follow that one, so that the first turn branches.
        renewable: Whether a new conversation may start from the transcript where this one is gone.

    Attributes:
        id: The conversation's id; `None` before the first turn of a new one.
    """

    def __init__(
        self,
        run: AgentRun,
        sdk: Conversations,
        request: Request,
        retries: RetryConfig | None,
        *,
        conversation_id: str | None = None,
        after: str | None = None,
        moved: bool = False,
        renewable: bool = True,
    ) -> None:
        self.id = conversation_id
        self._run = run
        self._sdk = sdk
        self._request = request
        self._retries = retries
        self._last: list[Entry] = [{"id": after}] if after is not None else []
        self._moved = moved
        self._renewable = renewable

    @property
    def after(self) -> str | None:
        """The id of the last entry that the run knows of, where the server gave it one."""
        return self._last[-1].get("id") if self._last else None

    def where(self) -> dict[str, object]:
        """What the next turn is sent to, for its key."""
        return {"store": True, "id": self.id, "after": self.after}

    def answered(self, response: ConversationResponse) -> None:
        """Go on from a response."""
        self.id = response.conversation_id
        self._last = [plain(entry) for entry in response.outputs] or self._last
        self._moved = False

    async def ask(
        self,
        via: Endpoint[T],
        entries: Sequence[Entry],
        transcript: Sequence[Entry],
        confirmations: Sequence[Mapping[str, str]] = (),
    ) -> T:
        """Make a turn.

        Args:
            via: Streamed or not.
            entries: What is new.
            transcript: Everything, `entries` included: what a new conversation starts from.
            confirmations: What was decided about calls that the server makes.

        Raises:
            AgentError: There are confirmations, and the conversation that they are for is gone, or was changed by somebody else:
                neither a branch nor a new conversation takes them.
        """
        perhaps_sent = self._run.recorder.resumed
        pending_since: float | None = None

        async def branch() -> T:
            self._keep_in_place(confirmations)
            return await self._branch(via, entries, transcript)

        async def start_anew() -> T:
            self._keep_in_place(confirmations)
            return await self._start_anew(via, transcript)

        async def once() -> T:
            nonlocal perhaps_sent, pending_since
            if self.id is None:
                return await self._start(via, transcript)
            if self._moved:
                return await branch()
            if perhaps_sent:
                found = await self._look(entries, confirmations)
                if isinstance(found, ConversationResponse):
                    logger.warning(
                        "A request to the conversation %s had been answered, and the answer was lost. It is taken from the "
                        "history, which does not say how many tokens it cost.", self.id,
                    )  # fmt: skip
                    return via.adopt(found)
                if found is _State.PENDING:
                    pending_since = pending_since or time.monotonic()
                    if time.monotonic() - pending_since < PATIENCE:
                        raise Unsettled(f"The conversation {self.id} does not show an answer yet.")
                    return await branch()
                if found is _State.MOVED:
                    return await branch()
                if found is _State.GONE:
                    return await start_anew()
            perhaps_sent = True
            try:
                return await via.append(
                    conversation_id=self.id,
                    inputs=sendable(entries),
                    retries=NO_RETRIES,
                    **({"tool_confirmations": list(confirmations)} if confirmations else {}),
                    **self._request.append(),
                )
            except errors.SDKError as error:
                if error.status_code == 404:
                    return await start_anew()
                # Refused: perhaps for what somebody else has put in between.
                if error.status_code == 400 and await self._look(entries, confirmations) is _State.MOVED:
                    return await branch()
                raise

        return await ask_again(once, self._retries)

    async def _start(self, via: Endpoint[T], transcript: Sequence[Entry]) -> T:
        return await via.start(inputs=sendable(transcript), store=True, retries=NO_RETRIES, **self._request.start())

    async def _start_anew(self, via: Endpoint[T], transcript: Sequence[Entry]) -> T:
        if not self._renewable:
            raise AgentError(f"The conversation {self.id}, which the run continues, is not on the server any more.")
        await tell_gone(self._run, self.id)
        return await self._start(via, transcript)

    async def _branch(self, via: Endpoint[T], entries: Sequence[Entry], transcript: Sequence[Entry]) -> T:
        if self.after is None:  # there is no entry to branch from
            return await self._start_anew(via, transcript)
        logger.warning("The conversation %s was changed by somebody else. The run goes on in a branch of it.", self.id)
        return await via.restart(
            conversation_id=self.id,
            from_entry_id=self.after,
            inputs=sendable(entries),
            retries=NO_RETRIES,
            **self._request.restart(),
        )

    def _keep_in_place(self, confirmations: Sequence[Mapping[str, str]]) -> None:
        if confirmations:
            calls = ", ".join(one["tool_call_id"] for one in confirmations)
            raise AgentError(
                f"The conversation {self.id} is not there any more, or somebody else has changed it, so the server cannot be "
                f"told what was decided about the calls {calls}. Nothing is done by that decision; run the agent anew."
            )

    async def _look(
        self, entries: Sequence[Entry], confirmations: Sequence[Mapping[str, str]]
    ) -> ConversationResponse | _State:
        """Find out what became of a request that may have been sent."""
        history = await read_history(self._sdk, self._request, cast(str, self.id))
        place = self._place(history) if history is not None else None
        if history is None or place is None:
            return _State.GONE
        tail = history[place + 1 :]
        if not tail:
            return _State.ABSENT
        decided = {entry.get("tool_call_id"): entry.get("confirmation_status") for entry in history[: place + 1]}
        if any(decided.get(one["tool_call_id"]) not in (None, STATUS[one["confirmation"]]) for one in confirmations):
            return _State.MOVED  # somebody else has decided
        count = len(entries)
        if len(tail) < count or not all(map(_same, entries, tail[:count])):
            return _State.MOVED
        outputs = tail[count:]
        if any(entry["type"] in ("message.input", "function.result") for entry in outputs):
            return _State.MOVED
        if not outputs or outputs[-1]["type"] not in ("message.output", "function.call"):
            return _State.PENDING
        return ConversationResponse.model_validate(
            {"object": "conversation.response", "conversation_id": self.id, "outputs": outputs, "usage": {}}
        )

    def _place(self, history: Sequence[Entry]) -> int | None:
        """Where the last entry that the run knows of is."""
        for known in reversed(self._last):
            for place in range(len(history) - 1, -1, -1):
                if any(known.get(name) and known[name] == history[place].get(name) for name in ("id", "tool_call_id")):
                    if history[place]["type"] == "function.result":
                        continue  # the answer to the call is not the call
                    return place
        return None


async def tell_gone(run: AgentRun, conversation_id: str | None) -> None:
    """Warn that a conversation is not there any more."""
    message = f"The conversation {conversation_id} is not on the server any more. A new one starts from the transcript."
    logger.warning("%s", message)
    await run.emit(MemoryNotice(run=run.id, agent=run.name, message=message))


async def read_head(
    run: AgentRun,
    sdk: Conversations,
    request: Request,
    conversation_id: str,
    retries: RetryConfig | None,
    *,
    entries: bool,
) -> Head:
    """Read where a conversation is; what was read is a leaf, so that a later attempt knows where the run began.

    Args:
        run: The agent run.
        sdk: The SDK's own methods.
        request: What the run asks with.
        conversation_id: The conversation.
        retries: The caller's choice of retries.
        entries: Whether to read its entries as well.
    """

    async def read() -> JSON:
        history = await ask_again(lambda: read_history(sdk, request, conversation_id), retries)
        if history is None:
            return {"there": False}
        last = next((entry["id"] for entry in reversed(history) if entry.get("id")), None)
        return {"there": True, "last": last, "entries": cast(JSON, history) if entries else []}

    recorded = await run.recorder.record(
        "memory", {"conversation": conversation_id, "entries": entries}, read, codec=JsonCodec()
    )
    kept = cast("dict[str, Any]", recorded.value)
    return Head(kept["there"], kept.get("last"), tuple(kept.get("entries") or ()))


async def read_history(sdk: Conversations, request: Request, conversation_id: str) -> list[Entry] | None:
    """Read a conversation's entries once; `None` if it is not there."""
    try:
        history = await sdk.get_history_async(
            conversation_id=conversation_id,
            retries=NO_RETRIES,
            http_headers=request.http_headers,
            timeout_ms=request.timeout_ms,
        )
    except errors.SDKError as error:
        if error.status_code == 404:
            return None
        raise
    return [plain(entry) for entry in history.entries]


def _same(sent: Entry, found: Entry) -> bool:
    """Whether an entry of the history is one that was sent."""
    if sent["type"] != found["type"]:
        return False
    names = ("tool_call_id", "result") if sent["type"] == "function.result" else ("role", "content")
    return all(sent.get(name) == found.get(name) for name in names)
