"""An offline model server: the wire protocols of six agent SDKs, over real HTTP, without a key.

Every test, example and benchmark runs the real SDK clients against it. `ModelServer` runs in this process,
`python -m flyteplugins.agents.conformance.models` as a process of its own; `testing` has pytest fixtures.
"""

from ._conversation import Conversation, Message, OfferedTool, PastCall, PastResult, count_tokens
from ._dialogues import STOCK, Dialogue
from ._faults import Fault
from ._journal import Entry, Journal, key_fingerprint
from ._match import Match
from ._reply import Reply, ToolCall, Usage, call
from ._scripts import Script
from ._server import DUMMY_KEY, ModelServer

__all__ = [
    # the server
    "ModelServer",
    "DUMMY_KEY",
    # what it answers
    "Reply",
    "ToolCall",
    "call",
    "Usage",
    "Script",
    "Dialogue",
    "STOCK",
    # what goes wrong
    "Fault",
    "Match",
    # what came in
    "Journal",
    "Entry",
    "key_fingerprint",
    "Conversation",
    "Message",
    "OfferedTool",
    "PastCall",
    "PastResult",
    "count_tokens",
]
