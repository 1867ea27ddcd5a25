"""What the SDK calls when a model calls one of our tools."""

from __future__ import annotations

from typing import Any

from flyteplugins.agents.core import AgentTool, ToolArgumentError, render_result
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import RunContext

__all__ = ["RECORDS_ITSELF", "Invoker"]

RECORDS_ITSELF = {"flyte": False, "flyte_records_itself": True}
"""Metadata of a tool whose calls are made, recorded and told of by core."""


class Invoker:
    """The function of a tool of ours. An object, so that it can be copied and pickled.

    A task's calls, and those of a callable that has a say in how they are recorded, are made and recorded by core. Those of
    other callables are recorded by the capability, as those of the SDK's own tools are: what the body uses of the run's
    context, a sub-agent's usage above all, is part of that record.

    Args:
        agent_tool: The tool, in no SDK's terms.
    """

    def __init__(self, agent_tool: AgentTool) -> None:
        self.agent_tool = agent_tool

    @property
    def records_itself(self) -> bool:
        """Whether core makes and records the calls."""
        tool = self.agent_tool
        return tool.task is not None or not tool.durable or tool.on_unknown != "retry" or tool.approval is not None

    async def __call__(self, context: RunContext[Any], **arguments: Any) -> str:
        """Run the tool, and return what the model is given.

        Raises:
            ToolFailed: It failed, or the arguments do not fit, and the model is told so.
            Exception: What the function raised.
        """
        tool = self.agent_tool
        injected = dict.fromkeys(tool.hidden, context)
        if self.records_itself:
            outcome = await tool.call(
                arguments,
                call_id=context.tool_call_id or "",
                agent=(context.agent.name or "") if context.agent is not None else "",
                injected=injected,
            )
            if outcome.error is not None:
                raise ToolFailed(outcome.text)
            return outcome.text
        try:
            values = tool.schema.validate(arguments)
        except ToolArgumentError as error:
            raise ToolFailed(f"Error: {error}") from error
        return render_result(await tool.run_function(values | injected))
