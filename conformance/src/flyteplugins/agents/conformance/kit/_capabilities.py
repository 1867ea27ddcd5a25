"""What an adapter can do, in the words that the docs print."""

from __future__ import annotations

import enum

__all__ = ["Capability"]


class Capability(enum.Enum):
    """A capability, and the sentence about it that the docs print.

    An adapter says of each one that every SDK has in what form it has it. Only those that `may_be_absent` can be missing.
    """

    MODELS = "A turn that was paid is not paid again, whoever makes the model."
    AGENTS = "An agent that the caller built goes in as it is."
    STREAMS = "The text arrives as it is made, and again on a replay."
    OUTPUT = "The answer has the type that was asked for."
    TASK_TOOLS = "A Flyte task is a tool, with its own resources and retries."
    INLINE_TOOLS = "A plain function, or a tool of the SDK's own, runs once."
    MEMORY = "A conversation goes on across runs."
    LIMITS = "A budget ends a run that gets out of hand."
    APPROVALS = "A person decides about the exact action before it is done."
    LIVE_MODE = "The SDK's live mode, in which both sides talk at once, is durable."
    BUILT_IN_TOOLS = "What the SDK's own built-in tools do to the machine is done once."
    ANY_ENDPOINT = "Turns are recorded wherever the model is."

    @property
    def sentence(self) -> str:
        """What the docs print."""
        return str(self.value)

    @property
    def may_be_absent(self) -> bool:
        """Whether an adapter may declare that it lacks this. Most SDKs have nothing of the kind, and say nothing."""
        return self in (Capability.LIVE_MODE, Capability.BUILT_IN_TOOLS, Capability.ANY_ENDPOINT)
