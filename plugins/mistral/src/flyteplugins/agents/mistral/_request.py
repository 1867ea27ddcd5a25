"""What a run asks with, and the whole semantic request of a turn, by field, for its key.

Left out of the key is what the provider does not act on, or must not be told apart by: headers and connector credentials,
timeouts, retries, and the ids and times that the server notes on entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel

from flyteplugins.agents.core import JSON, digest, endpoint_identity

from ._entries import Entry, sendable

__all__ = ["Request", "request_fields"]

_CREDENTIALS = frozenset({"authorization"})


@dataclass(frozen=True)
class Request:
    """What each turn of a run is asked with, besides the conversation.

    Attributes:
        model: The model's name; `None` with an agent of the server's.
        agent_id: The agent on the server; `None` with a model.
        agent_version: Which version of it; the current one by default.
        instructions: The system text.
        tools: The declarations of all tools, as the SDK's models.
        completion_args: The SDK's completion arguments, the format of the answer among them.
        guardrails: The SDK's guardrails.
        metadata: What the server notes on a conversation that it keeps.
        http_headers: More headers.
        timeout_ms: How long one request may take, in milliseconds.
        called: What to call the model.
    """

    model: str | None = None
    agent_id: str | None = None
    agent_version: str | int | None = None
    instructions: str | None = None
    tools: Sequence[Any] = ()
    completion_args: Any = None
    guardrails: Sequence[Any] | None = None
    metadata: Mapping[str, Any] | None = None
    http_headers: Mapping[str, str] | None = None
    timeout_ms: int | None = None
    called: str = field(default="", compare=False)

    def start(self) -> dict[str, Any]:
        """Keywords of `Conversations.start_async`."""
        given = {
            "model": self.model,
            "agent_id": self.agent_id,
            "agent_version": self.agent_version,
            "instructions": self.instructions,
            "tools": list(self.tools) or None,
            "metadata": self.metadata,
        }
        return {name: value for name, value in given.items() if value is not None} | self.restart()

    def restart(self) -> dict[str, Any]:
        """What `Conversations.restart_async` takes of them."""
        return ({"guardrails": list(self.guardrails)} if self.guardrails else {}) | self.append()

    def append(self) -> dict[str, Any]:
        """What `Conversations.append_async` takes of them: the rest is frozen when a conversation starts."""
        given = {
            "completion_args": self.completion_args,
            "http_headers": self.http_headers,
            "timeout_ms": self.timeout_ms,
        }
        return {name: value for name, value in given.items() if value is not None}

    def frozen(self) -> str:
        """A digest of what a conversation on the server keeps from its start."""
        return digest(
            {
                "model": self.model,
                "agent": [self.agent_id, self.agent_version],
                "instructions": self.instructions,
                "tools": [_values(tool) for tool in self.tools],
                "guardrails": [_values(item) for item in self.guardrails or ()],
            }
        )


def request_fields(
    request: Request, *, server_url: str, messages: Sequence[Entry], where: Mapping[str, object]
) -> dict[str, object]:
    """Collect what would be asked, by field.

    Args:
        request: What the run asks with.
        server_url: Where.
        messages: The entries that are sent.
        where: What they are sent to: a new conversation or one on the server, and after which entry.
    """
    return {
        "model": {"name": request.model, "base_url": endpoint_identity(server_url)},
        "agent": {"id": request.agent_id, "version": request.agent_version},
        "settings": _values(request.completion_args),
        "instructions": request.instructions,
        "tools": [_values(tool) for tool in request.tools],
        "guardrails": [_values(item) for item in request.guardrails or ()],
        "messages": sendable(messages),
        "conversation": dict(where),
    }


def _values(value: object) -> JSON:
    """A model of the SDK's as JSON values, without credentials."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Mapping):
        return {name: cast(JSON, item) for name, item in value.items() if name not in _CREDENTIALS}
    return cast(JSON, value)
