"""Code executors: code that a model wrote is run once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any, cast

from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File

from flyteplugins.agents.core import JSON, current_run

from ._loop import wait_for

__all__ = ["execute_recorded"]

_NAME = "execute_code"


def execute_recorded(
    execute: Callable[[Any, CodeExecutionInput], CodeExecutionResult],
    invocation_context: Any,
    code_execution_input: CodeExecutionInput,
) -> CodeExecutionResult:
    """Run code as the SDK does, in a thread, and record what came of it.

    Args:
        execute: The executor's own `execute_code`.
        invocation_context: The SDK's context.
        code_execution_input: The code and its files.

    Returns:
        What came of it.

    Raises:
        AgentError: It was called on the event loop itself.
    """
    run = current_run()
    if run is None:
        return execute(invocation_context, code_execution_input)
    arguments: dict[str, JSON] = {"code": code_execution_input.code}
    if code_execution_input.input_files:
        arguments["files"] = [_dump_file(file) for file in code_execution_input.input_files]

    async def record() -> CodeExecutionResult:
        recorded = await run.inline_tool(
            _NAME,
            arguments,
            lambda: asyncio.to_thread(execute, invocation_context, code_execution_input),
            codec=_ResultCodec(),
            shown=lambda result: result.stdout + result.stderr,
            agent=invocation_context.agent.name,
        )
        return recorded.value

    return wait_for(record)


class _ResultCodec:
    def encode(self, value: CodeExecutionResult) -> JSON:
        return {
            "stdout": value.stdout,
            "stderr": value.stderr,
            "exit_code": value.exit_code,
            "files": [_dump_file(file) for file in value.output_files],
        }

    def decode(self, payload: JSON) -> CodeExecutionResult:
        kept = cast("dict[str, Any]", payload)
        return CodeExecutionResult(
            stdout=kept["stdout"],
            stderr=kept["stderr"],
            exit_code=kept["exit_code"],
            output_files=[_load_file(file) for file in kept["files"]],
        )


def _dump_file(file: File) -> JSON:
    values: dict[str, JSON] = {"name": file.name, "mime_type": file.mime_type}
    if isinstance(file.content, bytes):
        return values | {"bytes": base64.b64encode(file.content).decode()}
    return values | {"text": file.content}


def _load_file(values: dict[str, Any]) -> File:
    content = base64.b64decode(values["bytes"]) if "bytes" in values else values["text"]
    return File(name=values["name"], content=content, mime_type=values["mime_type"])
