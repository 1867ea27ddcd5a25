"""The journal: every request that reached the server, in order, for tests to count and read."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from ._json import JsonObject
from ._reply import Usage

_SECRET = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"})
_DULL = frozenset({"host", "connection", "accept-encoding", "content-length", "accept"})


@dataclass
class Entry:
    """One request that reached the server.

    Args:
        number: Its place in the journal, from 1.
        method: HTTP method.
        path: Path without the query.
        headers: Request headers, lower case; a key is replaced by `key_fingerprint` of it.
        wire: The wire that handled it; empty for what is not a model request.
        model: The requested model.
        user: The last user text.
        turn: The turn asked for, from 1 at the last user text; 0 for what is not a model request.
        streamed: Whether a stream was asked for.
        body: The parsed request body.
        rule: Name of the script or dialogue that answered.
        fault: Name of the fault that it met, or empty.
        status: HTTP status that was sent (or decided, where a fault kept it from being sent); 0 while undecided.
        error: The error's message, if any.
        response_id: Id of the response.
        usage: Token counts of the response.
        identity: Digest of what was asked, equal for equal requests.
        at: When it came in, in seconds since the epoch.
        delivered: Whether the whole answer was handed to the connection.
    """

    number: int
    method: str
    path: str
    headers: dict[str, str]
    wire: str = ""
    model: str = ""
    user: str = ""
    turn: int = 0
    streamed: bool = False
    body: JsonObject = field(default_factory=dict)
    rule: str = ""
    fault: str = ""
    status: int = 0
    error: str = ""
    response_id: str = ""
    usage: Usage | None = None
    identity: str = ""
    at: float = 0.0
    delivered: bool = False

    @property
    def answered(self) -> bool:
        """Whether the model gave an answer (which a fault may have kept from arriving)."""
        return self.status == 200

    def as_json(self) -> JsonObject:
        """Return the entry as a JSON object."""
        return asdict(self)


def key_fingerprint(key: str) -> str:
    """Return what the journal keeps of an API key or an `Authorization` value: eight hex digits of its SHA-256."""
    return "sha256:" + hashlib.sha256(key.removeprefix("Bearer ").encode()).hexdigest()[:8]


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that the journal keeps."""
    lower = {name.lower(): value for name, value in headers.items()}
    return {n: key_fingerprint(v) if n in _SECRET else v for n, v in lower.items() if n not in _DULL}


class Journal:
    """The requests so far. Safe to read from any thread while the server runs."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: list[Entry] = []
        self._number = 0

    def open(self, method: str, path: str, headers: Mapping[str, str]) -> Entry:
        """Add an entry for a request that just came in."""
        with self._changed:
            self._number += 1
            entry = Entry(self._number, method, path, kept_headers(headers), at=time.time())
            self._entries.append(entry)
            self._changed.notify_all()
            return entry

    def note(self, entry: Entry, **fields: object) -> None:
        """Fill in fields of an entry."""
        with self._changed:
            for name, value in fields.items():
                if name not in entry.__dataclass_fields__:
                    raise AttributeError(f"A journal entry has no field {name!r}.")
                setattr(entry, name, value)
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget every entry and count from 1 again."""
        with self._changed:
            self._entries.clear()
            self._number = 0
            self._changed.notify_all()

    @property
    def all(self) -> list[Entry]:
        """Every entry, look-ups of stored state and the like included."""
        with self._changed:
            return list(self._entries)

    def requests(
        self,
        *,
        user: str | None = None,
        model: str | None = None,
        wire: str | None = None,
        turn: int | None = None,
        status: int | None = None,
        fault: str | None = None,
        rule: str | None = None,
    ) -> list[Entry]:
        """Return model requests, oldest first; every argument that is given narrows them.

        Args:
            user: Exact last user text.
            model: Exact model name.
            wire: Exact name of the wire.
            turn: The turn asked for, from 1.
            status: HTTP status.
            fault: Name of the fault met, such as `429` or `cut`; an empty string for none.
            rule: Name of the script or dialogue.
        """
        wanted = {
            "user": user,
            "model": model,
            "wire": wire,
            "turn": turn,
            "status": status,
            "fault": fault,
            "rule": rule,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        return [e for e in self.all if e.wire and all(getattr(e, n) == v for n, v in given.items())]

    def count(
        self,
        *,
        user: str | None = None,
        model: str | None = None,
        wire: str | None = None,
        turn: int | None = None,
        status: int | None = None,
        fault: str | None = None,
        rule: str | None = None,
    ) -> int:
        """Count model requests; arguments as for `requests`."""
        return len(self.requests(user=user, model=model, wire=wire, turn=turn, status=status, fault=fault, rule=rule))

    def per_turn(self, *, user: str | None = None, model: str | None = None) -> dict[int, int]:
        """Count model requests for each turn: `{1: 1, 2: 1, 3: 2}` says that turn 3 was asked for twice."""
        return dict(sorted(Counter(e.turn for e in self.requests(user=user, model=model)).items()))

    def usage(self, *, user: str | None = None, model: str | None = None) -> Usage:
        """Add up the token counts of the answers that were delivered whole."""
        total = Usage(0, 0)
        for entry in self.requests(user=user, model=model):
            if entry.usage and entry.delivered:
                total += entry.usage
        return total

    def wait_for(self, count: int, *, timeout: float = 30.0, user: str | None = None, turn: int | None = None) -> None:
        """Block until `count` model requests have come in.

        Args:
            count: How many.
            timeout: Seconds to wait at most.
            user: Exact last user text, if only such requests count.
            turn: The turn asked for, if only such requests count.

        Raises:
            TimeoutError: When fewer have come in by then.
        """

        def enough() -> bool:
            return self.count(user=user, turn=turn) >= count

        with self._changed:
            if not self._changed.wait_for(enough, timeout):
                raise TimeoutError(f"{self.count(user=user, turn=turn)} of {count} requests came in {timeout} seconds.")

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the model requests, oldest first."""
        return iter(self.requests())

    def __len__(self) -> int:
        """Count the model requests."""
        return self.count()

    def __str__(self) -> str:
        """Return one line for each entry, to print when a count surprises."""
        return "\n".join(
            f"{e.number:4d} {e.method} {e.path} {e.status or '---'} {e.model} turn={e.turn} rule={e.rule}"
            f"{' fault=' + e.fault if e.fault else ''} {e.user[:60]!r}{' ' + e.error if e.error else ''}"
            for e in self.all
        )
