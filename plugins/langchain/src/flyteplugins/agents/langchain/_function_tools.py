"""The SDK's own tools, in an agent run: recorded as inline leaves.

So is a graph that is used as a tool, once it has an outcome: its final state, which the model is given as text, has the ids
of its messages in it, and they differ each time. Its turns and tools are leaves as well, for an attempt that dies inside of
it. Deep Agents' own tools are no leaves: `_backends.py` says why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command
from pydantic import ValidationError

from flyteplugins.agents.core import JSON, AgentError, AgentRun, HandOff, UnserializableError, jsonable

from ._backends import install_deep, is_made_again
from ._codec import ValueCodec
from ._errors import CONTROL_FLOW
from ._nodes import agent_name, made_before, note_made, request_key

__all__ = ["invoke_recorded"]

_PASSING: tuple[type[BaseException], ...] = (*CONTROL_FLOW, ValidationError, AgentError)
"""What is no failure of the tool: control flow, and arguments that do not fit, of which the SDK tells the model."""


async def invoke_recorded(
    run: AgentRun, tool: BaseTool, tool_input: Any, call_id: str | None, config: Any, call: Callable[[], Awaitable[Any]]
) -> Any:
    """Invoke a tool as the SDK would, and record what it gave.

    Args:
        run: The agent run.
        tool: The tool.
        tool_input: What the model said, with what the SDK filled in.
        call_id: The SDK's id of the call.
        config: The configuration of the call.
        call: The SDK's own way to run it.
    """
    arguments = tool._filter_injected_args(tool_input) if isinstance(tool_input, dict) else tool_input
    agent = agent_name(run.name, config)
    codec = _OutcomeCodec(tool.name)
    again = is_made_again(tool)
    if again:
        install_deep()  # the tool, and its backend's class, may have been made since the run began
    key = "" if again else request_key(run, {"tool": tool.name, "arguments": arguments})
    if (payload := made_before(run, key)) is not None:
        return codec.decode(payload).for_call(call_id)

    async def invoke() -> _Outcome:
        try:
            return _Outcome(await call(), call_id)
        except _PASSING:
            raise
        except Exception as error:
            if run.on_tool_error == "raise":
                raise AgentError(f"The tool {tool.name} failed: {type(error).__name__}: {error}") from error
            raise

    recorded = await run.inline_tool(
        tool.name,
        _json_values(arguments),
        invoke,
        codec=codec,
        shown=lambda outcome: _shown(outcome.value),
        error=lambda outcome: _error(outcome.value),
        call_id=call_id or "",
        agent=agent,
        is_agent=again,
    )
    note_made(run, key, lambda: codec.encode(recorded.value))
    for command in recorded.value.value if isinstance(recorded.value.value, list) else [recorded.value.value]:
        if isinstance(command, Command) and command.graph == Command.PARENT and isinstance(command.goto, str):
            await run.emit(
                HandOff(run=run.id, agent=agent, source=agent, target=command.goto, replayed=recorded.replayed)
            )
    return recorded.value.for_call(call_id)


@dataclass(frozen=True)
class _Outcome:
    """What a tool returned to a call.

    Attributes:
        value: What it returned.
        call_id: The id of the call, which its messages name.
    """

    value: Any
    call_id: str | None

    def for_call(self, call_id: str | None) -> Any:
        """The value as an answer to another call of the same tool with the same arguments: two of them may change places."""
        return self.value if call_id == self.call_id else _readdressed(self.value, self.call_id, call_id)


def _readdressed(value: Any, before: str | None, now: str | None) -> Any:
    match value:
        case ToolMessage(tool_call_id=found) if found == before:
            return value.model_copy(update={"tool_call_id": now})
        case Command():
            return dataclasses.replace(value, update=_readdressed(value.update, before, now))
        case list():
            return [_readdressed(item, before, now) for item in value]
        case dict():
            return {name: _readdressed(item, before, now) for name, item in value.items()}
    return value


class _OutcomeCodec:
    def __init__(self, tool: str) -> None:
        self._values = ValueCodec(tool)

    def encode(self, value: _Outcome) -> JSON:
        return {"value": self._values.encode(value.value), "call": value.call_id}

    def decode(self, payload: JSON) -> _Outcome:
        kept = cast("dict[str, Any]", payload)
        return _Outcome(self._values.decode(kept["value"]), kept["call"])


def _json_values(arguments: Any) -> JSON:
    try:
        return jsonable(arguments)
    except UnserializableError:
        if isinstance(
            arguments, Mapping
        ):  # what is recorded needs them all; the record's own error says which one it is
            return cast(JSON, dict(arguments))
        return cast(JSON, arguments)


def _shown(value: Any) -> str:
    if isinstance(value, ToolMessage):
        return str(value.text)
    if isinstance(value, str):
        return value
    if isinstance(value, Command) and isinstance(value.update, dict):  # of which the model is given the messages
        said = [str(one.text) for one in value.update.get("messages", ()) if isinstance(one, ToolMessage)]
        if said:
            return "\n".join(said)
    return str(value)


def _error(value: Any) -> str | None:
    return str(value.text) if isinstance(value, ToolMessage) and value.status == "error" else None
