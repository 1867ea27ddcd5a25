"""What a run is made of: a copy of the caller's options, with the run's own tools, model, instructions and output."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, SdkMcpTool

from flyteplugins.agents.core import JSON, UnserializableError, jsonable, tool_list

from ._function_tools import LocalTool, NativeFunctionTool, TaskTool
from ._mcp import read_servers
from ._output import OutputFormat
from ._process import fixed_upstream, runs_in_background
from ._tool import tool as make_tool

__all__ = ["BuiltAgent", "allowed_tools", "build_agent", "session_options"]

logger = logging.getLogger("flyteplugins.agents")

DEFAULT_MODEL = "claude-sonnet-5-5"
DEFAULT_NAME = "claude-agent"
SUBAGENT_TOOL = "Agent"

_SESSION_OPTIONS = ("resume", "continue_conversation", "session_id", "fork_session", "session_store")


@dataclass(frozen=True)
class BuiltAgent:
    """What a run is made of.

    Attributes:
        name: The agent run's name.
        options: The SDK's options, a copy that nobody else has. MCP servers are not in it yet.
        tools: The run's own tools, by name.
        servers: The caller's MCP servers, by name.
        server_name: The name of the server of the run's own tools.
        output: How the answer is asked for and read; `None` for text.
    """

    name: str
    options: ClaudeAgentOptions
    tools: Mapping[str, LocalTool]
    servers: Mapping[str, Any]
    server_name: str
    output: OutputFormat | None

    @property
    def tool_prefix(self) -> str:
        """What Claude Code puts before the names of the run's tools."""
        return f"mcp__{self.server_name}__"

    def configuration(self) -> dict[str, JSON]:
        """What the run is made of, as far as it is known before its first request."""
        shown: dict[str, JSON] = {
            "model": self.options.model,
            "tools": jsonable(sorted(self.tools)),
            "servers": jsonable(sorted(self.servers)),
            "builtin": jsonable(self.options.tools),
            "output": jsonable(self.options.output_format),
        }
        for name in ("system_prompt", "agents", "max_turns", "max_budget_usd", "fallback_model", "thinking", "effort"):
            value = getattr(self.options, name)
            try:
                shown[name] = jsonable(value)
            except UnserializableError:
                shown[name] = str(value)
        return shown


def build_agent(
    *,
    agent: AgentDefinition | None,
    tools: Iterable[Any],
    model: str | None,
    instructions: str | None,
    name: str | None,
    output_type: Any,
    options: ClaudeAgentOptions | None,
    subagents: Mapping[str, AgentDefinition] | None,
    max_turns: int | None,
    server_name: str,
    durable: bool,
    remembers: bool,
    budgeted: bool,
) -> BuiltAgent:
    """Put together what a run is made of. Nothing that the caller gave is changed.

    Args:
        agent: A definition that the main agent is made of.
        tools: The run's tools.
        model: The model's name.
        instructions: The system text.
        name: The agent's name.
        output_type: The type of the answer.
        options: The SDK's options.
        subagents: Sub-agents, by name.
        max_turns: How many turns the run may take.
        server_name: The name of the server of the run's own tools.
        durable: Whether turns are recorded.
        remembers: Whether the run has a memory.
        budgeted: Whether the run has a budget.

    Raises:
        TypeError: A value is of another type.
        ValueError: Two arguments say the same thing, or contradict each other.
        NotImplementedError: Turns cannot be recorded with these options.
    """
    if options is not None and not isinstance(options, ClaudeAgentOptions):
        raise TypeError(f"options is {type(options).__name__}; give ClaudeAgentOptions(...).")
    given = _copied(options or ClaudeAgentOptions())
    for argument, value, option in (
        ("model", model, given.model),
        ("instructions", instructions, given.system_prompt),
        ("max_turns", max_turns, given.max_turns),
        ("output_type", output_type, given.output_format),
    ):
        if value is not None and option is not None:
            raise ValueError(f"run_agent was given {argument}= and options= that say it as well. Leave one out.")
    if remembers:
        both = session_options(given)
        if both:
            raise ValueError(
                f"run_agent was given memory_key= and options= with {', '.join(both)}, which both hold the conversation. "
                "Give one of them."
            )
    if elsewhere := fixed_upstream(given.env):
        if budgeted:
            raise NotImplementedError(
                f"run_agent was given budget=, and {elsewhere} is set: Claude Code asks another cloud's API, and nobody can "
                "count its turns. Give max_turns=, or max_budget_usd in options=."
            )
        if durable:
            logger.warning(
                "%s is set: Claude Code asks another cloud's API, whose address cannot be moved, so turns are not recorded one "
                "by one. Its session is kept after each step instead, and a retry goes on from there.",
                elsewhere,
            )
    if given.user is not None:
        raise NotImplementedError(
            "options= has user, so that Claude Code runs as somebody else, who cannot read what the run prepares for it. "
            "Leave it out."
        )
    output = OutputFormat.of(output_type)
    agents = {**(given.agents or {}), **(subagents or {})}
    changes: dict[str, Any] = {
        "model": model or given.model,
        "max_turns": max_turns if max_turns is not None else given.max_turns,
        "output_format": output.option() if output is not None else given.output_format,
    }
    if agent is not None:
        changes |= _main_agent(agent, given, model=model, instructions=instructions, name=name, output_type=output_type)
    elif instructions is not None:
        # no snapshot: a conversation that is gone on with has new instructions where they are new
        changes["system_prompt"] = {"type": "custom", "prompt": instructions, "snapshot": False}
    changes["model"] = changes["model"] or DEFAULT_MODEL
    if durable:
        _warn_of_subagents(agents, given.env)
    changes |= _capabilities(given, agents)
    if given.max_buffer_size is None:
        changes["max_buffer_size"] = 1 << 28  # the SDK's own 1 MiB is less than one long answer
    local, served = _tools(tools)
    servers = read_servers(given.mcp_servers)
    if twice := servers.keys() & served.keys():
        raise ValueError(f"tools and options= both have an MCP server named {', '.join(sorted(twice))}. Rename one.")
    servers |= served
    if server_name in servers:
        raise ValueError(
            f"An MCP server is named {server_name!r}, as the run's own is. Give server_name= another name."
        )
    return BuiltAgent(
        name=name or DEFAULT_NAME,
        options=replace(given, agents=agents or None, mcp_servers={}, **changes),
        tools=local,
        servers=servers,
        server_name=server_name,
        output=output,
    )


def session_options(options: ClaudeAgentOptions) -> list[str]:
    """The options by which a caller goes on with a session of their own.

    Args:
        options: The SDK's options.
    """
    return [option for option in _SESSION_OPTIONS if getattr(options, option)]


def _warn_of_subagents(agents: Mapping[str, AgentDefinition], env: Mapping[str, str]) -> None:
    if runs_in_background(env):
        logger.warning(
            "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS is off, so that sub-agents may run in the background. Each reports when it is "
            "ready, which on a retry may be before or after another turn: turns after that are then asked again. Tools that ran "
            "are not run again."
        )
    elif background := sorted(name for name, agent in agents.items() if agent.background):
        logger.warning(
            "The sub-agents %s are to run in the background, and run in the foreground: there a retry finds all of their turns. "
            "options=ClaudeAgentOptions(env={'CLAUDE_CODE_DISABLE_BACKGROUND_TASKS': '0'}) lets them.",
            ", ".join(background),
        )
    own = sorted(name for name, agent in agents.items() if any(isinstance(one, dict) for one in agent.mcpServers or ()))
    if own:
        logger.warning(
            "The sub-agents %s have MCP servers of their own, to which Claude Code connects by itself: what these do is not "
            "recorded, and a retry does it again. Give them in options=ClaudeAgentOptions(mcp_servers=...), and name them.",
            ", ".join(own),
        )


def _copied(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    """A copy whose lists and mappings are its own. What they hold (callbacks, servers, stores) is the caller's."""
    own: dict[str, Any] = {
        field.name: value.copy()
        for field in dataclasses.fields(options)
        if isinstance(value := getattr(options, field.name), (list, dict))
    }
    return replace(options, **own)


def _main_agent(definition: AgentDefinition, options: ClaudeAgentOptions, **given: Any) -> dict[str, Any]:
    if not isinstance(definition, AgentDefinition):
        raise TypeError(f"agent is {type(definition).__name__}; give an AgentDefinition, or options=.")
    both = [argument for argument, value in given.items() if value is not None]
    if both:
        raise ValueError(
            f"run_agent was given agent= and {', '.join(both)}, which the agent has itself. Leave one out."
        )
    taken = (
        "description",
        "prompt",
        "tools",
        "disallowedTools",
        "model",
        "maxTurns",
        "effort",
        "permissionMode",
        "skills",
    )
    left = [
        field.name
        for field in dataclasses.fields(definition)
        if field.name not in taken and getattr(definition, field.name) is not None
    ]
    if left:
        raise ValueError(f"agent has {', '.join(left)}, which a main agent does not take. Give options= instead.")
    model = definition.model if definition.model != "inherit" else None
    if options.model is not None and model is not None:
        raise ValueError("agent and options= both have a model. Leave one out.")
    if options.system_prompt is not None:
        raise ValueError("agent and options= both have a system prompt. Leave one out.")
    changes: dict[str, Any] = {
        "system_prompt": {"type": "custom", "prompt": definition.prompt, "snapshot": False},
        "model": model or options.model,
    }
    for field, option in (
        ("tools", "tools"),
        ("disallowedTools", "disallowed_tools"),
        ("maxTurns", "max_turns"),
        ("effort", "effort"),
        ("permissionMode", "permission_mode"),
        ("skills", "skills"),
    ):
        if (value := getattr(definition, field)) is not None:
            changes[option] = value
    return changes


def _capabilities(options: ClaudeAgentOptions, agents: Mapping[str, AgentDefinition]) -> dict[str, Any]:
    """What the agent may do by itself: nothing, unless the caller says so."""
    builtin = options.tools
    if builtin is None:
        builtin = [SUBAGENT_TOOL] if agents else []
    acting = [name for name in builtin if name != SUBAGENT_TOOL] if isinstance(builtin, list) else ["all of them"]
    if acting:
        logger.warning(
            "Built-in tools of Claude Code are on (%s). What they do is not recorded: a retry does it again, in whatever state "
            "the machine is then.",
            ", ".join(acting),
        )
    return {
        "tools": builtin,
        "setting_sources": options.setting_sources if options.setting_sources is not None else [],
        "strict_mcp_config": options.strict_mcp_config or options.setting_sources is None,
    }


def _tools(tools: Iterable[Any]) -> tuple[dict[str, LocalTool], dict[str, Any]]:
    local: dict[str, LocalTool] = {}
    servers: dict[str, Any] = {}
    for item in tool_list(tools):
        if isinstance(item, Mapping):
            if item.get("type") != "sdk":
                raise TypeError(
                    "tools has the description of an MCP server in it. Give it a name: "
                    "options=ClaudeAgentOptions(mcp_servers={'name': {...}})."
                )
            servers[str(item["name"])] = item
            continue
        agent_tool = getattr(item, "__agent_tool__", None)
        if agent_tool is None and isinstance(item, SdkMcpTool):
            name = item.name
            made: LocalTool = NativeFunctionTool(item)
        else:
            if agent_tool is None:  # a task or a callable; anything else is a TypeError that says so
                agent_tool = getattr(make_tool(item), "__agent_tool__")  # noqa: B009 - not in the protocol
            name = agent_tool.name
            made = TaskTool(agent_tool)
        if name in local:
            raise ValueError(f"tools has two tools named {name!r}. Rename one: tool(..., name='...').")
        local[name] = made
    return local, servers


def allowed_tools(built: BuiltAgent) -> Sequence[str]:
    """What runs without anybody being asked: the run's own tools, unless the caller wants to be asked.

    Claude Code does not ask `can_use_tool` about what is allowed beforehand.

    Args:
        built: The agent.
    """
    if built.options.can_use_tool is not None or built.options.permission_prompt_tool_name is not None:
        return built.options.allowed_tools
    own = [f"{built.tool_prefix}{name}" for name in built.tools]
    return [*built.options.allowed_tools, *own, *(f"mcp__{name}" for name in built.servers)]
