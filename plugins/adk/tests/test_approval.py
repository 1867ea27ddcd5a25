"""A person decides about a tool's call before it is made."""

from __future__ import annotations

from flyteplugins.agents.conformance.approvals import ApprovalSuite, reviewer

__all__ = ["reviewer"]


class TestApprovals(ApprovalSuite):
    adapter = "adk"
    gate = {"require_confirmation": True}  # noqa: RUF012 - a constant
