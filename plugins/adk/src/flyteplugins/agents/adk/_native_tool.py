"""The SDK's tool object of a task or a callable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.utils.context_utils import find_context_parameter
from google.genai import types

from flyteplugins.agents.core import (
    AgentError,
    AgentTool,
    ToolArgumentError,
    current_run,
    describe_error,
    render_result,
)

from ._function_tools import call_recorded
from ._loop import on_run_loop
from ._telemetry import mark_replayed

__all__ = ["FlyteTool", "native_tool"]


class FlyteTool(BaseTool):
    """A tool that runs a Flyte task as a child action, or a callable as a recorded leaf.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: Keywords of `BaseTool`, and `require_confirmation`, a function of the call's arguments and the SDK's context.
    """

    def __init__(self, agent_tool: AgentTool, options: Mapping[str, Any]) -> None:
        kept = dict(options)
        self._require_confirmation: Callable[..., Any] | None = kept.pop("require_confirmation", None)
        super().__init__(name=agent_tool.name, description=agent_tool.description, **kept)
        self._agent_tool = agent_tool

    @property
    def __agent_tool__(self) -> AgentTool:
        """The tool, in no SDK's terms."""
        return self._agent_tool

    @property
    def __wrapped_task__(self) -> Any:
        """The Flyte task behind it, or `None` for a plain callable."""
        return self._agent_tool.task

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._agent_tool.schema.parameters,
        )

    async def check_require_confirmation(self, args: dict[str, Any], tool_context: ToolContext) -> bool:
        """Say whether the SDK's gate has a person confirm a call.

        Args:
            args: What the model said.
            tool_context: The call's context.

        Raises:
            AgentError: The function that says so failed, or answered something else than yes or no.
        """
        asks = self._require_confirmation
        if asks is None:
            return False
        try:
            given = self._agent_tool.schema.validate(args)
        except ToolArgumentError:
            return False  # the model is told when it runs, which it does not
        takes = inspect.signature(asks).parameters
        everything = any(one.kind is one.VAR_KEYWORD for one in takes.values())
        known = {name: value for name, value in given.items() if everything or name in takes}
        # as the SDK's own: the context goes to the parameter that it calls so, or that is annotated with it
        context = find_context_parameter(asks) or "tool_context"
        if context in takes:
            known[context] = tool_context
        try:
            answer = asks(**known)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            raise AgentError(
                f"Whether a call of {self.name} needs a confirmation is not known: require_confirmation raised "
                f"{describe_error(error)}"
            ) from error
        if not isinstance(answer, bool):
            raise AgentError(
                f"require_confirmation of {self.name} returned {answer!r}; it has to return True or False."
            )
        return answer

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Run the tool for a model.

        Args:
            args: What the model said.
            tool_context: The call's context.

        Returns:
            `{"result": text}`, or `{"error": text}`.
        """
        return await on_run_loop(lambda: self._call(args, tool_context))

    async def _call(self, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        tool = self._agent_tool
        injected = dict.fromkeys(tool.hidden, tool_context)
        run = current_run()
        if run is not None and injected:
            # what it changes through the context is part of its outcome
            try:
                kwargs = tool.schema.validate(args)
            except ToolArgumentError as error:
                return {"error": f"Error: {error}"}

            async def call() -> dict[str, Any]:
                return {"result": render_result(await tool.run_function(kwargs | injected))}

            given = tool.schema.dump(kwargs)
            result: dict[str, Any] = await call_recorded(
                run, self.name, given, tool_context, call, durable=tool.durable
            )
            return result
        outcome = await tool.call(
            args,
            call_id=tool_context.function_call_id or "",
            agent=tool_context.agent_name,
            injected=injected,
        )
        if outcome.replayed:
            mark_replayed()
        return {"result": outcome.text} if outcome.error is None else {"error": outcome.text}


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> FlyteTool:
    """Build the SDK's tool object.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: Keywords of `BaseTool`.
    """
    return FlyteTool(agent_tool, dict(options or {}))
