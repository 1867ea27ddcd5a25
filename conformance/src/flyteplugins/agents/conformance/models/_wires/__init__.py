"""One module for each wire protocol: decodes a request into a `Conversation`, encodes an `Answer`."""

from __future__ import annotations

from ._base import HttpCall, SideRoute, Wire
from .anthropic_messages import AnthropicMessages
from .gemini import Gemini
from .mistral_chat import MistralChat
from .mistral_conversations import MistralConversations
from .openai_chat import OpenAIChat
from .openai_responses import OpenAIResponses

__all__ = [
    "ALL_WIRES",
    "AnthropicMessages",
    "Gemini",
    "HttpCall",
    "MistralChat",
    "MistralConversations",
    "OpenAIChat",
    "OpenAIResponses",
    "SideRoute",
    "Wire",
]

ALL_WIRES: tuple[type[Wire], ...] = (
    OpenAIResponses,
    OpenAIChat,
    AnthropicMessages,
    Gemini,
    MistralChat,
    MistralConversations,
)
