"""Run LangChain agents and LangGraph graphs as durable Flyte tasks.

```python
import flyte
from flyteplugins.agents.langchain import run_agent, tool

env = flyte.TaskEnvironment("chat")


@tool
@env.task(retries=3)
async def get_weather(city: str) -> str:
    \"""Get the current weather for a city.\"""
    return f"It is sunny in {city}."


@env.task(report=True, retries=3)
async def chat(message: str) -> str:
    return await run_agent(message, tools=[get_weather], model="openai:gpt-4.1")
```

Importing this package does not import the SDK: a worker that runs a tool's task never loads it.
"""

from __future__ import annotations

import importlib
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import AgentResult, Budget, BudgetExceededError, MemoryStore, Retention, idempotency_key

from ._run import run_agent, run_agent_sync
from ._tool import tool

if TYPE_CHECKING:
    from ._checkpointer import FlyteCheckpointSaver
    from ._model import DurableChatModel
    from ._store import FlyteStore

# A code bundle that Flyte makes in a checkout has the modules that were loaded; the others are where this is installed.
__path__ = extend_path(__path__, __name__)

__all__ = [
    "AgentResult",
    "Budget",
    "BudgetExceededError",
    "DurableChatModel",
    "FlyteCheckpointSaver",
    "FlyteStore",
    "MemoryStore",
    "Retention",
    "idempotency_key",
    "run_agent",
    "run_agent_sync",
    "tool",
]


_LAZY = {
    "DurableChatModel": "_model",
    "FlyteCheckpointSaver": "_checkpointer",
    "FlyteStore": "_store",
}
"""What needs the SDK, by module."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
