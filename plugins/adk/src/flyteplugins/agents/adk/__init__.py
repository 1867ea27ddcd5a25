"""Run agents of Google's Agent Development Kit as durable Flyte tasks.

```python
import flyte
from flyteplugins.agents.adk import run_agent, tool

env = flyte.TaskEnvironment("chat")


@tool
@env.task(retries=3)
async def get_weather(city: str) -> str:
    \"""Get the current weather for a city.\"""
    return f"It is sunny in {city}."


@env.task(report=True, retries=3)
async def chat(message: str) -> str:
    return await run_agent(message, tools=[get_weather], model="gemini-3.5-flash")
```

Importing this package does not import the SDK: a worker that runs a tool's task never loads it.
"""

from __future__ import annotations

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from flyteplugins.agents.core import AgentResult, Budget, BudgetExceededError, MemoryStore, Retention, idempotency_key

from ._model_error import ModelResponseError
from ._run import run_agent, run_agent_sync
from ._tool import tool

if TYPE_CHECKING:
    from ._session_service import FlyteSessionService

# A code bundle that Flyte makes in a checkout has the modules that were loaded; the others are where this is installed.
__path__ = extend_path(__path__, __name__)

__all__ = [
    "AgentResult",
    "Budget",
    "BudgetExceededError",
    "FlyteSessionService",
    "MemoryStore",
    "ModelResponseError",
    "Retention",
    "idempotency_key",
    "run_agent",
    "run_agent_sync",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name == "FlyteSessionService":  # it needs the SDK
        from ._session_service import FlyteSessionService

        return FlyteSessionService
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
