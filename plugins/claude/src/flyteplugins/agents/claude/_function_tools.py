"""The run's tools as servers that Claude Code speaks to through the SDK: each call runs in the agent run's own context.

The servers are built on `mcp` itself, and not with the SDK's `create_sdk_mcp_server`: that one checks arguments against the
schema before anybody could coerce them, and makes an error result of every exception, those that are to end the run included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server
from claude_agent_sdk.types import McpSdkServerConfig
from mcp import Client
from mcp.server import Server
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from flyteplugins.agents.core import JSON, AgentError, AgentRun, AgentTool

from ._context import RunContext
from ._process import LONGEST_CALL

__all__ = ["LocalTool", "NativeFunctionTool", "TaskTool", "record_call", "serve_tools", "tool_server"]

Check = Callable[[str, str, dict[str, Any]], None]
"""Takes the model's id of a call, the tool as Claude Code names it, and the arguments; raises where another call was approved."""

_MOST_CHARACTERS = 500_000
"""Up to here Claude Code gives a result to the model as it is; a longer one it writes to a file of its own, and names that."""


class LocalTool(Protocol):
    """A tool that runs in the agent's process, or that the agent's process runs elsewhere."""

    async def declaration(self) -> Tool:
        """What the model is told of it."""
        ...

    async def call(self, run: AgentRun, arguments: dict[str, Any], call_id: str) -> CallToolResult:
        """Run it, and return what the model is given."""
        ...


@dataclass(frozen=True)
class TaskTool:
    """A task or a callable.

    Attributes:
        agent_tool: What runs.
    """

    agent_tool: AgentTool

    async def declaration(self) -> Tool:
        """What the model is told of it."""
        tool = self.agent_tool
        return Tool.model_validate(
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": dict(tool.schema.parameters),
                # without it Claude Code runs the calls of a turn one after another
                "annotations": {"readOnlyHint": True},
                "_meta": {"anthropic/maxResultSizeChars": _MOST_CHARACTERS},
            }
        )

    async def call(self, run: AgentRun, arguments: dict[str, Any], call_id: str) -> CallToolResult:
        """Run it, and return what the model is given."""
        del run  # the tool finds it by itself
        outcome = await self.agent_tool.call(arguments, call_id=call_id)
        return _text_result(outcome.text, failed=outcome.error is not None)


@dataclass(frozen=True)
class NativeFunctionTool:
    """A tool of the SDK's own: a coroutine function with a schema, checked and shown to the model as the SDK does it.

    Attributes:
        tool: The SDK's object.
    """

    tool: SdkMcpTool[Any]

    def _client(self) -> Client:
        server = create_sdk_mcp_server("one", tools=[self.tool])["instance"]
        return Client(server, cache=None)

    async def declaration(self) -> Tool:
        """What the model is told of it."""
        async with self._client() as client:
            [tool] = (await client.list_tools()).tools
        return tool

    async def call(self, run: AgentRun, arguments: dict[str, Any], call_id: str) -> CallToolResult:
        """Run it, and return what the model is given."""

        async def execute() -> CallToolResult:
            async with self._client() as client:
                return await client.call_tool(self.tool.name, arguments)

        return await record_call(run, self.tool.name, arguments, call_id, execute)


def _text_result(text: str, *, failed: bool) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)


class _ResultCodec:
    """The result of a call, with all kinds of content."""

    def encode(self, value: CallToolResult) -> JSON:
        return cast(JSON, value.model_dump(mode="json", by_alias=True, exclude_none=True))

    def decode(self, payload: JSON) -> CallToolResult:
        return CallToolResult.model_validate(payload)


def _shown(result: CallToolResult) -> str:
    parts = [part.text if isinstance(part, TextContent) else f"[{part.type}]" for part in result.content]
    return "\n".join(parts)


async def record_call(
    run: AgentRun,
    name: str,
    arguments: dict[str, Any],
    call_id: str,
    execute: Callable[[], Awaitable[CallToolResult]],
) -> CallToolResult:
    """Make a call of a tool that is not ours once, and have its result from the record ever after.

    Args:
        run: The agent run.
        name: The tool's name.
        arguments: Its arguments.
        call_id: The model's id of the call.
        execute: Makes the call.

    Raises:
        AgentError: It failed, and the run is to fail on that.
    """

    async def make() -> CallToolResult:
        try:
            result = await execute()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            if run.on_tool_error == "raise":
                raise AgentError(f"The tool {name} failed: {problem}") from error
            return _text_result(f"Error: the tool {name} failed. {problem}", failed=True)
        if result.is_error and run.on_tool_error == "raise":
            raise AgentError(f"The tool {name} failed: {_shown(result)}")
        return result

    recorded = await run.inline_tool(
        name,
        cast(JSON, arguments),
        make,
        codec=_ResultCodec(),
        shown=_shown,
        error=lambda result: _shown(result) if result.is_error else None,
        call_id=call_id,
    )
    return recorded.value


def tool_server(
    run: AgentRun, name: str, tools: Mapping[str, LocalTool], *, context: RunContext, check: Check
) -> McpSdkServerConfig:
    """Make the server of a run's own tools. They are never deferred behind a search, and may take as long as they take.

    Args:
        run: The agent run.
        name: The server's name.
        tools: The tools, by name.
        context: Where they run.
        check: Compares a call with what was approved.

    Returns:
        What `ClaudeAgentOptions.mcp_servers` takes.
    """

    async def declared() -> list[Tool]:
        return [await tool.declaration() for tool in tools.values()]

    async def call(tool: str, arguments: dict[str, Any], call_id: str) -> CallToolResult:
        found = tools.get(tool)
        if found is None:
            there = f"There are: {', '.join(sorted(tools))}." if tools else "There are none."
            return _text_result(f"Error: there is no tool {tool}. {there}", failed=True)
        return await found.call(run, arguments, call_id)

    served = serve_tools(name, declared, call, context=context, check=check)
    return {**served, "alwaysLoad": True, "timeout": LONGEST_CALL}  # type: ignore[typeddict-unknown-key]  # Claude Code's own


def serve_tools(
    name: str,
    declared: Callable[[], Coroutine[Any, Any, list[Tool]]],
    call: Callable[[str, dict[str, Any], str], Coroutine[Any, Any, CallToolResult]],
    *,
    context: RunContext,
    check: Check,
) -> McpSdkServerConfig:
    """Make a server in this process.

    Args:
        name: Its name.
        declared: Says which tools it has.
        call: Runs one: its name, arguments, and the model's id of the call.
        context: Where that is done.
        check: Compares a call with what was approved.
    """

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=await context.do(declared()))

    async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
        arguments, call_id = dict(params.arguments or {}), _call_id(params)

        async def checked() -> CallToolResult:
            check(call_id, f"mcp__{name}__{params.name}", arguments)
            return await call(params.name, arguments, call_id)

        return await context.do(checked())

    server: Server[Any] = Server(name, on_list_tools=list_tools, on_call_tool=call_tool)
    return McpSdkServerConfig(type="sdk", name=name, instance=server)


def _call_id(params: CallToolRequestParams) -> str:
    told: Mapping[str, Any] = params.meta or {}
    return str(told.get("claudecode/toolUseId", ""))
