"""Memory: what a conversation keeps between runs."""

from __future__ import annotations

from ._run_memory import RunMemory
from ._store import MemoryStore

__all__ = ["MemoryStore", "RunMemory"]
