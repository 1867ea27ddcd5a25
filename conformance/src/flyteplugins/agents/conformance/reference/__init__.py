"""A whole adapter for an SDK that nobody publishes: what the kit tests itself on, and what to read before writing one.

`sdk` is the SDK, and the other modules are the adapter, under the names that they have in every adapter.
"""

from __future__ import annotations

from flyteplugins.agents.core import AgentResult, Budget, BudgetExceededError, MemoryStore, Retention, idempotency_key

from ._run import run_agent, run_agent_sync
from ._tool import tool

__all__ = [
    "AgentResult",
    "Budget",
    "BudgetExceededError",
    "MemoryStore",
    "Retention",
    "idempotency_key",
    "run_agent",
    "run_agent_sync",
    "tool",
]
