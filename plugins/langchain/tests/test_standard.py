"""LangChain's own standard tests, on a durable model and on our tools."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import flyte
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from langchain_tests.unit_tests import ChatModelUnitTests, ToolsUnitTests

from flyteplugins.agents.langchain import DurableChatModel, tool

env = flyte.TaskEnvironment("standard-tests")


class TestDurableOpenAI(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return type(DurableChatModel(ChatOpenAI(model="gpt-4.1", api_key="sk")))

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "gpt-4.1"}

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        return (
            {"OPENAI_API_KEY": "api_key", "OPENAI_ORG_ID": "org_id", "OPENAI_API_BASE": "api_base"},
            {},
            {"openai_api_key": "api_key", "openai_organization": "org_id", "openai_api_base": "api_base"},
        )

    @pytest.fixture(autouse=True)
    def key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk")


class TestDurableAnthropic(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return type(DurableChatModel(ChatAnthropic(model="claude", timeout=None, stop=None, api_key="sk")))

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "claude"}

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        return (
            {"ANTHROPIC_API_KEY": "api_key", "ANTHROPIC_API_URL": "https://url.example"},
            {"model": "claude"},
            {"anthropic_api_key": "api_key", "anthropic_api_url": "https://url.example"},
        )

    @pytest.fixture(autouse=True)
    def key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk")


@env.task
async def add(one: int, two: int = 2) -> int:
    """Add two numbers.

    Args:
        one: The one.
        two: The other.
    """
    return one + two


class TestTaskTool(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        made: Any = tool(add)
        return made.__wrapped__  # type: ignore[no-any-return]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"one": 1}


class TestFunctionTool(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        def shout(text: str) -> str:
            """Shout."""
            return text.upper()

        made: Any = tool(shout)
        return made.__wrapped__  # type: ignore[no-any-return]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"text": "hi"}


MODELS: dict[str, Callable[[], Any]] = {
    "openai": lambda: ChatOpenAI(model="gpt-4.1", api_key="sk", rate_limiter=InMemoryRateLimiter()),
    "anthropic": lambda: ChatAnthropic(model="claude-sonnet-4-5", timeout=None, stop=None, api_key="sk"),
}


@pytest.mark.parametrize("provider", list(MODELS))
def test_a_durable_model_is_the_model_in_everything_that_the_sdk_asks_it(provider: str) -> None:
    model: Any = MODELS[provider]()
    durable: Any = DurableChatModel(model)
    assert isinstance(durable, DurableChatModel)
    assert not isinstance(model, DurableChatModel)
    assert isinstance(durable, type(model))
    assert durable.profile == model.profile
    assert durable.profile
    assert durable.rate_limiter is model.rate_limiter
    assert durable._get_llm_string() == model._get_llm_string()
    assert durable._get_ls_params() == model._get_ls_params()
    assert durable.asdict() == model.asdict()
    made: Any = tool(add)
    assert durable.bind_tools([made]).kwargs == model.bind_tools([made]).kwargs
    schema = {"title": "City", "description": "A city.", "type": "object", "properties": {"name": {"type": "string"}}}
    structured = durable.with_structured_output(schema)
    assert structured.first.kwargs == model.with_structured_output(schema).first.kwargs
    assert isinstance(structured.first.bound, DurableChatModel)
    assert DurableChatModel(durable) is durable


@pytest.mark.parametrize(
    "clone",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), lambda model: model.model_copy()],
    ids=["copy", "deepcopy", "pickle", "model_copy"],
)
def test_a_copy_of_a_durable_model_is_durable(clone: Any) -> None:
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    durable = clone(DurableChatModel(FakeListChatModel(responses=["one"])))
    assert isinstance(durable, DurableChatModel)
    fake: Any = durable
    assert isinstance(fake, FakeListChatModel)
    assert fake.responses == ["one"]


def test_what_is_no_chat_model_is_refused_with_a_reason() -> None:
    with pytest.raises(TypeError, match="before bind_tools"):
        DurableChatModel(ChatOpenAI(model="gpt-4.1", api_key="sk").bind(temperature=1))  # type: ignore[arg-type]
