"""The machinery that every adapter shares: agent runs, recorded leaves, task tools, memory, events and reports."""

from __future__ import annotations

from ._budget import Budget, BudgetExceededError, Spent
from ._canonical import JSON, UnserializableError, canonical_json, digest, fingerprint, jsonable, rename_generated_ids
from ._endpoints import endpoint_identity
from ._errors import AgentError, ErrorClass, MemoryUnavailableError, RecordError, error_chain
from ._events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    EventSink,
    HandOff,
    MemoryNotice,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFinished,
)
from ._hidden import context_parameters
from ._instrumentation import (
    CallWrapper,
    Instrumentor,
    apply_call_wrapper,
    apply_instrumentation,
    instrumented_frameworks,
    register_call_wrapper,
    register_instrumentor,
    unregister_call_wrapper,
    unregister_instrumentor,
)
from ._memory import (
    V0_FILES,
    AuditAction,
    AuditEntry,
    Content,
    FileVersion,
    ImportV0,
    MemoryConflictError,
    MemoryDeletedError,
    MemoryStore,
    Removed,
    Repair,
    Retention,
    RunMemory,
    Snapshot,
    V0Content,
    Writer,
    import_v0_list,
)
from ._native import NativeTool
from ._recorder import Codec, DefaultErrorCodec, ErrorCodec, JsonCodec, Recorded, Recorder
from ._render import render_result
from ._report import ReportTimeline, flush_report
from ._resolver import ToolTaskResolver, attach_tool_resolver
from ._result import AgentResult, ToolCallRecord, TurnRecord
from ._run import AgentRun, OnToolError, TurnFacts, agent_run, current_run
from ._schema import ToolArgumentError, ToolSchema, tool_schema
from ._schema_docstring import DocstringUse
from ._scope import TaskScope, current_scope
from ._storage import Folder
from ._stream import StreamEnd, record_stream
from ._sync import run_coro_sync, sync_variant
from ._tools import AgentTool, OnUnknown, ToolOutcome, ToolTimeoutError, as_agent_tool, describe_error, idempotency_key
from ._usage import RunUsage, Usage
from ._views import SubclassViews

__all__ = [
    # agent runs
    "AgentResult",
    "AgentRun",
    "Budget",
    "OnToolError",
    "RunUsage",
    "Spent",
    "TaskScope",
    "ToolCallRecord",
    "TurnFacts",
    "TurnRecord",
    "Usage",
    "agent_run",
    "current_run",
    "current_scope",
    "run_coro_sync",
    "sync_variant",
    # leaves
    "Codec",
    "DefaultErrorCodec",
    "ErrorCodec",
    "JSON",
    "JsonCodec",
    "Recorded",
    "Recorder",
    "StreamEnd",
    "SubclassViews",
    "canonical_json",
    "digest",
    "endpoint_identity",
    "fingerprint",
    "jsonable",
    "record_stream",
    "rename_generated_ids",
    # tools
    "AgentTool",
    "DocstringUse",
    "NativeTool",
    "OnUnknown",
    "ToolArgumentError",
    "ToolOutcome",
    "ToolSchema",
    "ToolTaskResolver",
    "ToolTimeoutError",
    "as_agent_tool",
    "attach_tool_resolver",
    "context_parameters",
    "describe_error",
    "idempotency_key",
    "render_result",
    "tool_schema",
    # memory
    "AuditAction",
    "AuditEntry",
    "Content",
    "FileVersion",
    "Folder",
    "ImportV0",
    "MemoryStore",
    "Removed",
    "Repair",
    "Retention",
    "RunMemory",
    "Snapshot",
    "V0Content",
    "V0_FILES",
    "Writer",
    "import_v0_list",
    # events
    "ApprovalAnswered",
    "ApprovalAsked",
    "Event",
    "EventSink",
    "HandOff",
    "MemoryNotice",
    "RunFinished",
    "RunStarted",
    "TextDelta",
    "ToolCallFinished",
    "ToolCallRepeated",
    "ToolCallStarted",
    "TurnFinished",
    # what a person sees, and what watches
    "CallWrapper",
    "Instrumentor",
    "ReportTimeline",
    "apply_call_wrapper",
    "apply_instrumentation",
    "flush_report",
    "instrumented_frameworks",
    "register_call_wrapper",
    "register_instrumentor",
    "unregister_call_wrapper",
    "unregister_instrumentor",
    # errors
    "AgentError",
    "BudgetExceededError",
    "ErrorClass",
    "MemoryConflictError",
    "MemoryDeletedError",
    "MemoryUnavailableError",
    "RecordError",
    "UnserializableError",
    "error_chain",
]
