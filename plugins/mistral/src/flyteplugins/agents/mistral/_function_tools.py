"""What the SDK's runner asks for tools: which there are, and what calls of them come to.

The SDK's own context runs sync functions on the event loop, raises on arguments that are not JSON, and ends the conversation with
an empty append when the model calls a tool that does not exist. Here a call always comes to a result, which the model is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from mistralai.client.models import FunctionCallEntry, FunctionResultEntry, FunctionTool
from mistralai.extra.run.context import AgentRequestKwargs, RunContext

from flyteplugins.agents.core import (
    JSON,
    AgentError,
    AgentRun,
    AgentTool,
    Codec,
    JsonCodec,
    decide_call,
    render_result,
)

from ._mcp import McpConnection

if TYPE_CHECKING:
    from mistralai.client.beta import Beta
    from pydantic import BaseModel

__all__ = ["AgentContext", "LocalTool", "McpTool"]


@dataclass(frozen=True)
class LocalTool:
    """A task or a callable.

    Attributes:
        declaration: What the model is told of it.
        agent_tool: What runs.
        confirmed_tool: What runs where the caller has confirmed the call: the same, without the SDK's confirmation.
    """

    declaration: FunctionTool
    agent_tool: AgentTool
    confirmed_tool: AgentTool | None = None

    async def call(self, run: AgentRun, call: FunctionCallEntry, *, confirmed: bool) -> str:
        """Run it, and return what the model is given."""
        del run  # the tool finds it by itself
        tool = self.confirmed_tool if confirmed and self.confirmed_tool is not None else self.agent_tool
        outcome = await tool.call(call.arguments, call_id=call.tool_call_id)
        return outcome.text


@dataclass(frozen=True)
class McpTool:
    """A tool of an MCP server.

    Attributes:
        declaration: What the model is told of it.
        connection: The server.
        confirm: Whether a person approves each call.
    """

    declaration: FunctionTool
    connection: McpConnection
    confirm: bool = False

    async def call(self, run: AgentRun, call: FunctionCallEntry, *, confirmed: bool) -> str:
        """Call it, and return what the model is given."""
        try:
            arguments = json.loads(call.arguments or "{}") if isinstance(call.arguments, str) else call.arguments
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            return await _refuse(run, call, f"Error: the arguments of {call.name} are not a JSON object.")
        given: dict[str, Any] = arguments
        if self.confirm and not confirmed:
            decision = await decide_call(call.name, given)
            if not decision.approved:
                return await _refuse(run, call, decision.told)

        async def execute() -> JSON:
            try:
                result = await self.connection.call(call.name, given)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
                if run.on_tool_error == "raise":
                    raise AgentError(f"The tool {call.name} failed: {problem}") from error
                return {"text": f"Error: the tool {call.name} failed. {problem}", "error": problem}
            return {"text": result if isinstance(result, str) else render_result(result), "error": None}

        recorded = await run.inline_tool(
            call.name,
            cast(JSON, given),
            execute,
            codec=JsonCodec(),
            shown=lambda value: str(cast("dict[str, JSON]", value)["text"]),
            error=lambda value: cast("str | None", cast("dict[str, JSON]", value)["error"]),
            call_id=call.tool_call_id,
        )
        return str(cast("dict[str, JSON]", recorded.value)["text"])


class AgentContext(RunContext):
    """The SDK's run context, with the tools of an agent run.

    Args:
        run: The agent run.
        tools: Its tools, by name.
        model: The model's name; `None` with an agent of the server's.
        agent_id: The agent on the server.
        output_format: The format of the answer.
        waiting: Calls that the server makes once they are confirmed, by id; their status is what a person decides.
        confirmed: Calls that the caller has confirmed, by id.
    """

    def __init__(
        self,
        run: AgentRun,
        tools: Mapping[str, LocalTool | McpTool],
        *,
        model: str | None,
        agent_id: str | None,
        output_format: type[BaseModel] | None,
        waiting: Mapping[str, dict[str, Any]],
        confirmed: frozenset[str],
    ) -> None:
        super().__init__(model=model, agent_id=agent_id, output_format=cast(Any, output_format))
        self._run = run
        self._tools = tools
        self._waiting = waiting
        self._confirmed = confirmed

    def get_tools(self) -> list[FunctionTool]:
        """What the model is told of the tools."""
        return [tool.declaration for tool in self._tools.values()]

    async def prepare_agent_request(self, beta_client: Beta) -> AgentRequestKwargs:  # noqa: ARG002
        """Name the agent. The SDK would write the tools into the server's agent here, for everybody who uses it."""
        return AgentRequestKwargs(agent_id=cast(str, self.agent_id))

    async def execute_function_calls(self, function_calls: list[FunctionCallEntry]) -> list[FunctionResultEntry]:
        """Run the calls of one turn side by side, and give the results in their order.

        A call that waits on the server has none here: a person decides about it, and the server is told with the results.
        """
        calls = [asyncio.ensure_future(self._call(call)) for call in function_calls]
        try:
            results = await asyncio.gather(*calls)
        except BaseException:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            raise
        return [
            FunctionResultEntry(tool_call_id=call.tool_call_id, result=result)
            for call, result in zip(function_calls, results, strict=True)
            if result is not None
        ]

    async def _call(self, call: FunctionCallEntry) -> str | None:
        if (entry := self._waiting.get(call.tool_call_id)) is not None:
            decision = await decide_call(call.name, _read(call.arguments))
            entry["confirmation_status"] = "allowed" if decision.approved else "denied"
            return None
        tool = self._tools.get(call.name)
        if tool is None:
            names: Sequence[str] = sorted(self._tools)
            there = f"There are: {', '.join(names)}." if names else "There are none."
            return await _refuse(self._run, call, f"Error: there is no tool {call.name}. {there}")
        return await tool.call(self._run, call, confirmed=call.tool_call_id in self._confirmed)


def _read(arguments: object) -> object:
    """Arguments as a person reads them."""
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):
            return json.loads(arguments)
    return arguments


async def _refuse(run: AgentRun, call: FunctionCallEntry, message: str) -> str:
    """Tell the model, and whoever listens, why a call was not made."""

    async def refuse() -> str:
        return message

    await run.inline_tool(
        call.name,
        cast(JSON, call.arguments),
        refuse,
        codec=cast("Codec[str]", JsonCodec()),
        shown=str,
        error=lambda value: value,
        call_id=call.tool_call_id,
        durable=False,
    )
    return message
