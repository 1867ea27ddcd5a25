"""The machinery that every adapter shares: agent runs, recorded leaves, task tools, memory, events and reports.

Names are loaded when they are asked for: the worker of a tool's task needs few of them.
"""

from __future__ import annotations

import importlib
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._approval import (
        Approval,
        ApprovalDecision,
        ApprovalItem,
        ApprovalRequest,
        OnTimeout,
        Reminder,
        RequiresApproval,
        ask_person,
        decide_call,
        request_approval,
        request_approvals,
    )
    from ._arguments import check_arguments
    from ._budget import Budget, BudgetExceededError, Spent
    from ._canonical import (
        JSON,
        UnserializableError,
        canonical_json,
        digest,
        fingerprint,
        jsonable,
        rename_generated_ids,
    )
    from ._compat import coerce_tool_args, resolve_memory, task_json_schema
    from ._control_flow import register_control_flow
    from ._endpoints import endpoint_identity
    from ._errors import (
        AgentError,
        ApprovalExpiredError,
        ApprovalPendingError,
        ErrorClass,
        MemoryUnavailableError,
        RecordError,
        error_chain,
    )
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
        decode_name,
        encode_name,
        import_v0_list,
        memory_folder,
    )
    from ._native import NativeTool, tool_list
    from ._options import CommonOptions
    from ._recorder import Codec, DefaultErrorCodec, ErrorCodec, JsonCodec, Recorded, Recorder
    from ._render import render_result
    from ._report import ReportTimeline, flush_report
    from ._resolver import ToolTaskResolver, attach_tool_resolver
    from ._result import AgentResult, ToolCallRecord, TurnRecord, with_pending
    from ._run import AgentRun, OnToolError, TurnFacts, agent_run, current_run
    from ._schema import ToolArgumentError, ToolSchema, tool_schema
    from ._schema_docstring import DocstringUse
    from ._scope import TaskScope, current_scope
    from ._storage import Folder
    from ._stream import StreamEnd, record_stream
    from ._sync import run_coro_sync, sync_variant
    from ._tools import (
        AgentTool,
        OnUnknown,
        ToolOutcome,
        ToolTimeoutError,
        as_agent_tool,
        describe_error,
        idempotency_key,
    )
    from ._usage import RunUsage, Usage
    from ._views import SubclassViews

# A code bundle that Flyte makes in a checkout has the modules that were loaded; the others are where this is installed.
__path__ = extend_path(__path__, __name__)

__all__ = [
    # names that other programs know
    "coerce_tool_args",
    "resolve_memory",
    "task_json_schema",
    # agent runs
    "AgentResult",
    "AgentRun",
    "Budget",
    "OnToolError",
    "CommonOptions",
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
    "with_pending",
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
    "check_arguments",
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
    "register_control_flow",
    "render_result",
    "tool_schema",
    "tool_list",
    # approvals
    "Approval",
    "ApprovalDecision",
    "ApprovalItem",
    "ApprovalRequest",
    "OnTimeout",
    "Reminder",
    "RequiresApproval",
    "ask_person",
    "decide_call",
    "request_approval",
    "request_approvals",
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
    "decode_name",
    "encode_name",
    "import_v0_list",
    "memory_folder",
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
    "ApprovalExpiredError",
    "ApprovalPendingError",
    "BudgetExceededError",
    "ErrorClass",
    "MemoryConflictError",
    "MemoryDeletedError",
    "MemoryUnavailableError",
    "RecordError",
    "UnserializableError",
    "error_chain",
]

_WHERE = {
    "check_arguments": "_arguments",
    "tool_list": "_native",
    "CommonOptions": "_options",
    "Approval": "_approval",
    "ApprovalDecision": "_approval",
    "ApprovalItem": "_approval",
    "ApprovalRequest": "_approval",
    "OnTimeout": "_approval",
    "Reminder": "_approval",
    "RequiresApproval": "_approval",
    "ask_person": "_approval",
    "decide_call": "_approval",
    "request_approval": "_approval",
    "request_approvals": "_approval",
    "Budget": "_budget",
    "BudgetExceededError": "_budget",
    "Spent": "_budget",
    "JSON": "_canonical",
    "UnserializableError": "_canonical",
    "canonical_json": "_canonical",
    "digest": "_canonical",
    "fingerprint": "_canonical",
    "jsonable": "_canonical",
    "rename_generated_ids": "_canonical",
    "coerce_tool_args": "_compat",
    "resolve_memory": "_compat",
    "task_json_schema": "_compat",
    "register_control_flow": "_control_flow",
    "endpoint_identity": "_endpoints",
    "AgentError": "_errors",
    "ApprovalExpiredError": "_errors",
    "ApprovalPendingError": "_errors",
    "ErrorClass": "_errors",
    "MemoryUnavailableError": "_errors",
    "RecordError": "_errors",
    "error_chain": "_errors",
    "ApprovalAnswered": "_events",
    "ApprovalAsked": "_events",
    "Event": "_events",
    "EventSink": "_events",
    "HandOff": "_events",
    "MemoryNotice": "_events",
    "RunFinished": "_events",
    "RunStarted": "_events",
    "TextDelta": "_events",
    "ToolCallFinished": "_events",
    "ToolCallRepeated": "_events",
    "ToolCallStarted": "_events",
    "TurnFinished": "_events",
    "context_parameters": "_hidden",
    "CallWrapper": "_instrumentation",
    "Instrumentor": "_instrumentation",
    "apply_call_wrapper": "_instrumentation",
    "apply_instrumentation": "_instrumentation",
    "instrumented_frameworks": "_instrumentation",
    "register_call_wrapper": "_instrumentation",
    "register_instrumentor": "_instrumentation",
    "unregister_call_wrapper": "_instrumentation",
    "unregister_instrumentor": "_instrumentation",
    "V0_FILES": "_memory",
    "AuditAction": "_memory",
    "AuditEntry": "_memory",
    "Content": "_memory",
    "FileVersion": "_memory",
    "ImportV0": "_memory",
    "MemoryConflictError": "_memory",
    "MemoryDeletedError": "_memory",
    "MemoryStore": "_memory",
    "Removed": "_memory",
    "Repair": "_memory",
    "Retention": "_memory",
    "RunMemory": "_memory",
    "Snapshot": "_memory",
    "V0Content": "_memory",
    "Writer": "_memory",
    "decode_name": "_memory",
    "encode_name": "_memory",
    "import_v0_list": "_memory",
    "memory_folder": "_memory",
    "NativeTool": "_native",
    "Codec": "_recorder",
    "DefaultErrorCodec": "_recorder",
    "ErrorCodec": "_recorder",
    "JsonCodec": "_recorder",
    "Recorded": "_recorder",
    "Recorder": "_recorder",
    "render_result": "_render",
    "ReportTimeline": "_report",
    "flush_report": "_report",
    "ToolTaskResolver": "_resolver",
    "attach_tool_resolver": "_resolver",
    "AgentResult": "_result",
    "ToolCallRecord": "_result",
    "TurnRecord": "_result",
    "with_pending": "_result",
    "AgentRun": "_run",
    "OnToolError": "_run",
    "TurnFacts": "_run",
    "agent_run": "_run",
    "current_run": "_run",
    "ToolArgumentError": "_schema",
    "ToolSchema": "_schema",
    "tool_schema": "_schema",
    "DocstringUse": "_schema_docstring",
    "TaskScope": "_scope",
    "current_scope": "_scope",
    "Folder": "_storage",
    "StreamEnd": "_stream",
    "record_stream": "_stream",
    "run_coro_sync": "_sync",
    "sync_variant": "_sync",
    "AgentTool": "_tools",
    "OnUnknown": "_tools",
    "ToolOutcome": "_tools",
    "ToolTimeoutError": "_tools",
    "as_agent_tool": "_tools",
    "describe_error": "_tools",
    "idempotency_key": "_tools",
    "RunUsage": "_usage",
    "Usage": "_usage",
    "SubclassViews": "_views",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
