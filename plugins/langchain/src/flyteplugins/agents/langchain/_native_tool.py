"""The SDK's tool object of a task or a callable."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.tools.base import InjectedToolCallId
from pydantic import PrivateAttr

from flyteplugins.agents.core import AgentTool, ToolOutcome, current_run

from ._bridge import wait_sync
from ._nodes import agent_name, made_before, note_made, request_key

__all__ = ["FlyteTool", "native_tool"]


@dataclass(frozen=True)
class _ModelsCall:
    """One call, kept apart from the SDK's own keywords: a tool may have a parameter of any name."""

    arguments: str | dict[str, Any]
    call_id: str | None = None
    injected: Mapping[str, Any] = field(default_factory=dict)


class FlyteTool(BaseTool):
    """A tool that runs a Flyte task as a child action, or a callable as a recorded leaf."""

    _agent_tool: AgentTool = PrivateAttr()

    @property
    def __agent_tool__(self) -> AgentTool:
        """The tool, in no SDK's terms."""
        return self._agent_tool

    @property
    def __wrapped_task__(self) -> Any:
        """The Flyte task behind it, or `None` for a plain callable."""
        return self._agent_tool.task

    @property
    def func(self) -> Callable[..., Any] | None:
        """What `ToolNode` reads to find the parameters that it fills: those that take the SDK's context, and no others."""
        if not self._agent_tool.hidden:
            return None

        def injected() -> None: ...

        injected.__annotations__ = self._hidden_types()
        return injected

    @functools.cached_property
    def _injected_args_keys(self) -> frozenset[str]:
        return self._agent_tool.hidden

    def _hidden_types(self) -> dict[str, Any]:
        function = self._agent_tool.function
        if not hasattr(function, "__annotations__"):
            function = type(function).__call__
        types = typing.get_type_hints(function, include_extras=True)
        return {name: types[name] for name in sorted(self._agent_tool.hidden)}

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        hidden = self._agent_tool.hidden
        if isinstance(tool_input, str):
            parameters = self._agent_tool.schema.parameters["properties"]
            if len(parameters) == 1:
                return (_ModelsCall({next(iter(parameters)): tool_input}, tool_call_id),), {}
            return (_ModelsCall(tool_input, tool_call_id),), {}
        arguments = {name: value for name, value in tool_input.items() if name not in hidden}
        injected = {name: value for name, value in tool_input.items() if name in hidden}
        return (_ModelsCall(arguments, tool_call_id, injected),), {}

    def _run(self, call: _ModelsCall, *, config: RunnableConfig) -> Any:
        return wait_sync(lambda _: self._arun(call, config=config))

    async def _arun(self, call: _ModelsCall, *, config: RunnableConfig) -> Any:
        outcome = await self._outcome(call, config)
        if call.call_id is None:
            return outcome.text
        status = "error" if outcome.error is not None else "success"
        return ToolMessage(outcome.text, tool_call_id=call.call_id, name=self.name, status=status)

    async def _outcome(self, call: _ModelsCall, config: RunnableConfig) -> ToolOutcome:
        run = current_run()
        injected = {**call.injected, **self._provided(call, config)}
        if run is None:
            return await self._agent_tool.call(call.arguments, injected=injected)
        key = request_key(run, {"tool": self.name, "arguments": call.arguments})
        kept = made_before(run, key)
        if isinstance(kept, dict):
            return ToolOutcome(text=str(kept["text"]), error=None if kept["error"] is None else str(kept["error"]))
        outcome = await self._agent_tool.call(
            call.arguments, call_id=call.call_id or "", agent=agent_name(run.name, config), injected=injected
        )
        note_made(run, key, lambda: {"text": outcome.text, "error": outcome.error})
        return outcome

    def _provided(self, call: _ModelsCall, config: RunnableConfig) -> dict[str, Any]:
        """Values for the hidden parameters that the SDK's tools fill themselves. A model cannot forge them."""
        found: dict[str, Any] = {}
        for name, kind in self._hidden_types().items() if self._agent_tool.hidden else ():
            markers = typing.get_args(kind)
            if any(one is InjectedToolCallId or isinstance(one, InjectedToolCallId) for one in markers):
                found[name] = call.call_id
            elif kind is RunnableConfig or RunnableConfig in markers:
                found[name] = config
        return found


def native_tool(agent_tool: AgentTool, options: Mapping[str, Any] | None = None) -> FlyteTool:
    """Build the SDK's tool object.

    Args:
        agent_tool: The tool, in no SDK's terms.
        options: Fields of `BaseTool`.
    """
    made = FlyteTool(
        name=agent_tool.name,
        description=agent_tool.description,
        args_schema=agent_tool.schema.parameters,
        **dict(options or {}),
    )
    made._agent_tool = agent_tool
    return made
