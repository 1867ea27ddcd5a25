"""Events of a running agent, sent to a URL, so that an app can show its text while it is made.

No stream of tokens leaves a running task by itself: a task that has `on_event=post_events(url)` sends it. Whatever the app does,
being slow, down, or wrong, the agent neither waits nor fails for it: a thread sends, what does not fit its queue is left out, and
how much that was is logged and told to the app.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import random
import threading
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ._canonical import UnserializableError, canonical_json
from ._events import DrainedSink, Event

if TYPE_CHECKING:
    import httpx

__all__ = ["EventPost", "post_events"]

logger = logging.getLogger(__name__)

LARGEST_BODY = 1024 * 1024  # bytes; an event that is larger goes alone
LONGEST_PAUSE = 5.0  # seconds between two tries
LINGER = 1.0  # seconds that the thread waits for more before it ends; the next event starts another


def post_events(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    batch: int = 100,
    every: float = 0.1,
    queue: int = 10_000,
    timeout: float = 5.0,
    tries: int = 5,
    patience: float = 5.0,
) -> EventPost:
    """Make an `on_event` that posts each event to a URL.

    The body is JSON: `{"source": ..., "events": [...], "dropped": n}`. Each event is `Event.as_dict()` with a `sequence`, and
    comes after all that were before it. A request that was answered too late is made again, so that the same events may come
    twice: then `source` and `sequence` are those that were there. `dropped` counts what this source has left out so far. What was
    answered from a record has `"replayed": true`.

    Args:
        url: Where to post, with `http://` or `https://`.
        headers: More headers, such as `{"Authorization": ...}`. They are never logged.
        batch: How many events one request has at most.
        every: How long events are collected for a request, in seconds.
        queue: How many events wait at most; those that come when it is full are left out.
        timeout: How long a request may take, in seconds.
        tries: How often a request is made that the app did not take: it was not reached, or answered 429 or 5xx.
        patience: How long the end of an agent run waits for what is still to be sent, in seconds.

    Returns:
        What `run_agent(..., on_event=...)` takes. One may serve several agent runs, also at once.

    Raises:
        ValueError: `url` is no address of a server, or a number is out of range.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(url):
        raise ValueError("url is no address to post to; give one with http:// or https:// and a host.")
    for name, number, least in (("batch", batch, 1), ("queue", queue, 1), ("tries", tries, 1)):
        if number < least:
            raise ValueError(f"{name} is {number}; give {least} or more.")
    for name, seconds in (("every", every), ("patience", patience)):
        if seconds < 0:
            raise ValueError(f"{name} is {seconds}; give seconds, 0 or more.")
    if timeout <= 0:
        raise ValueError(f"timeout is {timeout}; give seconds, more than 0.")
    _check_request(url, headers or {})
    return EventPost(
        url, dict(headers or {}), batch=batch, every=every, queue=queue, timeout=timeout, tries=tries, patience=patience
    )


def _check_request(url: str, headers: Mapping[str, str]) -> None:
    """See that a request can be made of them now, and not in a thread where nobody is told."""
    import httpx

    try:
        httpx.Request("POST", url, headers=headers)
    except (httpx.InvalidURL, TypeError, ValueError) as error:
        # without its words, which may have a header's value in them
        raise ValueError(
            f"No request can be made of the url and the headers {sorted(headers)} ({type(error).__name__}): names and values of "
            "headers are ASCII text."
        ) from None


class EventPost(DrainedSink):
    """What `post_events` returns.

    Attributes:
        source: Tells its events from those of every other: a run that is tried again has another one.
        posted: How many events the app took.
        dropped: How many were left out.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        batch: int,
        every: float,
        queue: int,
        timeout: float,
        tries: int,
        patience: float,
    ) -> None:
        self.source = uuid.uuid4().hex
        self.posted = 0
        self.dropped = 0
        self._url = url
        self._headers = headers
        self._batch, self._every, self._room, self._timeout = batch, every, queue, timeout
        self._tries, self._patience = tries, patience
        self._waiting: collections.deque[tuple[int, Event]] = collections.deque()
        self._sequence = 0
        self._sending = 0  # events that the thread has taken
        self._changed = threading.Condition()
        self._hurry = False  # somebody waits: nothing is collected
        self._thread: threading.Thread | None = None
        self._said_full = False

    def __repr__(self) -> str:
        return f"post_events({_shown(self._url)!r})"

    def __call__(self, event: Event) -> None:
        """Take an event; never waits for the app."""
        with self._changed:
            self._sequence += 1
            if len(self._waiting) >= self._room:
                self.dropped += 1
                if not self._said_full:
                    self._said_full = True
                    logger.warning(
                        "%s does not take events as fast as they come: %s wait, and more are left out.",
                        _shown(self._url),
                        self._room,
                    )
                return
            self._waiting.append((self._sequence, event))
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="flyte-agents-post-events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    async def drain(self) -> None:
        """Wait until what was taken so far is sent, at most as long as `patience`, and leave out the rest."""
        await asyncio.to_thread(self._drain)

    def _drain(self) -> None:
        until = time.monotonic() + self._patience
        with self._changed:
            last = self._sequence
            self._hurry = True
            self._changed.notify_all()
            try:
                while self._is_pending(last) and (rest := until - time.monotonic()) > 0:
                    self._changed.wait(rest)
                while self._waiting and self._waiting[0][0] <= last:
                    self._waiting.popleft()
                    self.dropped += 1
            finally:
                self._hurry = False
            if self.dropped:
                logger.warning("%s events were not sent to %s.", self.dropped + self._sending, _shown(self._url))

    def _is_pending(self, last: int) -> bool:
        return self._sending > 0 or bool(self._waiting and self._waiting[0][0] <= last)

    def _serve(self) -> None:
        import httpx

        try:
            client = httpx.Client(headers=self._headers, timeout=self._timeout)
        except Exception:  # certificates that are not there, say; what comes next has it tried again
            logger.exception("No client can be made for %s.", _shown(self._url))
            with self._changed:
                self._thread = None
            return
        with client:
            while events := self._take():
                taken = 0
                try:
                    taken = self._send(client, events)
                except Exception:  # of one request, which is no reason to send none any more
                    logger.exception("%s events were not sent to %s.", len(events), _shown(self._url))
                with self._changed:
                    self.posted += taken
                    self.dropped += len(events) - taken
                    self._sending = 0
                    self._changed.notify_all()

    def _take(self) -> list[tuple[int, Event]]:
        """Wait for the events of the next request; none when the thread has nothing to do any more."""
        with self._changed:
            if not self._waiting:
                self._changed.wait_for(lambda: bool(self._waiting), LINGER)
            if not self._waiting:
                self._thread = None
                return []
            self._changed.wait_for(lambda: self._hurry or len(self._waiting) >= self._batch, self._every)
            count = min(self._batch, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(count)]
            self._sending = len(taken)
            return taken

    def _send(self, client: httpx.Client, events: list[tuple[int, Event]]) -> int:
        """Send events, and return how many of them the app took."""
        taken, bodies = 0, []
        for number, event in events:
            try:
                bodies.append(canonical_json(event.as_dict() | {"sequence": number}))
            except UnserializableError:
                logger.exception("An event of type %r cannot be sent.", event.type)
        while bodies:
            count, size = 1, len(bodies[0])
            while count < len(bodies) and size + len(bodies[count]) < LARGEST_BODY:
                size += len(bodies[count])
                count += 1
            if self._post(client, bodies[:count]):
                taken += count
            del bodies[:count]
        return taken

    def _post(self, client: httpx.Client, events: list[bytes]) -> bool:
        import httpx

        said = ""
        for attempt in range(1, self._tries + 1):
            body = b'{"dropped":%d,"events":[%s],"source":"%s"}' % (
                self.dropped, b",".join(events), self.source.encode(),
            )  # fmt: skip
            pause = min(LONGEST_PAUSE, 0.1 * 2**attempt) * random.uniform(0.5, 1)
            try:
                answer = client.post(self._url, content=body, headers={"content-type": "application/json"})
            except httpx.HTTPError as error:
                said = type(error).__name__
            else:
                if answer.is_success:
                    return True
                said = f"status {answer.status_code}"
                if answer.status_code != 429 and answer.status_code < 500:
                    break  # the same again would be answered the same
                pause = _asked_pause(answer.headers.get("retry-after"), pause)
            if attempt < self._tries:
                time.sleep(pause)
        logger.warning("%s did not take %s events (%s).", _shown(self._url), len(events), said)
        return False


def _has_port(url: str) -> bool:
    """Whether the port of an address is one, or left to the scheme."""
    try:
        urlsplit(url).port  # noqa: B018 - it is read here
    except ValueError:
        return False
    return True


def _asked_pause(header: str | None, otherwise: float) -> float:
    """How long the app asks to be left alone, within reason."""
    try:
        return min(LONGEST_PAUSE, max(0.0, float(header or "")))
    except ValueError:  # none, or a date
        return otherwise


def _shown(url: str) -> str:
    """An address without what may be a secret in it: a password, or a query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
