"""The tool object, and agents in sync tasks."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import flyte
import pytest
from mistralai.client import Mistral
from mistralai.extra.run.context import RunContext

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import ToolTaskResolver
from flyteplugins.agents.mistral import run_agent, run_agent_sync, tool

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("tools")


@tool
@env.task(cache="disable")
async def shout(text: str, times: int = 1) -> str:
    """Shout something.

    Args:
        text: What to shout.
        times: How often.
    """
    return text.upper() * times


def test_a_tool_is_a_function_to_the_sdk_and_survives_being_copied() -> None:
    made: Any = shout
    assert isinstance(made.__wrapped_task__.task_resolver, ToolTaskResolver)
    for one in (made, copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert inspect.isfunction(one)
        assert one.__name__ == "shout"
        context = RunContext(model="m")
        context.register_func(one)
        [declared] = context.get_tools()
        assert declared.function.description == "Shout something."
        assert declared.function.parameters["properties"]["times"]["default"] == 1


async def test_a_renamed_tool_is_another_and_the_first_stays(model_env: ModelServer) -> None:
    loud: Any = tool(shout, name="loud", description="Be loud.")
    model_env.script("both", Reply(calls=(call("loud", text="a"), call("shout", text="b", times=2))), Reply("done"))
    assert await run_agent("both", tools=[shout, loud]) == "done"
    first, second = model_env.journal.requests()
    offered = {one["function"]["name"]: one["function"]["description"] for one in first.body["tools"]}
    assert offered == {"shout": "Shout something.", "loud": "Be loud."}
    results = [entry["result"] for entry in second.body["inputs"] if entry["type"] == "function.result"]
    assert results == ["A", "BB"]


async def test_a_sync_task_and_an_async_one_share_a_client(model_env: ModelServer, run_task: RunTask) -> None:
    """They run in event loops of their own, and a connection belongs to one."""
    model_env.script(None, lambda conversation: Reply(f"you said {conversation.user}"), repeat_last=True)
    client = Mistral(api_key="k", server_url=model_env.mistral_server_url)

    @env.task
    def in_sync(message: str) -> str:
        return run_agent_sync(message, client=client)

    @env.task
    async def both() -> list[str]:
        answers: list[str] = []
        for number in range(2):
            answers += await asyncio.gather(in_sync.aio(f"sync {number}"), run_agent(f"async {number}", client=client))
        return [str(answer) for answer in answers]

    assert await run_task(both) == ["you said sync 0", "you said async 0", "you said sync 1", "you said async 1"]


async def test_the_sync_form_refuses_to_block_an_event_loop(model_env: ModelServer) -> None:
    with pytest.raises(RuntimeError, match=r"Use `await run_agent\(...\)`"):
        run_agent_sync("Hi")
