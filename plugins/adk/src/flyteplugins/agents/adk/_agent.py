"""What runs: an app of the SDK's, around an agent of the caller's or one that is built from arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pydantic
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LLMRegistry
from google.adk.plugins import BasePlugin
from google.adk.tools.agent_tool import AgentTool as SDKAgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import BaseNode
from google.genai import types
from pydantic import TypeAdapter

from flyteplugins.agents.core import AgentError, tool_list

from ._tool import tool as make_tool

__all__ = ["Built", "build_app", "check_durable", "parse_output", "user_content"]

DEFAULT_MODEL = "gemini-3.5-flash"
DEFAULT_NAME = "assistant"

_ELSEWHERE = {
    "google.adk.agents.remote_a2a_agent": "RemoteA2aAgent",
    "google.adk.agents.langgraph_agent": "LangGraphAgent",
    "google.adk.agents._managed_agent": "ManagedAgent",
}
"""Agents that ask a model in a place that nothing here reaches."""


@dataclass(frozen=True)
class Built:
    """What runs.

    Attributes:
        app: The app; a copy of the caller's.
        root: Its root agent or node.
        name: The agent run's name.
        output_type: The type of the answer, where `run_agent` was given one.
        configuration: What it runs with, as far as it is known before its first request.
    """

    app: App
    root: BaseNode
    name: str
    output_type: Any
    configuration: Mapping[str, object]


def build_app(
    *,
    agent: Any,
    tools: Sequence[Any],
    model: str | BaseLlm | None,
    instructions: Any,
    name: str | None,
    output_type: Any,
    plugins: Sequence[BasePlugin],
    app_name: str,
    options: Mapping[str, Any],
) -> Built:
    """Build what runs.

    Args:
        agent: An agent, a workflow or an app of the caller's, which is not changed; `None` to build an agent.
        tools: Tools; they are added to a copy of the caller's agent.
        model: The model, of an agent that is built, as are the next four.
        instructions: The system text, or a function that gives it.
        name: The agent's name.
        output_type: The type of the answer.
        plugins: Plugins of the SDK's, beside those of the caller's app.
        app_name: The name of an app that is made here.
        options: Further fields of `LlmAgent`.

    Raises:
        AgentError: The model's name resolves to no model.
        ValueError: Arguments exclude each other, or a value does not fit.
        TypeError: `agent` is none of the SDK's, an option is unknown, or a tool is nothing that can be one.
    """
    natives = [_native(one) for one in tool_list(tools)]
    if agent is None:
        root: BaseNode = _build_agent(
            natives, model=model, instructions=instructions, name=name, output_type=output_type, options=options
        )
        app = App(name=app_name, root_agent=root)
    else:
        given = {"model": model, "instructions": instructions, "name": name, "output_type": output_type, **options}
        if excluded := sorted(key for key, value in given.items() if value is not None):
            raise ValueError(
                f"run_agent was given agent= together with {', '.join(excluded)}, which a pre-built agent has itself. "
                "Set them on the agent, or leave agent= out."
            )
        app, root = _prebuilt(agent, natives, app_name)
    if plugins:
        app = app.model_copy(update={"plugins": [*app.plugins, *plugins]})
    return Built(app, root, name or root.name, output_type, _configuration(root))


def _prebuilt(agent: Any, natives: list[Any], app_name: str) -> tuple[App, BaseNode]:
    app = agent if isinstance(agent, App) else None
    root = app.root_agent if app is not None else agent
    if not isinstance(root, BaseNode):
        raise TypeError(
            f"agent is a {type(agent).__module__}.{type(agent).__qualname__}; give an agent, a workflow or an App of the SDK's."
        )
    if natives:
        if not isinstance(root, LlmAgent):
            raise ValueError(
                f"run_agent was given tools= for {root.name}, a {type(root).__qualname__}, which calls no tools itself. Give "
                "them to the agent in it that is to have them."
            )
        root = root.clone(update={"tools": [*root.tools, *natives]})
    if app is None:
        return App(name=app_name, root_agent=root), root
    return (app.model_copy(update={"root_agent": root}) if natives else app.model_copy()), root


def _build_agent(
    natives: list[Any],
    *,
    model: str | BaseLlm | None,
    instructions: Any,
    name: str | None,
    output_type: Any,
    options: Mapping[str, Any],
) -> LlmAgent:
    unknown = sorted(set(options) - set(LlmAgent.model_fields))
    if unknown:
        raise TypeError(
            f"run_agent() has no keyword {', '.join(unknown)}. Fields of LlmAgent that it hands on are "
            f"{', '.join(sorted(set(LlmAgent.model_fields) - _OURS))}."
        )
    if clash := sorted(_OURS & set(options)):
        said = ", ".join(f"{one} ({_SAID[one]}=)" for one in clash)
        raise TypeError(f"run_agent() has words of its own for {said}.")
    fields: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    fields |= {"name": name if name is not None else DEFAULT_NAME, "model": _model(model), "tools": natives}
    if instructions is not None:
        fields["instruction"] = instructions
    if output_type is not None and output_type is not str:
        fields["output_schema"] = output_type
    try:
        return LlmAgent(**fields)
    except pydantic.ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise ValueError(f"No agent can be made of what run_agent was given. {problems}") from error


_SAID = {
    "instruction": "instructions",
    "output_schema": "output_type",
    "tools": "tools",
    "name": "name",
    "model": "model",
}
_OURS = frozenset(_SAID)


def _model(model: str | BaseLlm | None) -> str | BaseLlm:
    if model is None:
        return DEFAULT_MODEL
    if isinstance(model, BaseLlm):
        return model
    if not isinstance(model, str):
        raise TypeError(f"model is a {type(model).__qualname__}; give a model's name, or a model of the SDK's.")
    try:
        LLMRegistry.resolve(model)
    except (ValueError, ImportError) as error:
        raise AgentError(f"The model {model!r} resolves to no model of the SDK's. {error}") from error
    return model


def _native(one: Any) -> Any:
    """The SDK's own object where it is one, and a tool of a task or a callable."""
    if isinstance(one, (BaseTool, BaseToolset, BaseNode)):
        return getattr(one, "__wrapped__", one)
    made: Any = make_tool(one)
    return made.__wrapped__  # a task or a callable; anything else is a TypeError that says so


def _configuration(root: BaseNode) -> dict[str, object]:
    """What tells an agent run from one of the same name and input."""
    values: dict[str, object] = {"agents": sorted(node.name for node in _nodes(root))}
    if isinstance(root, LlmAgent):
        model = root.model
        values["model"] = model if isinstance(model, str) else f"{type(model).__qualname__} {model.model}"
        values["tools"] = [
            str(getattr(one, "name", None) or getattr(one, "__name__", type(one).__qualname__)) for one in root.tools
        ]
        if isinstance(root.instruction, str):
            values["instructions"] = root.instruction
    return {key: value for key, value in values.items() if value}


def _nodes(root: BaseNode) -> Iterator[BaseNode]:
    """Every agent and node below one, itself included, as far as they are known before it runs."""
    seen: set[int] = set()
    waiting: list[BaseNode] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, BaseAgent):
            waiting += node.sub_agents
        if isinstance(node, LlmAgent):
            waiting += [one.agent for one in node.tools if isinstance(one, SDKAgentTool)]


def check_durable(root: BaseNode) -> None:
    """Refuse agents whose turns cannot be recorded.

    Args:
        root: The root agent.

    Raises:
        AgentError: There is one.
    """
    for node in _nodes(root):
        for kind in type(node).__mro__:
            if _ELSEWHERE.get(kind.__module__) == kind.__qualname__:
                raise AgentError(
                    f"The agent {node.name} is a {kind.__qualname__}, which asks its model in another place. Its turns cannot be "
                    "recorded, and a durable run must not lose one silently. Use run_agent(..., durable=False), or run what it "
                    "does as a task of its own."
                )


def user_content(given: Any) -> types.Content:
    """What the user says, as the SDK's message.

    Args:
        given: Text, a message, or a list of parts.

    Raises:
        TypeError: It is none of them.
    """
    match given:
        case str():
            return types.Content(role="user", parts=[types.Part(text=given)])
        case types.Content():
            return given
        case list() | tuple():
            parts = [types.Part(text=one) if isinstance(one, str) else one for one in given]
            if all(isinstance(one, types.Part) for one in parts):
                return types.Content(role="user", parts=cast("list[types.Part]", parts))
    raise TypeError(
        f"input is a {type(given).__qualname__}; give text, a google.genai.types.Content, or a list of texts and parts."
    )


def parse_output(built: Built, text: str, author: str) -> Any:
    """Read the answer where it has a type.

    Args:
        built: What ran.
        text: The answer as text.
        author: The agent that gave it.

    Returns:
        The text, or an instance of the output type: that of `run_agent`, or the schema of the agent that answered.

    Raises:
        AgentError: It is none.
    """
    schema = built.output_type if built.output_type is not str else None
    if schema is None and built.output_type is None:
        author_node = next((node for node in _nodes(built.root) if node.name == author), None)
        schema = getattr(author_node, "output_schema", None)
    if schema is None or isinstance(schema, (types.Schema, Mapping)):
        return text
    try:
        return TypeAdapter(schema).validate_json(text)
    except pydantic.ValidationError as error:
        raise AgentError(
            f"The answer of {author} is no {getattr(schema, '__qualname__', schema)}: {error}. The answer is on record, so "
            "another attempt would get the same."
        ) from error
