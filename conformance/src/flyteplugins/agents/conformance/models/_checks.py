"""What a strict provider refuses whatever the wire: calls without results, results without calls, ids used twice."""

from __future__ import annotations

from ._conversation import Conversation
from ._errors import Refusal


def check_pairing(conversation: Conversation, *, adjacent: bool) -> None:
    """Refuse a conversation whose tool calls and tool results do not pair up.

    Args:
        conversation: The request.
        adjacent: Whether the results must come directly after the message with the calls (Chat Completions, Messages,
            Gemini, Mistral) rather than anywhere after the call (Responses).

    Raises:
        Refusal: Naming the call or result that has no counterpart.
    """
    pending: dict[str, str] = {}  # call id -> tool name
    seen: set[str] = set()
    for place, message in enumerate(conversation.messages):
        for result in message.results:
            if result.id not in pending:
                why = "was answered before" if result.id in seen else "no call has this id"
                raise Refusal(
                    400,
                    f"Message {place} holds a tool result for the call {result.id!r}, but {why}. "
                    f"Calls that wait for a result: {_listed(pending)}.",
                    param="tool_results",
                )
            del pending[result.id]
        if adjacent and pending and message.role != "tool":
            _refuse_dangling(pending, f"message {place} ({message.role}) comes before their results")
        for call in message.calls:
            if call.id in seen:
                raise Refusal(400, f"Message {place} holds the tool call id {call.id!r} a second time; ids are unique.")
            seen.add(call.id)
            pending[call.id] = call.name
    if pending:
        _refuse_dangling(pending, "the conversation ends without their results")


def _refuse_dangling(pending: dict[str, str], why: str) -> None:
    raise Refusal(
        400,
        f"No tool output found for {_listed(pending)}: {why}. Every tool call needs a result before the model is asked "
        "again.",
        param="tool_calls",
    )


def _listed(pending: dict[str, str]) -> str:
    return ", ".join(f"{name or 'tool'} call {call_id!r}" for call_id, name in pending.items()) or "none"
