"""Run agents of the OpenAI Agents SDK as durable Flyte tasks.

```python
import flyte
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("chat")


@tool
@env.task(retries=3)
async def get_weather(city: str) -> str:
    \"""Get the current weather for a city.\"""
    return f"It is sunny in {city}."


@env.task(report=True, retries=3)
async def chat(message: str) -> str:
    return await run_agent(message, tools=[get_weather], model="gpt-4.1")
```

Importing this package does not import the SDK: a worker that runs a tool's task never loads it.
"""

from __future__ import annotations

import importlib
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from ._run import run_agent, run_agent_sync
from ._tool import tool

if TYPE_CHECKING:
    from agents import FunctionTool

    from flyteplugins.agents.core import (
        AgentResult,
        Budget,
        BudgetExceededError,
        MemoryStore,
        Retention,
        idempotency_key,
    )

    from ._model import FlyteModel, FlyteModelProvider
    from ._session import FlyteSession
    from ._spans import SpanFinished
    from ._tracing import FlyteTracingProcessor, install_flyte_tracing

# A code bundle that Flyte makes in a checkout has the modules that were loaded; the others are where this is installed.
__path__ = extend_path(__path__, __name__)

__all__ = [
    "AgentResult",
    "Budget",
    "BudgetExceededError",
    "FlyteModel",
    "FlyteModelProvider",
    "FlyteSession",
    "FlyteTracingProcessor",
    "FunctionTool",
    "MemoryStore",
    "Retention",
    "SpanFinished",
    "idempotency_key",
    "install_flyte_tracing",
    "run_agent",
    "run_agent_sync",
    "tool",
]

_CORE = "flyteplugins.agents.core"

_LOADED_WHEN_ASKED_FOR = {
    "AgentResult": _CORE,
    "Budget": _CORE,
    "BudgetExceededError": _CORE,
    "FlyteModel": f"{__name__}._model",
    "FlyteModelProvider": f"{__name__}._model",
    "FlyteSession": f"{__name__}._session",
    "FlyteTracingProcessor": f"{__name__}._tracing",
    "FunctionTool": "agents",
    "MemoryStore": _CORE,
    "Retention": _CORE,
    "SpanFinished": f"{__name__}._spans",
    "idempotency_key": _CORE,
    "install_flyte_tracing": f"{__name__}._tracing",
}


def __getattr__(name: str) -> Any:
    if name in _LOADED_WHEN_ASKED_FOR:
        return getattr(importlib.import_module(_LOADED_WHEN_ASKED_FOR[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
