"""Memory: what a conversation keeps between runs."""

from __future__ import annotations

from ._audit import AuditAction, AuditEntry
from ._entry import Writer
from ._errors import MemoryConflictError, MemoryDeletedError
from ._files import FileVersion
from ._names import decode_name, encode_name
from ._paths import memory_folder
from ._retention import Removed, Retention
from ._run_memory import Repair, RunMemory
from ._store import Content, MemoryStore
from ._transcript import Snapshot
from ._v0 import V0_FILES, ImportV0, V0Content, import_v0_list

__all__ = [
    # a memory
    "Content",
    "FileVersion",
    "MemoryStore",
    "Removed",
    "Retention",
    "Snapshot",
    # who did what to it
    "AuditAction",
    "AuditEntry",
    "Writer",
    # an agent run's part of it
    "Repair",
    "RunMemory",
    # where things are
    "decode_name",
    "encode_name",
    "memory_folder",
    # Flyte's own store
    "ImportV0",
    "V0Content",
    "V0_FILES",
    "import_v0_list",
    # errors
    "MemoryConflictError",
    "MemoryDeletedError",
]
