"""An adapter that imports its SDK at once."""

from flyteplugins.agents.conformance.reference import run_agent, run_agent_sync, sdk, tool

__all__ = ["run_agent", "run_agent_sync", "sdk", "tool"]
