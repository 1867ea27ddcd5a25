"""A person decides about a tool's call before it is made: by a tool's own `requires_approval`, and by the SDK's ways to ask."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar

from flyteplugins.agents.conformance.approvals import ApprovalSuite, did_refund, look_up, reviewer
from flyteplugins.agents.core import Approval

__all__ = ["reviewer"]


class TestApprovals(ApprovalSuite):
    adapter = "adk"
    gate: ClassVar[Mapping[str, Any]] = {"require_confirmation": True}


class TestRequireConfirmation(ApprovalSuite):
    """Of the SDK's own tool object."""

    adapter = "adk"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        from google.adk.tools.function_tool import FunctionTool

        async def refund(order: str, cents: int = 100) -> str:
            """Refund an order."""
            return await did_refund(order, cents)

        return {"tools": [FunctionTool(refund, require_confirmation=True), agents.tool(look_up)]}
