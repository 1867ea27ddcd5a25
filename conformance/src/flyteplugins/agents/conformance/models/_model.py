"""The offline model itself: from a conversation to an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ._conversation import Conversation
from ._dialogues import STOCK, Dialogue, small_talk, structured
from ._errors import Refusal
from ._json import compact, parse_arguments
from ._reply import Answer, Ids, IssuedCall, Reply, ToolCall, text_of, usage_of
from ._scripts import Script


@dataclass(frozen=True)
class Choice:
    """The reply for a request, and where it comes from.

    Args:
        rule: Name of the script or dialogue.
        owner: The script and turn that the reply's own faults are counted for.
        reply: The reply.
    """

    rule: str
    owner: str
    reply: Reply


class OfflineModel:
    """Chooses replies: the first script that matches, else the first dialogue that is about it.

    Args:
        strict: Refuse a prompt that nothing matches, instead of making small talk.
        dialogues: What it can talk about without a script.
    """

    def __init__(self, *, strict: bool = True, dialogues: Sequence[Dialogue] = STOCK) -> None:
        self.strict = strict
        self.dialogues = tuple(dialogues)
        self._lock = threading.Lock()
        self._scripts: list[Script] = []

    def add(self, script: Script) -> None:
        """Add a script, after those that are there."""
        with self._lock:
            self._scripts.append(script)

    def clear(self) -> None:
        """Forget every script."""
        with self._lock:
            self._scripts.clear()

    def choose(self, conversation: Conversation) -> Choice:
        """Choose the reply for a request.

        Raises:
            Refusal: When nothing matches (strict), or a script has no further reply.
        """
        with self._lock:
            scripts = list(self._scripts)
        for number, script in enumerate(scripts):
            place = script.place(conversation)
            if place is not None:
                return Choice(script.name, f"{number}/{place}", script.reply(conversation, place))
        for dialogue in self.dialogues:
            reply = dialogue.answer(conversation)
            if reply is not None:
                return Choice(dialogue.name, "", structured(conversation, reply))
        if not self.strict:
            return Choice("small talk", "", structured(conversation, small_talk(conversation, self.dialogues)))
        matches = "; ".join(str(s.match) for s in scripts) or "none"
        raise Refusal(
            400,
            f"No script or stock dialogue answers the prompt {conversation.user!r} (model {conversation.model!r}, turn "
            f"{conversation.turn}). Scripts match: {matches}. Add a script, or start the server in lenient mode.",
            kind="unscripted",
        )

    def answer(self, conversation: Conversation, reply: Reply, call_id: Callable[[Ids, int], str] = Ids.call) -> Answer:
        """Make a reply ready for the wire: tool names as offered, ids, token counts.

        Args:
            conversation: The request.
            reply: The reply.
            call_id: Makes the ids of calls in the provider's form.

        Raises:
            Refusal: When the reply calls a tool that the request does not offer.
        """
        ids = Ids(conversation.identity)
        reply = _search_first(conversation, reply)
        calls = []
        for index, made in enumerate(reply.calls):
            tool = conversation.tool(made.name)
            if tool is None and not made.unlisted:
                offered = ", ".join(t.name for t in conversation.tools) or "none"
                raise Refusal(
                    400,
                    f"The reply calls the tool {made.name!r}, which the request does not offer (offered: {offered}). "
                    "Offer it, or mark the call as `unlisted`.",
                    kind="unscripted",
                    param="tools",
                )
            text = made.arguments if isinstance(made.arguments, str) else compact(made.arguments)
            name = made.name if tool is None else tool.name
            calls.append(IssuedCall(made.id or call_id(ids, index), name, text, parse_arguments(text)))
        text = text_of(reply)
        usage = reply.usage or usage_of(conversation, text, reply.thinking, tuple(calls))
        return Answer(replace(reply, faults=()), text, tuple(calls), usage, ids)


def _search_first(conversation: Conversation, reply: Reply) -> Reply:
    """Replace a reply that calls deferred tools by a search for them, as Claude Code wants it."""
    found = [tool.name for made in reply.calls if (tool := conversation.tool(made.name)) and tool.deferred]
    if not found:
        return reply
    return Reply(calls=(ToolCall("ToolSearch", {"query": "select:" + ",".join(dict.fromkeys(found))}),))
