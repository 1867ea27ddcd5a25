"""A turn's key is the same wherever and whenever it is asked, and another one for each change that the model would see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from flyteplugins.agents.conformance.models import Conversation, ModelServer, Reply
from flyteplugins.agents.core import UnserializableError, fingerprint
from flyteplugins.agents.langchain import run_agent, tool
from flyteplugins.agents.langchain._request import request_fields

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
            asking_options.pop("model"), asking_options.pop("instructions"), asking_options.pop("tools")
        name = f"ask-{count}"
        await run_task(asking, name=name)
        found = keys(run_folder(name))
        assert len(found) == 1
        return found[0]

    return ask_with


def chosen(tool_choice: Any, **options: Any) -> Any:
    """A graph whose only node asks with a tool choice."""
    from langgraph.graph import START, MessagesState, StateGraph

    async def node(state: MessagesState) -> dict[str, Any]:
        model = ChatOpenAI(model="gpt-4.1").bind_tools([tool(lookup)], tool_choice=tool_choice, **options)
        return {"messages": [await model.ainvoke([SystemMessage("Be brief."), *state["messages"]])]}

    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()


VARIANTS: dict[str, dict[str, Any]] = {
    "model": {"model": "openai:gpt-4.1-mini"},
    "temperature": {"temperature": 0.5},
    "another setting": {"top_p": 0.5},
    "a setting in model_kwargs": {"model_kwargs": {"user": "ada"}},
    "instructions": {"instructions": "Be long."},
    "tool description": {"tools": [tool(lookup, description="Find a city.")]},
    "tool schema": {"tools": [tool(lookup_in, name="lookup")]},
    "no tool": {"tools": []},
    "output type": {"output_type": City},
    "another output type": {"output_type": Town},
    "input": {"input": "How warm is it in Rome?"},
    "name of the user": {"input": [HumanMessage(QUESTION, name="ada")]},
    "tool choice": {"agent": chosen("none")},
    "another tool choice": {"agent": chosen("required")},
    "parallel tool calls": {"agent": chosen(None, parallel_tool_calls=False)},
}


async def test_each_part_of_a_request_makes_another_key(ask: Ask) -> None:
    found = {"none": await ask()}
    for name, options in VARIANTS.items():
        settings = {key: options[key] for key in ("temperature", "top_p", "model_kwargs") if key in options}
        if settings:
            options = {"model": ChatOpenAI(model="gpt-4.1", **settings)}
        found[name] = await ask(**options)
    assert len(set(found.values())) == len(found), found


async def test_what_says_nothing_about_the_request_makes_no_other_key(
    ask: Ask, model_env: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the port of a local server nor keys, headers, timeouts, retries, names, tags, callbacks or streaming."""
    monkeypatch.setenv("OPENAI_ORG_ID", "")
    first = await ask()
    assert await ask(name="another name") != ""  # a name is said by the model from the second turn on
    assert await ask(stream=True) == first
    plain = ChatOpenAI(
        model="gpt-4.1",
        api_key="sk-another",
        default_headers={"authorization": "secret"},
        timeout=3.0,
        max_retries=7,
        streaming=True,
        tags=["t"],
        metadata={"who": "me"},
        verbose=True,
    )
    assert await ask(model=plain) == first
    with ModelServer() as other:
        monkeypatch.setenv("OPENAI_BASE_URL", other.openai_base_url)
        other.script(None, answer, repeat_last=True)
        assert await ask() == first
        assert other.journal.count() == 1


async def test_a_string_a_model_and_a_pre_built_graph_that_ask_the_same_have_one_key(ask: Ask) -> None:
    tools = [tool(lookup)]
    by_name = await ask()
    assert await ask(model=ChatOpenAI(model="gpt-4.1")) == by_name
    assert await ask(agent=create_agent("openai:gpt-4.1", tools, system_prompt="Be brief.")) == by_name


def key_of(messages: list[Any], model: Any = None, **options: Any) -> str:
    model = model if model is not None else ChatOpenAI(model="gpt-4.1", api_key="sk")
    return fingerprint(request_fields(type(model), model, messages, None, options))[0]


def conversation(identity: str, *, call: str = "call_1", city: str = "Oslo") -> list[Any]:
    return [
        HumanMessage("Hi", id=f"{identity}-0001-4000-8000-000000000000"),
        AIMessage(
            [{"type": "text", "text": "Let me see.", "id": f"lc_{identity}"}],
            id=f"lc_run--{identity}-0",
            tool_calls=[{"name": "lookup", "args": {"id": city}, "id": call, "type": "tool_call"}],
        ),
        ToolMessage("cold", tool_call_id=call, id=f"{identity}-0002-4000-8000-000000000000"),
    ]


def test_ids_that_the_sdk_makes_up_are_named_by_the_order_in_which_they_appear() -> None:
    first = "11111111-0003-4000-8000-000000000000"
    other = "22222222-0003-4000-8000-000000000000"
    assert key_of(conversation("aaaaaaaa")) == key_of(conversation("bbbbbbbb"))
    assert key_of(conversation("aaaaaaaa", call=first)) == key_of(conversation("bbbbbbbb", call=other))
    assert key_of(conversation("aaaaaaaa")) != key_of(conversation("aaaaaaaa", call=first))


def test_what_only_looks_like_an_id_is_the_users_and_stays() -> None:
    first = "11111111-0003-4000-8000-000000000000"
    other = "22222222-0003-4000-8000-000000000000"
    assert key_of(conversation("aaaaaaaa", city=first)) != key_of(conversation("aaaaaaaa", city=other))
    assert key_of([HumanMessage(first)]) != key_of([HumanMessage(other)])


def test_which_result_answers_which_call_is_part_of_the_key() -> None:
    ids = ["11111111-0003-4000-8000-000000000000", "22222222-0003-4000-8000-000000000000"]

    def answered(order: list[str]) -> list[Any]:
        calls = [{"name": "lookup", "args": {}, "id": one, "type": "tool_call"} for one in ids]
        return [
            AIMessage("", tool_calls=calls),
            *(ToolMessage(text, tool_call_id=one) for text, one in zip("ab", order, strict=True)),
        ]

    assert key_of(answered(ids)) != key_of(answered(ids[::-1]))


def test_a_providers_own_ids_stay() -> None:
    assert key_of([AIMessage("Hi", id="msg_1")]) != key_of([AIMessage("Hi", id="msg_2")])
    one, other = (AIMessage("Hi", response_metadata={"id": identity}) for identity in ("resp_1", "resp_2"))
    assert key_of([one]) != key_of([other])


def test_names_that_the_sdk_makes_up_for_schemas_without_a_title_are_no_part_of_the_key() -> None:
    def asked(suffix: str) -> dict[str, Any]:
        function = {"name": f"response_format_{suffix}", "parameters": {"type": "object", "properties": {}}}
        return {"tools": [{"type": "function", "function": function}], "tool_choice": "any"}

    assert key_of([HumanMessage("Hi")], **asked("ab12")) == key_of([HumanMessage("Hi")], **asked("cd34"))
    assert key_of([HumanMessage("Hi")], **asked("ab12")) != key_of([HumanMessage("Hi")], **asked("mine"))


def test_parameters_of_a_tool_may_have_any_name() -> None:
    def asked(*names: str) -> dict[str, Any]:
        properties = {name: {"type": "string"} for name in names}
        return {"tools": [{"type": "function", "function": {"name": "t", "parameters": {"properties": properties}}}]}

    message = [HumanMessage("Hi")]
    assert key_of(message, **asked("timeout")) != key_of(message, **asked("headers")) != key_of(message, **asked())


def test_no_credential_is_in_a_request() -> None:
    secret = "sk-very-secret"
    for model in (
        ChatOpenAI(model="gpt-4.1", api_key=secret, default_headers={"x": secret}),
        ChatAnthropic(model="claude", api_key=secret, timeout=None, stop=None),
    ):
        fields = request_fields(type(model), model, [HumanMessage("Hi")], None, {"extra_headers": {"x": secret}})
        assert secret not in str(fields)


def test_a_model_that_is_no_json_is_told_by_its_class_and_a_request_that_is_none_is_an_error() -> None:
    fake = GenericFakeChatModel(messages=iter([AIMessage("Hi")]))
    assert key_of([HumanMessage("Hi")], fake) == key_of([HumanMessage("Hi")], GenericFakeChatModel(messages=iter([])))
    with pytest.raises(UnserializableError, match=r"options\.odd\.deep\[0\]"):
        key_of([HumanMessage("Hi")], odd={"deep": [object()]})


def test_where_a_model_is_is_part_of_the_key_and_the_port_of_a_local_server_is_not() -> None:
    def at(url: str) -> str:
        return key_of([HumanMessage("Hi")], ChatOpenAI(model="gpt-4.1", api_key="sk", base_url=url))

    assert at("http://127.0.0.1:1/v1") == at("http://127.0.0.1:2/v1")
    assert at("https://one.example/v1") != at("https://two.example/v1")
    assert at("https://me:secret@one.example/v1") == at("https://one.example/v1")

    assert at("https://one.example/v1") != key_of([HumanMessage("Hi")])
