"""A turn's key is the same wherever and whenever it is asked, and another one for each change that the model would see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import flyte
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from flyteplugins.agents.conformance.models import Conversation, ModelServer, Reply, call
from flyteplugins.agents.pydantic_ai import run_agent, tool

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)

env = flyte.TaskEnvironment("keys")

QUESTION = "How warm is it in Oslo?"
RunTask = Callable[..., Any]


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


def keys(folder: Path) -> list[str]:
    """The keys of the turns on record, in any order."""
    return sorted(path.name.split(".")[1] for path in folder.rglob("turn.*"))


def answer(conversation: Conversation) -> Reply:
    """What the model says: something of the type that it is asked for."""
    values = {"name": "Oslo", "size": 3}
    for offered in conversation.tools:
        if "final" in offered.name:
            fields = cast("dict[str, Any]", offered.parameters["properties"])
            return Reply(calls=(call(offered.name, **{name: values[name] for name in fields}),))
    if conversation.output_schema is not None or "JSON" in (conversation.system or ""):
        return Reply(structured={"name": "Oslo"})
    return Reply("Cold.")


Ask = Callable[..., Any]


@pytest.fixture
def ask(model_env: ModelServer, run_task: RunTask, run_folder: Callable[[str], Path]) -> Ask:
    """Asks one question with some options, and returns the key of its turn."""
    count = 0
    asking_options: dict[str, Any] = {}

    @env.task
    async def asking() -> str:
        options = dict(asking_options)
        return str(await run_agent(options.pop("input", QUESTION), **options))

    async def ask_with(**options: Any) -> str:
        nonlocal count
        count += 1
        model_env.script(None, answer, repeat_last=True)
        asking_options.clear()
        asking_options.update({"model": "openai:gpt-4.1", "tools": [lookup], "instructions": "Be brief."} | options)
        if "agent" in options:
            for argument in ("model", "instructions", "tools"):
                asking_options.pop(argument)
        name = f"ask-{count}"
        await run_task(asking, name=name)
        found = keys(run_folder(name))
        assert len(found) == 1
        return found[0]

    return ask_with


def history(text: str) -> dict[str, Any]:
    return {"message_history": [ModelRequest(parts=[UserPromptPart("Hi")]), ModelResponse(parts=[TextPart(text)])]}


VARIANTS: dict[str, Callable[[], dict[str, Any]]] = {
    "model": lambda: {"model": "openai:gpt-4.1-mini"},
    "another API of the provider": lambda: {"model": "openai-chat:gpt-4.1"},
    "another place": lambda: {
        "model": OpenAIResponsesModel(
            "gpt-4.1", provider=OpenAIProvider(openai_client=AsyncOpenAI(base_url="http://localhost./openai/v1"))
        )
    },
    "temperature": lambda: {"model_settings": {"temperature": 0.5}},
    "tool choice": lambda: {"model_settings": {"tool_choice": "none"}},
    "instructions": lambda: {"instructions": "Be long."},
    "tool description": lambda: {"tools": [tool(lookup, description="Find a city.")]},
    "tool schema": lambda: {"tools": [tool(lookup_in, name="lookup")]},
    "no tool": lambda: {"tools": []},
    "output type": lambda: {"output_type": City},
    "another output type": lambda: {"output_type": Town},
    "tool output": lambda: {"output_type": ToolOutput(City, name="final_city")},
    "native output": lambda: {"output_type": NativeOutput(City)},
    "prompted output": lambda: {"output_type": PromptedOutput(City)},
    "history": lambda: history("Hello"),
    "another history": lambda: history("Hello!"),
    "prompt": lambda: {"input": "How warm is it in Rome?"},
    "image": lambda: {"input": [QUESTION, BinaryContent(PNG, media_type="image/png")]},
    "another image": lambda: {"input": [QUESTION, BinaryContent(PNG + b"\0", media_type="image/png")]},
}


async def test_each_change_that_the_model_would_see_gives_another_key(ask: Ask) -> None:
    found = {"nothing": await ask(), "nothing, again": await ask()}
    assert found["nothing"] == found["nothing, again"]
    for variant, options in VARIANTS.items():
        if variant == "another place":
            continue  # there is no server: see below
        found[variant] = await ask(**options())
    del found["nothing, again"]
    assert len(set(found.values())) == len(found), found


def test_the_place_of_a_model_is_part_of_its_identity_without_a_port_of_this_machine() -> None:
    from flyteplugins.agents.pydantic_ai._request import model_identity

    def at(url: str, kind: Any = OpenAIResponsesModel, **options: Any) -> Any:
        return model_identity(kind("m", provider=OpenAIProvider(openai_client=AsyncOpenAI(base_url=url, api_key="k"))))

    assert at("http://127.0.0.1:1234/v1") == at("http://127.0.0.1:4321/v1")
    assert at("http://127.0.0.1:1234/v1") != at("https://example.org/v1")
    assert at("http://127.0.0.1:1234/v1") != at("http://127.0.0.1:1234/v1", OpenAIChatModel)


async def test_a_settings_dictionary_in_another_order_has_the_same_key(ask: Ask) -> None:
    one = {"temperature": 0.5, "max_tokens": 100, "extra_body": {"metadata": {"a": "1", "b": "2"}, "user": "u"}}
    other = {"extra_body": {"user": "u", "metadata": {"b": "2", "a": "1"}}, "max_tokens": 100, "temperature": 0.5}
    assert await ask(model_settings=one) == await ask(model_settings=other)


async def test_a_pre_built_agent_and_the_same_one_built_from_arguments_have_one_key(ask: Ask) -> None:
    built = Agent("openai:gpt-4.1", name="x", instructions="Be brief.", tools=[tool(lookup)], defer_model_check=True)
    assert await ask(agent=built) == await ask()


async def test_what_the_provider_is_not_asked_by_is_no_part_of_the_key(ask: Ask) -> None:
    settings = {"extra_headers": {"Authorization": "Bearer secret"}, "timeout": 30.0}
    other = {"extra_headers": {"Authorization": "Bearer other"}, "timeout": 60.0}
    assert await ask(model_settings=settings) == await ask(model_settings=other)


async def test_prompts_that_differ_by_a_uuid_have_different_keys(ask: Ask) -> None:
    one = await ask(input="Look up 7b0c1a52-8f0e-4d7e-9e55-2f4f8a2c9d10.")
    other = await ask(input="Look up 0a8c8f9e-5b43-4a35-8f3f-6a1d9f6c7b21.")
    assert one != other


def conversation(call_id: str, run_id: str, said: str = "x") -> dict[str, Any]:
    return {
        "message_history": [
            ModelRequest(parts=[UserPromptPart("Hi")], run_id=run_id, conversation_id=run_id, metadata={"at": run_id}),
            ModelResponse(parts=[ToolCallPart("lookup", {"city": said}, tool_call_id=call_id)], run_id=run_id),
            ModelRequest(parts=[ToolReturnPart("lookup", "ok", tool_call_id=call_id, metadata={"at": run_id})]),
            ModelResponse(parts=[TextPart("Hello")], run_id=run_id),
        ]
    }


async def test_ids_that_the_sdk_makes_up_and_its_clocks_are_no_part_of_it_and_user_data_is(ask: Ask) -> None:
    plain = await ask(**conversation("pyd_ai_1111", "run-1"))
    assert plain == await ask(**conversation("pyd_ai_2222", "run-2"))
    assert plain != await ask(**conversation("call_of_the_provider", "run-2"))
    assert plain != await ask(**conversation("pyd_ai_1111", "run-1", said="y"))
    data = [await ask(**conversation("pyd_ai_1", "run-1", said=word)) for word in ("pyd_ai_7", "pyd_ai_8")]
    assert data[0] != data[1]


async def test_no_credential_is_stored(ask: Ask, run_folder: Callable[[str], Path]) -> None:
    await ask(model_settings={"extra_headers": {"X-Api-Key": "very-secret"}})
    files = [path for path in run_folder("ask-1").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"very-secret" in path.read_bytes()]
