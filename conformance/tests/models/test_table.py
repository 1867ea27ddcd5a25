"""The table of wires and behaviours: each cell is run by a real SDK over HTTP, against the strict server.

An SDK that is not installed skips its rows.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, Usage, call

# LangChain keeps its HTTP clients, and with them their event loop, for the whole process.
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Place(BaseModel):
    city: str
    count: int


@dataclass
class Run:
    """What a run of an agent gave.

    Args:
        text: The answer.
        history: What the SDK needs to continue the conversation.
        pieces: Number of text pieces that a streamed run gave.
        usage: Input and output tokens that the SDK reports.
        data: The structured answer.
    """

    text: str
    history: Any = None
    pieces: int = 0
    usage: tuple[int, int] = (0, 0)
    data: Any = None


class Tools:
    """Plain functions that an agent calls, and a record of the calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def all(self) -> list[Callable[..., Any]]:
        def get_weather(city: str) -> str:
            """Get the weather of a city."""
            self.called.append(f"get_weather {city}")
            return f"sunny in {city}"

        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self.called.append(f"add {a} {b}")
            return a + b

        def find_flights(city: str) -> str:
            """Find flights to a city."""
            self.called.append("find_flights")
            return f"a flight to {city}"

        def find_hotels(city: str, nights: int) -> str:
            """Find hotels in a city."""
            self.called.append("find_hotels")
            return f"{nights} nights in {city}"

        def get_budget(city: str) -> str:
            """Get what a stay costs."""
            self.called.append("get_budget")
            return "900 EUR"

        def book_trip(city: str) -> str:
            """Book it."""
            self.called.append("book_trip")
            return "booked"

        return [get_weather, add, find_flights, find_hotels, get_budget, book_trip]


def transfer_to_billing_agent() -> str:
    """Hand over to the billing agent."""
    return "The billing agent takes over."


class Sdk(ABC):
    """Runs an agent with one SDK on one wire."""

    packages: ClassVar[tuple[str, ...]]
    wire: str
    name: str

    def __init__(self, wire: str) -> None:
        self.wire = wire

    def __str__(self) -> str:
        return f"{self.wire}/{self.name}"

    @abstractmethod
    async def run(
        self,
        server: ModelServer,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        streamed: bool = False,
        history: Any = None,
        output: bool = False,
        think: bool = False,
        hand_off: bool = False,
    ) -> Run:
        """Run an agent on a prompt."""


class OpenAIAgents(Sdk):
    name = "openai-agents"
    packages = ("agents",)

    async def run(
        self,
        server: ModelServer,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        streamed: bool = False,
        history: Any = None,
        output: bool = False,
        think: bool = False,
        hand_off: bool = False,
    ) -> Run:
        agents: Any = importlib.import_module("agents")
        client: Any = importlib.import_module("openai").AsyncOpenAI(base_url=server.openai_base_url, api_key="k")
        kind = agents.OpenAIResponsesModel if self.wire == "openai-responses" else agents.OpenAIChatCompletionsModel
        model = kind("gpt-5", client)
        settings = agents.ModelSettings(include_usage=True)
        made: dict[str, Any] = {"tools": [agents.function_tool(t) for t in tools], "model": model}
        if hand_off:
            made["handoffs"] = [agents.Agent("billing agent", model=model)]
        if output:
            made["output_type"] = Place
        agent = agents.Agent("helper", instructions="Help.", model_settings=settings, **made)
        items = [*(history or []), {"role": "user", "content": prompt}]
        pieces = 0
        async with client:
            if streamed:
                result = agents.Runner.run_streamed(agent, items)
                async for event in result.stream_events():
                    if getattr(getattr(event, "data", None), "type", "") == "response.output_text.delta":
                        pieces += 1
            else:
                result = await agents.Runner.run(agent, items)
        usage = result.context_wrapper.usage
        data = result.final_output if output else None
        tokens = usage.input_tokens, usage.output_tokens
        return Run(str(result.final_output), result.to_input_list(), pieces, tokens, data)


class PydanticAI(Sdk):
    name = "pydantic-ai"

    def __init__(self, wire: str, package: str) -> None:
        super().__init__(wire)
        self.packages = ("pydantic_ai", package)  # type: ignore[misc]  # differs by wire

    def model(self, server: ModelServer) -> tuple[Any, dict[str, Any]]:
        def load(kind: str, name: str) -> Any:
            return getattr(importlib.import_module(f"pydantic_ai.{kind}"), name)

        thinking: dict[str, Any] = {}
        if self.wire.startswith("openai"):
            made = load("providers.openai", "OpenAIProvider")(base_url=server.openai_base_url, api_key="k")
            kind = "OpenAIResponsesModel" if self.wire == "openai-responses" else "OpenAIChatModel"
            thinking = {"openai_reasoning_summary": "auto", "openai_reasoning_effort": "low"}
            return load("models.openai", kind)("gpt-5", provider=made), thinking
        if self.wire == "anthropic-messages":
            made = load("providers.anthropic", "AnthropicProvider")(base_url=server.anthropic_base_url, api_key="k")
            thinking = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}}
            return load("models.anthropic", "AnthropicModel")("claude-sonnet-4-5", provider=made), thinking
        if self.wire == "gemini":
            made = load("providers.google", "GoogleProvider")(base_url=server.gemini_base_url, api_key="k")
            thinking = {"google_thinking_config": {"include_thoughts": True}}
            return load("models.google", "GoogleModel")("gemini-3-pro-preview", provider=made), thinking
        made = load("providers.mistral", "MistralProvider")(base_url=server.mistral_server_url, api_key="k")
        return load("models.mistral", "MistralModel")("mistral-large-latest", provider=made), thinking

    async def run(
        self,
        server: ModelServer,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        streamed: bool = False,
        history: Any = None,
        output: bool = False,
        think: bool = False,
        hand_off: bool = False,
    ) -> Run:
        pydantic_ai: Any = importlib.import_module("pydantic_ai")
        model, thinking = self.model(server)
        given = [*tools, transfer_to_billing_agent] if hand_off else list(tools)
        agent = pydantic_ai.Agent(model, tools=given, instructions="Help.", output_type=Place if output else str)
        settings = thinking if think else None
        pieces = 0

        async def count(_context: Any, events: Any) -> None:
            nonlocal pieces
            async for event in events:
                pieces += type(event).__name__ == "PartDeltaEvent"

        more = {"event_stream_handler": count} if streamed else {}
        result = await agent.run(prompt, message_history=history, model_settings=settings, **more)
        usage = result.usage
        tokens = usage.input_tokens, usage.output_tokens
        data = result.output if output else None
        return Run(str(result.output), result.all_messages(), pieces, tokens, data)


class LangChain(Sdk):
    name = "langchain"

    def __init__(self, wire: str, package: str) -> None:
        super().__init__(wire)
        self.packages = ("langchain", package)  # type: ignore[misc]  # differs by wire

    def model(self, server: ModelServer, think: bool) -> Any:
        package: Any = importlib.import_module(self.packages[1])
        if self.wire == "openai-chat":
            return package.ChatOpenAI(model="gpt-4.1", base_url=server.openai_base_url, api_key="k", stream_usage=True)
        if self.wire == "openai-responses":
            more: dict[str, Any] = {"reasoning": {"effort": "low", "summary": "auto"}} if think else {}
            return package.ChatOpenAI(
                model="gpt-5", base_url=server.openai_base_url, api_key="k", use_responses_api=True, **more
            )
        if self.wire == "anthropic-messages":
            more = {"thinking": {"type": "enabled", "budget_tokens": 1024}} if think else {}
            return package.ChatAnthropic(
                model="claude-sonnet-4-5", base_url=server.anthropic_base_url, api_key="k", max_tokens=4000, **more
            )
        if self.wire == "gemini":
            return package.ChatGoogleGenerativeAI(
                model="gemini-3-pro-preview", base_url=server.gemini_base_url, api_key="k", include_thoughts=think
            )
        return package.ChatMistralAI(model="mistral-large", base_url=server.mistral_server_url + "/v1", api_key="k")

    async def run(
        self,
        server: ModelServer,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        streamed: bool = False,
        history: Any = None,
        output: bool = False,
        think: bool = False,
        hand_off: bool = False,
    ) -> Run:
        create_agent: Any = importlib.import_module("langchain.agents").create_agent
        given = [*tools, transfer_to_billing_agent] if hand_off else list(tools)
        more = {"response_format": Place} if output else {}
        agent = create_agent(self.model(server, think), given, system_prompt="Help.", **more)
        asked = {"messages": [*(history or []), {"role": "user", "content": prompt}]}
        pieces = 0
        if streamed:
            state: Any = None
            async for mode, part in agent.astream(asked, stream_mode=["messages", "values"]):
                if mode == "values":
                    state = part
                else:
                    pieces += bool(part[0].text) and type(part[0]).__name__ == "AIMessageChunk"
        else:
            state = await agent.ainvoke(asked)
        messages = state["messages"]
        mine = [m for m in messages[len(history or []) :] if type(m).__name__ == "AIMessage"]
        counts = [m.usage_metadata or {} for m in mine]
        tokens = sum(c.get("input_tokens", 0) for c in counts), sum(c.get("output_tokens", 0) for c in counts)
        return Run(messages[-1].text, messages, pieces, tokens, state.get("structured_response"))


class GoogleAdk(Sdk):
    name = "google-adk"
    packages = ("google.adk",)

    async def run(
        self,
        server: ModelServer,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        streamed: bool = False,
        history: Any = None,
        output: bool = False,
        think: bool = False,
        hand_off: bool = False,
    ) -> Run:
        agents: Any = importlib.import_module("google.adk.agents")
        runners: Any = importlib.import_module("google.adk.runners")
        config: Any = importlib.import_module("google.adk.agents.run_config")
        types: Any = importlib.import_module("google.genai.types")
        made: dict[str, Any] = {"tools": list(tools), "instruction": "Help.", "model": "gemini-3-pro-preview"}
        if hand_off:
            made["sub_agents"] = [agents.LlmAgent(name="billing", model="gemini-3-pro-preview", description="Bills.")]
        if output:
            made["output_schema"] = Place
        if think:
            thoughts = types.ThinkingConfig(include_thoughts=True)
            made["generate_content_config"] = types.GenerateContentConfig(thinking_config=thoughts)
        if history is None:
            runner = runners.InMemoryRunner(agent=agents.LlmAgent(name="helper", **made), app_name="table")
            session = await runner.session_service.create_session(app_name="table", user_id="u")
        else:
            runner, session = history
        mode = config.StreamingMode.SSE if streamed else config.StreamingMode.NONE
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        text, pieces, tokens = "", 0, [0, 0]
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=message, run_config=config.RunConfig(streaming_mode=mode)
        ):
            said = "".join(p.text or "" for p in (event.content and event.content.parts) or () if not p.thought)
            if event.partial:
                pieces += bool(said)
                continue
            if event.usage_metadata:
                tokens[0] += event.usage_metadata.prompt_token_count
                tokens[1] += event.usage_metadata.total_token_count - event.usage_metadata.prompt_token_count
            if event.is_final_response():
                text = said
        data = Place.model_validate_json(text) if output else None
        return Run(text, (runner, session), pieces, (tokens[0], tokens[1]), data)


class MistralRun(Sdk):
    name = "mistralai"
    packages = ("mistralai.client",)

    async def run(
        self,
        server: ModelServer,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        streamed: bool = False,
        history: Any = None,
        output: bool = False,
        think: bool = False,
        hand_off: bool = False,
    ) -> Run:
        mistral: Any = importlib.import_module("mistralai.client").Mistral
        context: Any = importlib.import_module("mistralai.extra.run.context")
        client = mistral(api_key="k", server_url=server.mistral_server_url)
        model: dict[str, Any] = {"model": "mistral-large-latest"}
        if hand_off:
            billing = await client.beta.agents.create_async(model="mistral-small-latest", name="billing")
            triage = await client.beta.agents.create_async(
                model="mistral-large-latest", name="triage", handoffs=[billing.id]
            )
            model = {"agent_id": triage.id}
        conversation, before = history or (None, 0)
        made = context.RunContext(**model, conversation_id=conversation, output_format=Place if output else None)
        pieces, tokens = 0, (0, 0)
        async with client, made as run:
            for tool in tools:
                run.register_func(tool)
            result: Any = None
            if streamed:
                async for event in await client.beta.conversations.run_stream_async(run_ctx=run, inputs=prompt):
                    result = event
                    pieces += getattr(event, "event", "") == "message.output.delta"
            elif hand_off:
                # The SDK's runner rewrites a stored agent when it starts; the plain call leaves it alone.
                result = await client.beta.conversations.start_async(agent_id=triage.id, inputs=prompt)
                return Run(str(result.outputs[-1].content))
            else:
                result = await client.beta.conversations.run_async(run_ctx=run, inputs=prompt)
            entries = [e for e in server.journal.requests() if e.number > before and e.usage and e.status == 200]
            tokens = sum(e.usage.input for e in entries if e.usage), sum(e.usage.output for e in entries if e.usage)
            # An earlier message of the run may come with calls: the answer is the last one.
            messages = [e for e in result.output_entries if e.type == "message.output"]
            content = messages[-1].content
            text = content if isinstance(content, str) else "".join(c.text for c in content if c.type == "text")
            place = (run.conversation_id, server.journal.all[-1].number)
            return Run(text, place, pieces, tokens, result.output_as_model if output else None)


class Claude(Sdk):
    name = "claude-agent-sdk"
    packages = ("claude_agent_sdk",)

    async def run(
        self,
        server: ModelServer,
        prompt: str,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        streamed: bool = False,
        history: Any = None,
        output: bool = False,
        think: bool = False,
        hand_off: bool = False,
    ) -> Run:
        sdk: Any = importlib.import_module("claude_agent_sdk")
        home, session = history or (tempfile.mkdtemp(), None)
        given = [*tools, transfer_to_billing_agent] if hand_off else list(tools)
        made = [self.wrapped(sdk, t) for t in given]
        mcp = sdk.create_sdk_mcp_server("table", tools=made)
        options = sdk.ClaudeAgentOptions(
            mcp_servers={"table": {**mcp, "alwaysLoad": True}} if made else {},
            allowed_tools=[f"mcp__table__{t.__name__}" for t in given],
            tools=[],
            setting_sources=[],
            strict_mcp_config=True,
            env={**server.env(), "HOME": home, "CLAUDE_CONFIG_DIR": f"{home}/config"},
            cwd=home,
            model="claude-sonnet-4-5",
            resume=session,
            include_partial_messages=streamed,
            output_format={"type": "json_schema", "schema": Place.model_json_schema()} if output else None,
        )
        pieces, result = 0, None
        async for message in sdk.query(prompt=prompt, options=options):
            if isinstance(message, sdk.ResultMessage):
                result = message
            elif type(message).__name__ == "StreamEvent":
                pieces += message.event.get("delta", {}).get("type") == "text_delta"
        assert result is not None
        usage = result.usage or {}
        read = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
        tokens = usage.get("input_tokens", 0) + read, usage.get("output_tokens", 0)
        data = Place.model_validate(result.structured_output) if output else None
        return Run(str(result.result), (home, result.session_id), pieces, tokens, data)

    @staticmethod
    def wrapped(sdk: Any, function: Callable[..., Any]) -> Any:
        kinds = {n: {"str": str, "int": int}[k] for n, k in function.__annotations__.items() if n != "return"}

        async def run(arguments: dict[str, Any]) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": str(function(**arguments))}]}

        return sdk.tool(function.__name__, function.__doc__ or "", kinds)(run)


SDKS: tuple[Sdk, ...] = (
    OpenAIAgents("openai-responses"),
    OpenAIAgents("openai-chat"),
    PydanticAI("openai-responses", "openai"),
    PydanticAI("openai-chat", "openai"),
    PydanticAI("anthropic-messages", "anthropic"),
    PydanticAI("gemini", "google.genai"),
    PydanticAI("mistral-chat", "mistralai.client"),
    LangChain("openai-responses", "langchain_openai"),
    LangChain("openai-chat", "langchain_openai"),
    LangChain("anthropic-messages", "langchain_anthropic"),
    LangChain("gemini", "langchain_google_genai"),
    LangChain("mistral-chat", "langchain_mistralai"),
    GoogleAdk("gemini"),
    MistralRun("mistral-conversations"),
    Claude("anthropic-messages"),
)


@pytest.fixture(params=SDKS, ids=str)
def sdk(request: pytest.FixtureRequest, model_env: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sdk:
    found: Sdk = request.param
    for package in found.packages:
        pytest.importorskip(package, exc_type=ImportError)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return found


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_parallel_calls(model_env: ModelServer, sdk: Sdk, tools: Tools, streamed: bool) -> None:
    prompt = "What is the weather in Paris and Oslo?"
    run = await sdk.run(model_env, prompt, tools=tools.all(), streamed=streamed)
    assert run.text == "Here is the weather. Paris: sunny in Paris. Oslo: sunny in Oslo."
    assert sorted(tools.called) == ["get_weather Oslo", "get_weather Paris"]
    assert model_env.journal.per_turn(user=prompt) == {1: 1, 2: 1}
    assert all(e.streamed for e in model_env.journal) or not streamed  # some clients always stream
    assert {e.wire for e in model_env.journal} == {sdk.wire}


async def test_calls_one_after_the_other(model_env: ModelServer, sdk: Sdk, tools: Tools, streamed: bool) -> None:
    run = await sdk.run(model_env, "What is 2 + 3 + 4?", tools=tools.all(), streamed=streamed)
    assert run.text == "2 + 3 + 4 = 9"
    assert tools.called == ["add 2 3", "add 5 4"]
    assert model_env.journal.per_turn() == {1: 1, 2: 1, 3: 1}


async def test_a_five_step_question_with_two_parallel_calls(model_env: ModelServer, sdk: Sdk, tools: Tools) -> None:
    run = await sdk.run(model_env, "Plan a trip to Lisbon", tools=tools.all())
    assert run.text.startswith("Your trip to Lisbon is planned.")
    assert "3 nights in Lisbon" in run.text
    first, *pair, third, fourth = tools.called
    assert (first, sorted(pair), third, fourth) == (
        "get_weather Lisbon",
        ["find_flights", "find_hotels"],
        "get_budget",
        "book_trip",
    )
    assert model_env.journal.per_turn() == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


async def test_a_conversation_that_goes_on(model_env: ModelServer, sdk: Sdk, tools: Tools) -> None:
    first = await sdk.run(model_env, "My name is Ada", tools=tools.all())
    assert first.text == "Nice to meet you, Ada!"
    second = await sdk.run(model_env, "What is my name?", tools=tools.all(), history=first.history)
    assert second.text == "Your name is Ada."
    assert [e.turn for e in model_env.journal] == [1, 1]


async def test_a_long_answer_streams_in_pieces(model_env: ModelServer, sdk: Sdk) -> None:
    whole = await sdk.run(model_env, "Tell me a long story")
    pieces = await sdk.run(model_env, "Tell me a long story", streamed=True)
    assert pieces.text == whole.text
    assert len(whole.text) > 3000
    assert pieces.pieces > 50


async def test_a_structured_answer(model_env: ModelServer, sdk: Sdk) -> None:
    run = await sdk.run(model_env, "Describe Madrid", output=True)
    assert run.data == Place(city="Madrid", count=21)


async def test_a_hand_off(model_env: ModelServer, sdk: Sdk) -> None:
    run = await sdk.run(model_env, "I have a billing question", hand_off=True)
    assert run.text == "This is the billing agent. You asked: I have a billing question"


async def test_exact_usage(model_env: ModelServer, sdk: Sdk, streamed: bool) -> None:
    model_env.script("count", Reply("done", usage=Usage(input=1234, output=56, cached=234)))
    run = await sdk.run(model_env, "count", streamed=streamed)
    assert run.usage == (1234, 56)


async def test_thinking_goes_back_unchanged(model_env: ModelServer, sdk: Sdk, tools: Tools, streamed: bool) -> None:
    first = Reply(
        "Let me add.", (call("add", a=1, b=2), call("add", a=3, b=4)), thinking="They want two sums, I think."
    )
    model_env.script("two sums", first, Reply("3 and 7", thinking="Both are there."))
    run = await sdk.run(model_env, "two sums", tools=tools.all(), think=True, streamed=streamed)
    assert run.text == "3 and 7"
    assert sorted(tools.called) == ["add 1 2", "add 3 4"]


@pytest.mark.parametrize("status", [429, 503])
async def test_an_error_before_the_answer(model_env: ModelServer, sdk: Sdk, status: int) -> None:
    """Some SDKs try again by themselves, others raise; none takes the error for an answer."""
    model_env.fault(Fault.error(status, retry_after=0.01))
    text, raised = "", 0
    while not text and raised < 3:
        try:
            text = (await sdk.run(model_env, "My name is Ada")).text
        except Exception as error:  # each SDK has its own
            raised += 1
            if str(status) not in f"{error!r} {error}":
                raise
    assert text == "Nice to meet you, Ada!"
    assert [e.status for e in model_env.journal] == [status, 200]


async def test_a_stream_that_breaks_off(model_env: ModelServer, sdk: Sdk) -> None:
    model_env.fault(Fault.cut(after=3))
    text, whole = "", "Nice to meet you, Ada!"
    for _ in range(3):
        try:
            text = (await sdk.run(model_env, "My name is Ada", streamed=True)).text
        except Exception:  # noqa: BLE001  # each SDK has its own
            continue
        if text == whole:
            break
    assert text == whole
    assert [(e.fault, e.delivered) for e in model_env.journal] == [("cut", False), ("", True)]


async def test_concurrent_agents_do_not_mix(model_env: ModelServer, sdk: Sdk) -> None:
    agents = 3 if sdk.name == "claude-agent-sdk" else 8  # each of these is a process of 250 MB
    each = [Tools() for _ in range(agents)]
    prompts = [f"What is {n} + 1000 + {n}?" for n in range(agents)]
    runs = await asyncio.gather(
        *(
            sdk.run(model_env, p, tools=t.all(), streamed=n % 2 == 0)
            for n, (p, t) in enumerate(zip(prompts, each, strict=True))
        )
    )
    assert [r.text for r in runs] == [f"{n} + 1000 + {n} = {1000 + 2 * n}" for n in range(agents)]
    assert [t.called for t in each] == [[f"add {n} 1000", f"add {n + 1000} {n}"] for n in range(agents)]
    assert all(model_env.journal.per_turn(user=p) == {1: 1, 2: 1, 3: 1} for p in prompts)
