"""A run asks what the bare SDK asks, and says what it says."""

from __future__ import annotations

from typing import Any

import claude_agent_sdk as sdk
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, ToolAnnotations

from flyteplugins.agents.claude import run_agent
from flyteplugins.agents.claude._request import in_order_of_calls, semantic_fields
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import AgentResult

TEMPERATURES = {"Oslo": 5, "Rome": 21}


def a_dialogue(server: ModelServer) -> None:
    server.script(
        "How warm",
        Reply(text="Let me see.", calls=(call("temperature", city="Oslo"), call("temperature", city="Rome"))),
        Reply(calls=(call("temperature", city="Atlantis"),)),
        Reply("Rome is warmer, and there is no Atlantis.", pieces=3),
    )


def temperature(city: str) -> str:
    """Tell the temperature in a city."""
    return f"{TEMPERATURES[city]} degrees"


async def bare(server: ModelServer) -> ResultMessage:
    """The same with the SDK alone."""

    async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            text = temperature(arguments["city"])
        except KeyError as error:
            text = f"Error: the tool temperature failed. KeyError: {error}"
            return {"content": [{"type": "text", "text": text}], "is_error": True}
        return {"content": [{"type": "text", "text": text}]}

    schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    schema["additionalProperties"] = False
    made = sdk.tool("temperature", temperature.__doc__ or "", schema, annotations=ToolAnnotations(readOnlyHint=True))
    options = ClaudeAgentOptions(
        mcp_servers={"flyte_tools": sdk.create_sdk_mcp_server("flyte_tools", tools=[made(handler)])},
        allowed_tools=["mcp__flyte_tools__temperature"],
        tools=[],
        setting_sources=[],
        strict_mcp_config=True,
        model="claude-sonnet-5-5",
        system_prompt="You are terse.",
        env=server.env(),
    )
    results = [
        message
        async for message in sdk.query(prompt="How warm is it?", options=options)
        if isinstance(message, ResultMessage)
    ]
    return results[-1]


def asked(server: ModelServer) -> list[Any]:
    bodies = [dict(entry.body) for entry in server.journal.requests()]
    for body in bodies:
        in_order_of_calls(body)
    return [semantic_fields(body, "http://127.0.0.1/anthropic") for body in bodies]


async def test_a_run_asks_and_answers_like_the_bare_sdk(model_env: ModelServer) -> None:
    a_dialogue(model_env)
    alone = await bare(model_env)
    requests = asked(model_env)
    model_env.journal.clear()
    ours: AgentResult[str] = await run_agent(
        "How warm is it?", tools=[temperature], instructions="You are terse.", full_result=True
    )
    for one, other in zip(asked(model_env), requests, strict=True):
        assert one == other
    native = ours.native
    assert isinstance(native, ResultMessage)
    assert ours.output == alone.result == native.result
    assert (native.num_turns, native.stop_reason, native.usage) == (alone.num_turns, alone.stop_reason, alone.usage)
    assert native.total_cost_usd == alone.total_cost_usd
    assert ours.usage.fresh.input_tokens == (alone.usage or {})["input_tokens"]
    assert ours.usage.fresh.output_tokens == (alone.usage or {})["output_tokens"]
