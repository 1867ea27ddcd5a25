"""A turn's key is the same wherever and whenever it is asked, and another one for each change that the model would see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, function_tool, handoff
from openai import AsyncOpenAI
from pydantic import BaseModel

from flyteplugins.agents.conformance.models import Conversation, ModelServer, Reply, call
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("keys")

QUESTION = "How warm is it in Oslo?"


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return city


@env.task(cache="disable")
async def lookup_in(city: str, country: str = "Norway") -> str:
    """Look a city up."""
    return city + country


class City(BaseModel):
    """A city."""

    name: str


class Town(BaseModel):
    """A town."""

    name: str
    size: int


def billing() -> Agent[Any]:
    return Agent(name="billing", instructions="Bills.")


def keys(folder: Path) -> list[str]:
    """The keys of the turns on record, in any order."""
    return sorted(path.name.split(".")[1] for path in folder.rglob("turn.*"))


def answer(conversation: Conversation) -> Reply:
    """What the model says: something of the type that it is asked for."""
    schema = conversation.output_schema
    if schema is None:
        return Reply("Cold.")
    values = {"name": "Oslo", "size": 3}
    return Reply(structured={name: values[name] for name in schema["properties"]})  # type: ignore[attr-defined]


Ask = Callable[..., Any]


@pytest.fixture
def ask(model_env: ModelServer, run_task: Callable[..., Any], run_folder: Callable[[str], Path]) -> Ask:
    """Asks one question with some options, and returns the key of its turn."""
    count = 0

    @env.task
    async def asking() -> str:
        options = dict(asking_options)
        question = options.pop("input", QUESTION)
        answer = await run_agent(question, **options)
        return str(answer)

    asking_options: dict[str, Any] = {}

    async def ask_with(**options: Any) -> str:
        nonlocal count
        count += 1
        model_env.script(None, answer, repeat_last=True)
        asking_options.clear()
        asking_options.update({"model": "gpt-4.1", "tools": [lookup], "instructions": "Be brief."} | options)
        if "agent" in options:
            asking_options.pop("model"), asking_options.pop("instructions"), asking_options.pop("tools")
        name = f"ask-{count}"
        await run_task(asking, name=name)
        found = keys(run_folder(name))
        assert len(found) == 1
        return found[0]

    return ask_with


VARIANTS: dict[str, dict[str, Any]] = {
    "model": {"model": "gpt-4.1-mini"},
    "temperature": {"run_config": RunConfig(model_settings=ModelSettings(temperature=0.5), tracing_disabled=True)},
    "tool choice": {"run_config": RunConfig(model_settings=ModelSettings(tool_choice="none"), tracing_disabled=True)},
    "instructions": {"instructions": "Be long."},
    "tool description": {"tools": [tool(lookup, description="Find a city.")]},
    "tool schema": {"tools": [tool(lookup_in, name="lookup")]},
    "no tool": {"tools": []},
    "output type": {"output_type": City},
    "another output type": {"output_type": Town},
    "previous_response_id": {"previous_response_id": "resp_1"},
    "hand-off": {
        "agent": Agent(
            name="flyte-agent", model="gpt-4.1", instructions="Be brief.", tools=[tool(lookup)], handoffs=[billing()]
        )
    },
    "hand-off's description": {
        "agent": Agent(
            name="flyte-agent",
            model="gpt-4.1",
            instructions="Be brief.",
            tools=[tool(lookup)],
            handoffs=[handoff(billing(), tool_description_override="Money.")],
        )
    },
    "prompt": {"input": "How warm is it in Rome?"},
}


async def test_each_change_that_the_model_would_see_gives_another_key(ask: Ask, model_env: ModelServer) -> None:
    found = {"nothing": await ask(), "nothing, again": await ask()}
    assert found["nothing"] == found["nothing, again"]
    for variant, options in VARIANTS.items():
        if "previous_response_id" in options:
            previous = model_env.journal.requests()[0].response_id
            options = {"previous_response_id": previous}
        found[variant] = await ask(**options)
    del found["nothing, again"]
    assert len(set(found.values())) == len(found), found


async def test_a_pre_built_agent_and_the_same_one_built_from_arguments_have_one_key(ask: Ask) -> None:
    built = Agent(name="flyte-agent", model="gpt-4.1", instructions="Be brief.", tools=[tool(lookup)])
    assert await ask(agent=built) == await ask()


async def test_prompts_that_differ_by_a_uuid_have_different_keys(ask: Ask) -> None:
    one = await ask(input="Look up 7b0c1a52-8f0e-4d7e-9e55-2f4f8a2c9d10.")
    other = await ask(input="Look up 0a8c8f9e-5b43-4a35-8f3f-6a1d9f6c7b21.")
    assert one != other


async def test_what_the_provider_is_not_asked_by_is_no_part_of_the_key(ask: Ask) -> None:
    """Headers carry credentials, and a timeout is the client's."""
    settings = ModelSettings(extra_headers={"Authorization": "Bearer secret"}, timeout=30.0)
    assert await ask(run_config=RunConfig(model_settings=settings, tracing_disabled=True)) == await ask()


class CachingModel(OpenAIResponsesModel):
    """Asks for the prompt cache, as the SDK does at OpenAI itself."""

    def _supports_default_prompt_cache_key(self) -> bool:
        return True


async def test_a_prompt_cache_key_that_the_sdk_makes_up_is_no_part_of_it(ask: Ask, model_env: ModelServer) -> None:
    keys = {await ask(model=CachingModel("gpt-4.1", AsyncOpenAI())) for _ in range(2)}
    made_up = {entry.body["prompt_cache_key"] for entry in model_env.journal.requests()}
    assert len(made_up) == 2
    assert len(keys) == 1


async def test_a_prompt_cache_key_of_the_callers_own_is_part_of_it(ask: Ask) -> None:
    settings = ModelSettings(extra_args={"prompt_cache_key": "mine"})
    assert await ask(run_config=RunConfig(model_settings=settings, tracing_disabled=True)) != await ask()


async def test_no_credential_is_stored(ask: Ask, run_folder: Callable[[str], Path]) -> None:
    settings = ModelSettings(extra_headers={"X-Api-Key": "very-secret"})
    await ask(run_config=RunConfig(model_settings=settings, tracing_disabled=True))
    files = [path for path in run_folder("ask-1").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"very-secret" in path.read_bytes() or b"offline" in path.read_bytes()]


@function_tool
def add(one: int, two: int) -> int:
    """Add."""
    return one + two


async def test_the_messages_on_the_wire_are_the_same_with_and_without_durability(
    model_env: ModelServer, run_task: Callable[..., Any]
) -> None:
    model_env.script(
        None,
        Reply(calls=(call("lookup", city="Oslo"), call("add", one=1, two=2)), thinking="Let me see."),
        Reply(calls=(call("lookup", city="Rome"),)),
        Reply(structured={"name": "Rome"}),
    )

    async def ask_city(durable: bool) -> str:
        model = CachingModel("gpt-5", AsyncOpenAI())
        city = await run_agent(
            "How warm?", tools=[lookup, add], instructions="Be brief.", output_type=City, durable=durable, model=model
        )
        assert isinstance(city, City)
        return city.name

    @env.task
    async def asking(durable: bool) -> str:
        return await ask_city(durable)

    def bodies() -> list[dict[str, Any]]:
        sent = [dict(entry.body) for entry in model_env.journal.requests()]
        model_env.journal.clear()
        assert len(sent) == 3
        for body in sent:
            assert body.pop("prompt_cache_key").startswith("agents-sdk:run:")
        return sent

    assert await run_task(asking, durable=True, name="durable") == "Rome"
    durable = bodies()
    assert await run_task(asking, durable=False, name="not-durable") == "Rome"
    assert bodies() == durable
    assert await ask_city(True) == "Rome"  # outside of a task
    assert bodies() == durable
