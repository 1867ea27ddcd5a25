"""The SDK by itself, a durable run, and its replay: what the model is sent, what comes out, and what the state is."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import flyte
import pytest
from langchain.agents import create_agent
from langchain.tools import tool as langchain_tool
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, message_to_dict
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.langchain import run_agent

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("differential")

# connections of their own: the packages share a pool for equal time limits, and it belongs to another test's event loop
SECONDS = itertools.count(100)

MODELS: dict[str, Callable[[], BaseChatModel]] = {
    "chat completions": lambda: ChatOpenAI(model="gpt-4.1", timeout=next(SECONDS), temperature=0.5),
    "responses": lambda: ChatOpenAI(model="gpt-4.1", timeout=next(SECONDS), use_responses_api=True),
    "anthropic": lambda: ChatAnthropic(
        model="claude",
        timeout=next(SECONDS),
        stop=None,
        max_tokens=4096,
        thinking={"type": "enabled", "budget_tokens": 1024},
    ),
    "mistral": lambda: ChatMistralAI(model_name="mistral-large-latest", timeout=next(SECONDS)),
}


@langchain_tool
def look(city: str) -> str:
    """Look a city up."""
    return f"{city} is cold"


@langchain_tool(response_format="content_and_artifact")
def paint(what: str) -> tuple[str, Any]:
    """Paint."""
    return f"painted {what}", {"what": [what]}


def normal(value: Any) -> Any:
    """A value without the ids that the SDK makes up."""
    text = json.dumps(value, sort_keys=True, default=str)
    return json.loads(
        re.sub(r"lc_run--[0-9a-f-]+|lc_[0-9a-f-]{36}|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "id", text)
    )


@pytest.mark.parametrize("stream", [False, True], ids=["not streamed", "streamed"])
@pytest.mark.parametrize("provider", list(MODELS))
async def test_the_sdk_by_itself_a_durable_run_and_its_replay_come_to_the_same(
    model_env: ModelServer, run_task: RunTask, provider: str, stream: bool
) -> None:
    thinking = "Hm." if provider == "anthropic" else ""
    model_env.script(
        "Hi",
        Reply("Let me see.", calls=(call("look", city="Oslo"), call("paint", what="it")), thinking=thinking, pieces=3),
        Reply("Cold.", thinking=thinking, pieces=2),
    )

    def graph() -> Any:
        model = MODELS[provider]()
        if stream and provider != "mistral":
            model = model.model_copy(update={"streaming": True})
            model.__pydantic_fields_set__.add("streaming")
        return create_agent(model, [look, paint], system_prompt="Be brief.")

    states: list[Any] = []

    @env.task
    async def durable() -> str:
        result = await run_agent("Hi", agent=graph(), full_result=True)
        states.append(result.native)
        return str(result.text)

    bare = await graph().ainvoke({"messages": [HumanMessage("Hi")]})
    sent = [entry.body for entry in model_env.journal.requests()]
    model_env.journal.clear()
    assert await run_task(durable) == "Cold."
    assert [entry.body for entry in model_env.journal.requests()] == sent
    assert await run_task(durable) == "Cold."
    assert model_env.journal.count() == len(sent) == 2
    by_itself = normal([message_to_dict(message) for message in bare["messages"]])
    for state in states:
        assert normal([message_to_dict(message) for message in state["messages"]]) == by_itself
        assert [type(message) for message in state["messages"]] == [type(message) for message in bare["messages"]]
