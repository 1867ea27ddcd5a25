"""Approvals: a tool's own, and the SDK's confirmations."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from mistralai.extra.run.context import RunContext

from flyteplugins.agents.conformance.approvals import ApprovalSuite, did_refund, look_up, reviewer
from flyteplugins.agents.core import Approval

__all__ = ["reviewer"]


class TestApprovals(ApprovalSuite):
    adapter = "mistral"


class TestRequiresConfirmation(ApprovalSuite):
    """The SDK's own option on a tool of ours."""

    adapter = "mistral"
    gate: ClassVar[Mapping[str, Any]] = {"requires_confirmation": True}


class TestRunContext(ApprovalSuite):
    """A function that the caller registered with the SDK."""

    adapter = "mistral"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        async def own(order: str, cents: int = 100) -> str:
            """Refund an order."""
            return await did_refund(order, cents)

        own.__name__ = "refund"
        context = RunContext(model="mistral-medium-latest")
        context.register_func(own, requires_confirmation=True)
        return {"agent": context, "tools": [agents.tool(look_up)]}
