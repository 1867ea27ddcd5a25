"""Running a graph, and reading what it ended with."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.pregel import Pregel
from langgraph.types import Interrupt

from flyteplugins.agents.core import AgentError, render_result

from ._agent import MESSAGES
from ._nodes import NODES

__all__ = ["GraphOutcome", "answer", "final_text", "run_config", "run_graph"]

_INTERRUPT = "__interrupt__"
_STRUCTURED = "structured_response"


@dataclass
class GraphOutcome:
    """How a graph's run ended.

    Attributes:
        state: The state, as the graph gives it out.
        paused: Whether it waits for somebody, so that the state is no answer.
        interrupts: What it asks.
    """

    state: Any = None
    paused: bool = False
    interrupts: list[Interrupt] = field(default_factory=list)

    @property
    def questions(self) -> list[str]:
        """What it asks, as text."""
        return [render_result(one.value) for one in self.interrupts] or ["a breakpoint of the graph"]

    @property
    def question(self) -> str:
        """What it asks, in one line."""
        return "; ".join(text if len(text) <= 200 else f"{text[:200]}..." for text in self.questions)


class _Live(BaseCallbackHandler, _StreamingCallbackHandler):  # type: ignore[type-arg]  # it taps nothing
    """Has the SDK ask models to stream."""

    run_inline = True

    def tap_output_aiter(self, run_id: Any, output: Any) -> Any:  # noqa: ARG002 - the signature is the SDK's
        """Pass the pieces on."""
        return output

    def tap_output_iter(self, run_id: Any, output: Any) -> Any:  # noqa: ARG002
        """Pass the pieces on."""
        return output


def run_config(graph: Pregel[Any, Any, Any, Any], config: RunnableConfig | None, *, stream: bool) -> RunnableConfig:
    """The configuration of a run: the caller's, and what tells which node is running.

    Args:
        graph: The graph.
        config: The caller's configuration, which stays as it is.
        stream: Whether models are asked to stream.
    """
    ours: RunnableConfig = {"callbacks": [NODES, *([_Live()] if stream else [])]}
    if graph.checkpointer and "thread_id" not in ((config or {}).get("configurable") or {}):
        ours["configurable"] = {"thread_id": str(uuid.uuid4())}
    return merge_configs(config, ours)


async def run_graph(
    graph: Pregel[Any, Any, Any, Any], state: Any, config: RunnableConfig, context: Any
) -> GraphOutcome:
    """Run a graph to its end, or to where it waits.

    `ainvoke` does the same, but does not tell of a breakpoint (`interrupt_before`), at which it returns a state like any other.

    Args:
        graph: The graph.
        state: What it starts from.
        config: The configuration.
        context: The context object.
    """
    outcome = GraphOutcome()
    parts = graph.astream(state, config, context=context, stream_mode=["updates", "values"])
    async with contextlib.aclosing(cast(Any, parts)):
        async for mode, payload in parts:
            if mode == "values":
                outcome.state = payload
            elif isinstance(payload, dict) and _INTERRUPT in payload:
                outcome.paused = True
                outcome.interrupts += payload[_INTERRUPT]
    return outcome


def final_text(state: Any) -> str:
    """The text of the last message, without reasoning; the state as JSON where there are no messages."""
    messages = state.get(MESSAGES) if isinstance(state, Mapping) else None
    if not isinstance(messages, list):
        return render_result(state)
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, BaseMessage) and message.text:
            return str(message.text)
    structured = cast("Mapping[str, Any]", state).get(_STRUCTURED)
    return "" if structured is None else render_result(structured)


def answer(graph: Pregel[Any, Any, Any, Any], state: Any, text: str) -> Any:
    """What `run_agent` returns: the typed answer, the text, or the state of a graph without messages.

    Args:
        graph: The graph.
        state: What it ended with.
        text: The final text.

    Raises:
        AgentError: The graph gives typed answers, and gave none.
    """
    if not isinstance(state, Mapping) or MESSAGES not in state:
        return state
    if state.get(_STRUCTURED) is not None:
        return state[_STRUCTURED]
    if _STRUCTURED in graph.channels and not text:
        raise AgentError(f"The agent ended without the typed answer that it was to give: {json.dumps(text)}.")
    return text
