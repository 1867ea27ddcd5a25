"""What `@tool` leaves in a module: the tool, and the SDK's own tool object as soon as somebody asks for it.

A worker that runs a tool's task imports the user's module, and must not pay for the agent SDK by that. So the native object
is built when it is first needed, which is when an agent looks at it. To `isinstance` it is what the SDK expects as soon as the
SDK is loaded.
"""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import wrapt

from ._cli import show_tasks_of_tools
from ._hidden import context_parameters
from ._tools import AgentTool, as_agent_tool

__all__ = ["NativeTool", "tool_list"]

_DEFAULTS = {"durable": True, "on_unknown": "retry"}
"""What every adapter's `tool` has where the caller says nothing."""


def tool_list(tools: Iterable[Any]) -> list[Any]:
    """What `run_agent` was given as `tools`, which has to be several.

    Args:
        tools: Any iterable of tools.

    Raises:
        TypeError: It is a single tool, text, or nothing that can be gone through.
    """
    lone = issubclass(type(tools), NativeTool) or isinstance(tools, (str, bytes, Mapping)) or callable(tools)
    if lone or not isinstance(tools, Iterable):
        raise TypeError(f"tools is {type(tools).__name__}; give a list of tools, such as tools=[get_weather].")
    return list(tools)


class NativeTool(wrapt.LazyObjectProxy[Any]):
    """A tool that passes for its SDK's own tool object.

    Calling it calls the task or function, so that `await get_weather("Paris")` works in a task as if `@tool` were not there.

    Args:
        agent_tool: The tool, in no SDK's terms.
        sdk: The SDK's top-level module.
        factory: Where the function is that builds the native object of an `AgentTool` and options, as `module:name`.
        options: What the adapter's factory takes besides.
    """

    def __new__(cls, *_: Any, **__: Any) -> NativeTool:
        """Without our arguments, which wrapt before 2.5 does not let pass."""
        return super().__new__(cls)

    def __init__(
        self, agent_tool: AgentTool, *, sdk: str, factory: str, options: Mapping[str, Any] | None = None
    ) -> None:
        options = dict(options or {})
        show_tasks_of_tools()
        super().__init__(lambda: _call(factory, agent_tool, options))
        self._self_agent_tool = agent_tool
        self._self_sdk = sdk
        self._self_factory = factory
        self._self_options = options

    @classmethod
    def of(
        cls,
        target: Callable[..., Any],
        *,
        sdk: str,
        factory: str,
        context_types: Collection[str] = (),
        native: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> NativeTool:
        """Make the tool of a task or a callable, or rename one that exists.

        Args:
            target: An `@env.task` function, a callable, or a tool.
            sdk: The SDK's top-level module.
            factory: As for the class.
            context_types: The SDK's context types, as `module.Name`: the model is not told of parameters that take them.
            native: What the adapter's factory takes besides; a tool that is renamed keeps its own.
            options: Keywords of `AgentTool`. Where it is `None` or the default, a tool that is renamed keeps its own.

        Raises:
            TypeError: `target` is neither a task nor a callable, or a task takes the SDK's context.
        """
        given = {name: value for name, value in options.items() if value is not None and value != _DEFAULTS.get(name)}
        if hidden := context_parameters(target, context_types):
            given["hidden"] = hidden
        kept = getattr(target, "_self_options", {})
        return cls(as_agent_tool(target, **given), sdk=sdk, factory=factory, options={**kept, **(native or {})})

    @property
    def __agent_tool__(self) -> AgentTool:
        """The tool, in no SDK's terms."""
        tool: AgentTool = self._self_agent_tool
        return tool

    @property
    def __wrapped_task__(self) -> Any:
        """The Flyte task behind it, or `None` for a plain callable."""
        return self._self_agent_tool.task

    @property
    def __class__(self) -> type:
        """The native class once the SDK is loaded: nobody can ask for it before."""
        if self._self_sdk in sys.modules:
            return type(self.__wrapped__)
        return NativeTool

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise TypeError("The class of a tool cannot be changed.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task or the function."""
        tool: AgentTool = self._self_agent_tool
        target: Callable[..., Any] = tool.task if tool.task is not None else tool.function
        return target(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self._self_agent_tool)

    def __copy__(self) -> Any:
        return copy.copy(self.__wrapped__)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__wrapped__, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        tool: AgentTool = self._self_agent_tool
        function = tool.function
        module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        found: object = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:  # `@tool` stacked on it: by reference, as functions are
            return _load, (module, name)
        return _rebuild, (tool, self._self_sdk, self._self_factory, self._self_options)


def _call(factory: str, agent_tool: AgentTool, options: Mapping[str, Any]) -> Any:
    module, _, name = factory.partition(":")
    return getattr(importlib.import_module(module), name)(agent_tool, options)


def _load(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _rebuild(agent_tool: AgentTool, sdk: str, factory: str, options: Mapping[str, Any]) -> NativeTool:
    return NativeTool(agent_tool, sdk=sdk, factory=factory, options=options)
