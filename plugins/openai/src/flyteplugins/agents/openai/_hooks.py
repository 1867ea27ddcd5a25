"""Hand-offs as events; everything else goes to the caller's own hooks."""

from __future__ import annotations

from typing import Any

from agents import Agent, RunContextWrapper, RunHooks
from agents.lifecycle import RunHooksBase

from flyteplugins.agents.core import AgentRun, HandOff

__all__ = ["EventHooks", "watched_hooks"]


class EventHooks(RunHooks[Any]):
    """Run hooks that tell the event stream of hand-offs.

    Args:
        run: The agent run.
        hooks: The caller's hooks.
    """

    def __init__(self, run: AgentRun, hooks: RunHooks[Any] | None) -> None:
        self._run = run
        self._hooks: RunHooks[Any] = hooks if hooks is not None else RunHooks()
        for name in ("on_llm_start", "on_llm_end", "on_agent_start", "on_agent_end", "on_tool_start", "on_tool_end"):
            setattr(self, name, getattr(self._hooks, name))

    async def on_handoff(self, context: RunContextWrapper[Any], from_agent: Agent[Any], to_agent: Agent[Any]) -> None:
        """Tell of a hand-off."""
        event = HandOff(run=self._run.id, agent=from_agent.name, source=from_agent.name, target=to_agent.name)
        await self._run.emit(event)
        await self._hooks.on_handoff(context, from_agent, to_agent)


def watched_hooks(run: AgentRun, hooks: RunHooks[Any] | None) -> RunHooks[Any] | None:
    """The caller's hooks, after third parties that registered for them were asked: see `register_instrumentor`.

    Their payload is what `Runner.run` takes, of which the hooks are the part that they may change.

    Args:
        run: The agent run.
        hooks: The caller's hooks.
    """
    payload: dict[str, Any] = {} if hooks is None else {"hooks": hooks}
    watched = run.instrumented(payload)
    chosen = watched.get("hooks") if isinstance(watched, dict) else None
    return chosen if isinstance(chosen, RunHooksBase) else hooks
