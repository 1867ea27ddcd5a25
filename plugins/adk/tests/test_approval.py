"""A person decides about a tool's call before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from flyteplugins.agents.conformance.approvals import ApprovalSuite, reviewer

__all__ = ["reviewer"]


class TestApprovals(ApprovalSuite):
    adapter = "adk"
    gate: ClassVar[Mapping[str, Any]] = {"require_confirmation": True}
