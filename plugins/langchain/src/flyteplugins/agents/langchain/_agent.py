"""The graph that a run starts: built from arguments, or the caller's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
from langchain_core.tools import BaseTool
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command

from flyteplugins.agents.core import NativeTool, tool_list
from langchain.agents import create_agent

from ._deep import FILES, build_deep_agent, wants_deep_agent
from ._request import normal_messages
from ._tool import tool as make_tool

__all__ = ["DEFAULT_NAME", "MESSAGES", "build_graph", "configuration", "has_messages", "identity_of", "initial_state"]

DEFAULT_NAME = "flyte-agent"
MESSAGES = "messages"


def build_graph(
    *,
    agent: Any,
    tools: Sequence[Any],
    model: Any,
    instructions: Any,
    name: str | None,
    output_type: Any,
    options: Mapping[str, Any],
) -> Pregel[Any, Any, Any, Any]:
    """Build the graph, or a copy of the caller's with another checkpointer or store.

    Args:
        agent: A graph; excludes the arguments below it, and the options that `create_agent` takes.
        tools: Tasks, callables and tools.
        model: A model's name as `provider:model`, or a chat model.
        instructions: The system text, or a system message.
        name: The agent's name.
        output_type: The type of the answer.
        options: Further keywords of `create_agent`; with one that only `create_deep_agent` has, those of that.

    Raises:
        ValueError: `agent` is given together with an argument that it has itself, or neither it nor a model is; or two tools
            have one name.
        ImportError: A deep agent is asked for, and the extra is not installed.
        TypeError: An argument, or one of the tools, is of the wrong type.
    """
    given = {option: value for option, value in options.items() if value is not None}
    if agent is not None:
        settled = {"tools": tools or None, "model": model, "instructions": instructions, "name": name}
        return _prebuilt(agent, {**settled, "output_type": output_type}, given)
    if model is None:
        raise ValueError("run_agent was given neither model= nor agent=. Give a model, such as model='openai:gpt-4.1'.")
    if output_type is not None and output_type is not str:
        if "response_format" in given:
            raise ValueError(
                "run_agent was given output_type= and response_format=, which both say what the answer is."
            )
        given["response_format"] = output_type
    build = cast("Callable[..., Pregel[Any, Any, Any, Any]]", create_agent)
    made = _as_tools(tools, "run_agent")
    try:
        if wants_deep_agent(given):
            return build_deep_agent(model, made, _as_tools, system_prompt=instructions, name=name, **given)
        return build(model=model, tools=made, system_prompt=instructions, name=name, **given)
    except ValueError as error:
        if output_type is None or "schema type" not in str(error):
            raise
        raise TypeError(
            f"output_type is {output_type!r}, of which create_agent makes no schema ({error}). Give a pydantic model, a "
            "dataclass, a TypedDict or a JSON schema; put anything else into a field of one."
        ) from error


def _prebuilt(agent: Any, settled: Mapping[str, Any], options: dict[str, Any]) -> Pregel[Any, Any, Any, Any]:
    replaced: dict[str, Any] = {name: options.pop(name) for name in ("checkpointer", "store") if name in options}
    clash = [name for name, value in {**settled, **options}.items() if value is not None]
    if clash:
        raise ValueError(
            f"run_agent was given agent= together with {', '.join(clash)}, which a graph has itself. "
            "Give them to create_agent, or build the graph with them."
        )
    if isinstance(agent, StateGraph):
        return agent.compile(**replaced)
    if not isinstance(agent, Pregel):
        raise TypeError(
            f"agent is a {type(agent).__qualname__}; give a StateGraph, compiled or not, or what create_agent returns."
        )
    return agent.copy(replaced) if replaced else agent


def _as_tools(tools: Sequence[Any], whose: str) -> list[Any]:
    """The SDK's tools.

    Args:
        tools: What the caller gave.
        whose: To whom.

    Raises:
        ValueError: Two have one name: a model could only call one of them.
        TypeError: One is no tool.
    """
    made = [_as_tool(item) for item in tool_list(tools)]
    names = Counter(item.name for item in made if isinstance(item, BaseTool))
    if double := [name for name, number in names.items() if number > 1]:
        raise ValueError(
            f"{whose} was given more than one tool named {', '.join(double)}, of which a model could only call one. Rename one: "
            f"tool(..., name='another_{double[0]}')."
        )
    return made


def _as_tool(item: Any) -> Any:
    if isinstance(item, NativeTool):
        return item.__wrapped__
    if isinstance(item, (BaseTool, dict)):
        return item
    if isinstance(item, (Pregel, StateGraph)):
        raise TypeError("tools has a graph in it. Use graph.as_tool(name=..., description=...).")
    made: Any = make_tool(item)
    return made.__wrapped__  # a task or a callable; anything else is a TypeError that says so


def has_messages(graph: Pregel[Any, Any, Any, Any]) -> bool:
    """Whether a graph's state has a conversation in it."""
    return MESSAGES in graph.channels


def initial_state(
    graph: Pregel[Any, Any, Any, Any], given: Any, history: Sequence[BaseMessage], files: Mapping[str, Any]
) -> Any:
    """What the graph starts from.

    Args:
        graph: The graph.
        given: What the user says: text, messages, a state, or a command.
        history: The messages of earlier runs.
        files: The files of earlier runs, of a deep agent.

    Raises:
        ValueError: The graph has no messages, and cannot be given any.
    """
    if isinstance(given, Command):
        if history or files:
            raise ValueError(
                "run_agent was given a Command and a memory_key with a conversation in it. A command goes on with a thread, "
                "which has its messages in the checkpointer. Leave the memory_key out."
            )
        return given
    if files:
        state = _initial_messages(graph, given, history)
        return {**state, FILES: {**files, **(state.get(FILES) or {})}}
    return _initial_messages(graph, given, history)


def _initial_messages(graph: Pregel[Any, Any, Any, Any], given: Any, history: Sequence[BaseMessage]) -> dict[str, Any]:
    if isinstance(given, Mapping):
        if not history and not isinstance(given.get(MESSAGES), (list, tuple)):
            return dict(given)
        return {**given, MESSAGES: [*history, *_own_messages(given.get(MESSAGES) or [])]}
    if not has_messages(graph):
        raise ValueError(
            f"The state of the graph {graph.name} has no {MESSAGES!r}, so it cannot be given a {type(given).__qualname__}. Give "
            f"a state: a mapping with some of {', '.join(sorted(graph.channels))}."
        )
    if isinstance(given, str):
        return {MESSAGES: [*history, HumanMessage(given)]}
    return {MESSAGES: [*history, *_own_messages(given)]}


def _own_messages(given: Sequence[Any]) -> list[BaseMessage]:
    """Copies: the SDK gives messages without an id one."""
    return [message.model_copy() for message in convert_to_messages(list(given))]


def identity_of(given: Any) -> object:
    """What the user says, as it is part of the agent run's identity: without identifiers that the SDK makes up."""
    if isinstance(given, str):
        return given
    if isinstance(given, BaseMessage):
        return normal_messages([given])[0]
    if isinstance(given, Command):
        return {"update": identity_of(given.update), "resume": given.resume, "goto": str(given.goto)}
    if isinstance(given, Mapping):
        return {str(name): identity_of(value) for name, value in given.items()}
    if isinstance(given, (list, tuple)):
        return [identity_of(item) for item in given]
    return given


def configuration(graph: Pregel[Any, Any, Any, Any], model: Any, tools: Sequence[Any]) -> dict[str, object]:
    """What tells an agent run from one of the same name and input, as far as it is known before the first turn."""
    values: dict[str, object] = {
        "nodes": sorted(graph.nodes),
        "model": model if isinstance(model, str) or model is None else type(model).__qualname__,
        "tools": [_tool_name(item) for item in tools],
    }
    return {name: value for name, value in values.items() if value}


def _tool_name(item: Any) -> str:
    if isinstance(item, dict):
        return str(item.get("name") or item.get("type"))
    return str(getattr(item, "name", None) or getattr(item, "__name__", type(item).__qualname__))
