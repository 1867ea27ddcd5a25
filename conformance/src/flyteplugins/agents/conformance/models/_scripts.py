"""Scripts: fixed replies for tests, chosen by what the conversation holds and never by what was asked before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from ._conversation import Conversation, count_turns
from ._errors import Refusal
from ._faults import Fault
from ._json import JsonObject
from ._match import Match
from ._reply import Reply, ToolCall, Usage

ReplyMaker: TypeAlias = Callable[[Conversation], Reply]


@dataclass(frozen=True)
class Script:
    """An ordered list of replies for the requests that match.

    The reply is chosen by the number of turns that the model has already taken in the conversation, so a run that asks
    for turn 3 a second time gets reply 3 again, whichever process asks.

    Args:
        replies: One reply for each turn; a function of the conversation may stand for one (in-process only).
        match: Which requests it answers.
        name: Its name in the journal.
        count: Turns are counted from the last `user` text, or over the whole `conversation`.
        anywhere: Also match a user text before the last one, and count from there: for clients that put user texts of
            their own into a run.
        repeat_last: Give the last reply for every further turn, instead of refusing it.
    """

    replies: tuple[Reply | ReplyMaker, ...]
    match: Match = field(default_factory=Match)
    name: str = "script"
    count: Literal["user", "conversation"] = "user"
    anywhere: bool = False
    repeat_last: bool = False

    def __post_init__(self) -> None:
        if not self.replies:
            raise ValueError(f"The script {self.name!r} has no replies; give it one for each turn.")

    def place(self, conversation: Conversation) -> int | None:
        """Return the index of the reply for this request, or `None` when the script is not for it."""
        users = conversation.users or ("",)
        for nth in range(len(users) - 1, -1, -1):
            if self.match.holds(conversation, users[nth]):
                if self.count == "conversation":
                    return conversation.total_turns
                return count_turns(conversation.after_user(nth))
            if not self.anywhere:
                return None
        return None

    def reply(self, conversation: Conversation, place: int) -> Reply:
        """Return the reply at an index.

        Raises:
            Refusal: When the script has no such reply.
        """
        if place >= len(self.replies) and not self.repeat_last:
            raise Refusal(
                400,
                f"The script {self.name!r} ({self.match}) has {len(self.replies)} replies and was asked for turn "
                f"{place + 1}. Give it another reply, or look why the client asks again. Last user text: "
                f"{conversation.user!r}.",
                kind="unscripted",
            )
        reply = self.replies[min(place, len(self.replies) - 1)]
        return reply if isinstance(reply, Reply) else reply(conversation)


def script_from_json(data: Mapping[str, Any]) -> Script:
    """Build a script from JSON: the fields of `Match` beside `name`, `replies` and the other fields of `Script`.

    Raises:
        ValueError: When a field is unknown or has a wrong value.
        TypeError: When one has a wrong type.
    """
    data = dict(data)
    replies = data.pop("replies", None)
    if not isinstance(replies, list):
        raise TypeError("A script needs `replies`, a list with one reply for each turn.")
    match = _take_match(data)
    known = {f.name for f in fields(Script)} - {"replies", "match"}
    _refuse_unknown("script", data, known)
    return Script(tuple(reply_from_json(r) for r in replies), match, **data)


def reply_from_json(data: object) -> Reply:
    """Build a reply from JSON; a string stands for its text. See `Reply` for the fields."""
    if isinstance(data, str):
        return Reply(data)
    if not isinstance(data, dict):
        raise TypeError(f"A reply is a text or an object; got {data!r}.")
    _refuse_unknown("reply", data, {f.name for f in fields(Reply)})
    values: JsonObject = dict(data)
    if "calls" in values:
        for made in values["calls"]:
            _refuse_unknown("call", made, {f.name for f in fields(ToolCall)})
        values["calls"] = tuple(ToolCall(**c) for c in values["calls"])
    if values.get("usage"):
        _refuse_unknown("usage", values["usage"], {f.name for f in fields(Usage)})
        values["usage"] = Usage(**values["usage"])
    if "items" in values:
        values["items"] = tuple(values["items"])
    if "faults" in values:
        values["faults"] = tuple(fault_from_json(f) for f in values["faults"])
    return Reply(**values)


def fault_from_json(data: Mapping[str, Any]) -> Fault:
    """Build a fault from JSON: the fields of `Fault` and of `Match` side by side."""
    data = dict(data)
    match = _take_match(data)
    _refuse_unknown("fault", data, {f.name for f in fields(Fault)} - {"match"})
    return Fault(match=match, **data)


def _take_match(data: JsonObject) -> Match:
    names = {f.name for f in fields(Match)} - {"when"}
    return Match(**{n: data.pop(n) for n in names if n in data})


def _refuse_unknown(what: str, data: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(data) - known):
        raise ValueError(f"A {what} has no field {unknown[0]!r}; it has: {', '.join(sorted(known))}.")
