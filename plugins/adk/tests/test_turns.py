"""Turns of every model that runs inside: where it comes from, how it is asked, what it answers, and when it fails."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Callable
from typing import Any

import flyte
import flyte.errors
import pytest
from google.adk.agents import Agent, BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents._streaming_mode import StreamingMode
from google.adk.agents.langgraph_agent import LangGraphAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App
from google.adk.integrations.openai._openai_responses_llm import OpenAIResponsesLlm
from google.adk.models import BaseLlm, Claude, FallbackModel, Gemini
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import BuiltInPlanner, PlanReActPlanner
from google.adk.plugins import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, JoinNode, Workflow
from google.genai import types
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, create_model

from flyteplugins.agents.adk import ModelResponseError, run_agent, run_agent_sync
from flyteplugins.agents.adk._request import content_values, model_identity, request_fields
from flyteplugins.agents.adk._telemetry import REPLAYED
from flyteplugins.agents.conformance.models import Fault, Match, ModelServer, Reply, call
from flyteplugins.agents.core import AgentError, AgentResult, Budget, Event, HandOff, TextDelta, TurnFinished

RunTask = Callable[..., Any]
GEMINI = "gemini-3.5-flash"

pytestmark = pytest.mark.usefixtures("model_env")

env = flyte.TaskEnvironment("adk_turns")


class Own(BaseLlm):
    """A model of the caller's own, which counts in its own attributes."""

    model: str = "own"
    asked: int = 0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked += 1
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=f"own {self.asked}")]))


class Pairing(Claude):
    """A model whose provider pairs calls with results by id, and that gives its calls no ids: the SDK makes them up."""

    asked: int = 0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked += 1
        last = (llm_request.contents[-1].parts or [types.Part()])[0]
        part = types.Part(text="done")
        if last.function_response is None:
            part = types.Part(function_call=types.FunctionCall(name="look", args={"where": "here"}))
        elif last.function_response.response == {"result": "saw here"}:
            assert (last.function_response.id or "").startswith("adk-")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def look(where: str) -> str:
    """Look somewhere."""
    return f"saw {where}"


async def ask(agent: Any, message: str = "go", **options: Any) -> Any:
    return await run_agent(message, agent=agent, **options)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("again", [False, True], ids=["then whole", "then streamed"])
async def test_a_turn_is_the_same_leaf_streamed_or_not(
    run_task: RunTask, run_name: str, model_server: ModelServer, streaming: bool, again: bool
) -> None:
    """The first run asks, and the second is answered from its record, in pieces where somebody listens."""
    model_server.script("story", Reply("Once upon a time.", pieces=4))
    how, told = [streaming], list[Event]()

    @env.task
    async def chat(message: str) -> str:
        return await run_agent(message, model=GEMINI, streaming=how[0], on_event=told.append)

    assert await run_task(chat, "a story", name=run_name) == "Once upon a time."
    fresh = [event.text for event in told if isinstance(event, TextDelta)]
    assert ("".join(fresh) == "Once upon a time.") if streaming else not fresh
    told.clear()
    how[0] = again
    assert await run_task(chat, "a story", name=run_name) == "Once upon a time."
    assert model_server.journal.count() == 1
    assert "".join(event.text for event in told if isinstance(event, TextDelta)) == (
        "Once upon a time." if again else ""
    )
    assert all(event.replayed for event in told if isinstance(event, (TextDelta, TurnFinished)))


async def test_a_child_that_was_reached_by_transfer_is_durable(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """A pre-built tree: the root gives the conversation to a child, whose turns are recorded as the root's are."""
    model_server.script(
        "bill", Reply(calls=(call("transfer_to_agent", agent_name="billing"),)), "I am billing.", model=GEMINI
    )
    told: list[Event] = []
    billing = LlmAgent(name="billing", model=GEMINI, instruction="You bill.", description="Bills.")
    root = LlmAgent(name="root", model=GEMINI, instruction="You route.", sub_agents=[billing])

    @env.task
    async def chat(message: str) -> str:
        return str(await ask(root, message, on_event=told.append))

    assert await run_task(chat, "a bill", name=run_name) == "I am billing."
    assert await run_task(chat, "a bill", name=run_name) == "I am billing."
    assert model_server.journal.count() == 2
    turns = [event.agent for event in told if isinstance(event, TurnFinished)]
    assert turns == ["root", "billing"] * 2
    handed = [(event.source, event.target) for event in told if isinstance(event, HandOff)]
    assert handed == [("root", "billing")] * 2


@pytest.mark.parametrize("side", ["left", "right"])
async def test_agents_in_sequence_in_parallel_and_in_a_loop_are_durable(
    run_task: RunTask, run_name: str, model_server: ModelServer, side: str
) -> None:
    """So is an agent that is used as a tool, whose tool call is an event and no leaf, whichever side is the slower one."""
    model_server.fault(Fault.slow(0.5), match=Match(system=f"You are {side}"))
    model_server.script("facts", Reply(calls=(call("expert", request="which"),)), "facts given", system="You start")
    model_server.script("which", "the expert says", system="You know")
    model_server.script(None, "left says", system="You are left", anywhere=True, repeat_last=True)
    model_server.script(None, "right says", system="You are right", anywhere=True, repeat_last=True)
    model_server.script(None, Reply(calls=(call("exit_loop"),)), system="You end", anywhere=True, repeat_last=True)

    def agent(name: str, instruction: str, **options: Any) -> LlmAgent:
        return LlmAgent(name=name, model=GEMINI, instruction=instruction, **options)

    expert = agent("expert", "You know")
    root = SequentialAgent(
        name="all",
        sub_agents=[
            agent("first", "You start", tools=[AgentTool(expert)]),
            ParallelAgent(name="both", sub_agents=[agent("left", "You are left"), agent("right", "You are right")]),
            LoopAgent(name="loop", max_iterations=3, sub_agents=[agent("last", "You end", tools=[exit_loop])]),
        ],
    )

    @env.task
    async def chat(message: str) -> list[str]:
        result: AgentResult[Any] = await ask(root, message, full_result=True)
        return [turn.agent for turn in result.turns] + [one.name for one in result.tool_calls]

    fresh = await run_task(chat, "facts", name=run_name)
    sides = ["right", "left"] if side == "left" else ["left", "right"]
    assert fresh == ["first", "expert", "first", *sides, "last", "expert", "exit_loop"]
    asked = model_server.journal.count()
    assert await run_task(chat, "facts", name=run_name) == fresh
    assert model_server.journal.count() == asked == 6


async def test_an_app_with_plugins_runs_and_is_not_changed(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """The caller's plugins see what they would see, on a resume as well; neither app nor agent is changed."""
    model_server.script("hello", "hi")

    class Seen(BasePlugin):
        def __init__(self) -> None:
            super().__init__(name="seen")
            self.seen: list[str] = []

        async def after_model_callback(self, **kwargs: Any) -> None:
            self.seen.append(kwargs["llm_response"].content.parts[0].text)

    plugin = Seen()
    agent = Agent(name="one", model=GEMINI)
    app = App(name="shop", root_agent=agent, plugins=[plugin])
    before = (app.model_copy(deep=False), agent.model_copy(deep=False))

    @env.task
    async def chat(message: str) -> str:
        return str(await ask(app, message))

    assert [await run_task(chat, "hello", name=run_name) for _ in range(2)] == ["hi", "hi"]
    assert plugin.seen == ["hi", "hi"]
    assert model_server.journal.count() == 1
    assert (app.plugins, app.root_agent) == (before[0].plugins, before[0].root_agent)
    assert agent == before[1]


class Cat(BaseModel):
    name: str


class Dog(BaseModel):
    breed: str


async def test_two_agents_with_other_output_types_never_swap_answers(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """The class that is given as `output_schema` is in the key with its fields: one fails, and the retry swaps nothing."""

    def structured(conversation: Any) -> Reply:
        schema = str(conversation.output_schema or conversation.body)
        return Reply(structured={"name": "Tom"} if "name" in schema and "breed" not in schema else {"breed": "Pug"})

    model_server.script("pet", structured)
    model_server.fault(Fault.error(503, times=1), user="a pet")

    @env.task(retries=2)
    async def chat(message: str) -> str:
        cat, dog = await asyncio.gather(
            run_agent(message, model=GEMINI, output_type=Cat), run_agent(message, model=GEMINI, output_type=Dog)
        )
        return f"{cat!r} {dog!r}"

    assert await run_task(chat, "a pet", name=run_name) == "Cat(name='Tom') Dog(breed='Pug')"
    assert model_server.journal.count() == 3


@pytest.mark.parametrize("tools", [(), (look,)], ids=["alone", "with tools"])
async def test_the_answer_is_an_instance_of_the_output_type(
    run_task: RunTask, run_name: str, model_server: ModelServer, tools: tuple[Any, ...]
) -> None:
    """Beside tools too, where the SDK has the model call a tool of its own with the answer."""
    answer = {"name": "Tom"}
    model_server.script(
        "pet", Reply(calls=(call("set_model_response", **answer),)) if tools else Reply(structured=answer)
    )

    @env.task
    async def chat(message: str) -> str:
        return repr(await run_agent(message, model=GEMINI, output_type=Cat, tools=tools))

    assert [await run_task(chat, "a pet", name=run_name) for _ in range(2)] == ["Cat(name='Tom')"] * 2
    assert model_server.journal.count() == 1


async def test_ids_that_the_sdk_makes_up_are_no_part_of_a_key(run_task: RunTask, run_name: str) -> None:
    """A model that pairs by id is sent `adk-<uuid>`s, other ones in each attempt."""
    models: list[Pairing] = []

    @env.task
    async def chat(message: str) -> str:
        models.append(Pairing(model="claude-sonnet-4-5"))
        return str(await ask(LlmAgent(name="one", model=models[-1], tools=[look]), message))

    assert [await run_task(chat, "go", name=run_name) for _ in range(2)] == ["done", "done"]
    assert [model.asked for model in models] == [2, 0]


def test_only_the_sdks_own_ids_are_renamed() -> None:
    """By order of first appearance; what somebody said stays, whatever it looks like."""
    made_up = "adk-0f0f0f0f-1111-2222-3333-444444444444"

    def contents(call_id: str, text: str) -> list[types.Content]:
        calls = types.Part(function_call=types.FunctionCall(id=call_id, name="f", args={"id": text}))
        return [types.Content(role="model", parts=[calls, types.Part(text=text)])]

    other = made_up.replace("0f", "1e")
    assert content_values(contents(made_up, "a")) == content_values(contents(other, "a"))
    assert content_values(contents("given", "a")) != content_values(contents("other", "a"))
    said = content_values(contents(made_up, "about " + made_up))
    assert made_up in str(said)


def test_a_class_as_output_schema_is_in_the_key_with_its_fields() -> None:
    """Two classes may have one name."""

    def key(**fields: Any) -> object:
        config = types.GenerateContentConfig(response_schema=create_model("Same", **fields))
        return request_fields(Own(), None, LlmRequest(config=config))["output_type"]

    assert key(name=(str, ...)) == key(name=(str, ...))
    assert key(name=(str, ...)) != key(breed=(str, ...))


def test_no_credential_is_part_of_a_models_identity() -> None:
    """Its place is, without the port of a server on this machine."""
    first = Gemini(
        model=GEMINI, base_url="http://user:secret@localhost:123/gemini", client_kwargs={"api_key": "secret"}
    )
    second = Gemini(model=GEMINI, base_url="http://localhost:456/gemini")
    assert model_identity(first) == model_identity(second)
    assert "secret" not in str(model_identity(first))
    assert model_identity(second) != model_identity(Gemini(model=GEMINI, base_url="http://elsewhere/gemini"))


async def test_a_model_of_the_callers_own_stays_what_it_is(run_task: RunTask, run_name: str) -> None:
    """It is asked once, although it changes as it is asked; its class and capabilities are its own."""
    model = Own()
    seen: list[tuple[type, bool]] = []

    async def note(callback_context: Any, llm_request: Any) -> None:
        found = callback_context._invocation_context.agent.canonical_model
        seen.append((type(found), found is model))

    agent = LlmAgent(name="one", model=model, before_model_callback=note)

    @env.task
    async def chat(message: str) -> str:
        return str(await ask(agent, message))

    assert [await run_task(chat, "go", name=run_name) for _ in range(2)] == ["own 1", "own 1"]
    assert seen == [(Own, True)] * 2
    assert model.asked == 1


async def test_each_model_of_a_fallback_has_a_turn_of_its_own(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """The failure that was passed over replays without a call."""
    model_server.script("hello", "from the second")
    model_server.fault(Fault.error(503, times=None), model="gemini-3-pro-preview")
    agent = LlmAgent(name="one", model=FallbackModel(models=["gemini-3-pro-preview", GEMINI]))

    @env.task
    async def chat(message: str) -> str:
        return str(await ask(agent, message))

    assert [await run_task(chat, "hello", name=run_name) for _ in range(2)] == ["from the second"] * 2
    assert model_server.journal.count(model="gemini-3-pro-preview") == 1
    assert model_server.journal.count(model=GEMINI) == 1


def lite_llm() -> BaseLlm:
    from google.adk.models.lite_llm import LiteLlm

    return LiteLlm(model="openai/gpt-4.1")


OTHERS: dict[str, Callable[[], str | BaseLlm]] = {
    "Anthropic": lambda: AnthropicLlm(model="claude-sonnet-4-5"),
    "OpenAI Responses": lambda: OpenAIResponsesLlm(model="gpt-4.1"),
    "OpenAI Chat by name": lambda: "gpt-4.1",
    "LiteLLM": lite_llm,
}
needs_litellm = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="LiteLLM is not among the pinned packages: it moves another pin"
)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", [pytest.param(one, marks=needs_litellm if one == "LiteLLM" else ()) for one in OTHERS])
async def test_models_of_other_providers_are_durable(
    run_task: RunTask, run_name: str, monkeypatch: pytest.MonkeyPatch, name: str, streaming: bool
) -> None:
    """The SDK's classes for them, with a tool: one turn fails, and the next attempt asks that one only.

    Another run of the same name asks nothing, and tells of the same text; each time with another object of the class. The SDK
    says `null` to OpenAI's chat service for what it has nothing to say about, which a strict server refuses.
    """
    with ModelServer(strict="Chat" not in name and name != "LiteLLM") as server:
        for variable, value in server.env().items():
            monkeypatch.setenv(variable, value)
        server.script("hello", Reply(calls=(call("look", where="here"),)), Reply("hi there, you", pieces=3))
        server.fault(Fault.error(500, times=None), user="hello", turn=2)
        told: list[Event] = []

        @env.task
        async def chat(message: str) -> str:
            options: dict[str, Any] = {"model": OTHERS[name](), "tools": [look]}
            return str(await run_agent(message, streaming=streaming, on_event=told.append, **options))

        with pytest.raises(flyte.errors.RuntimeUserError):
            await run_task(chat, "hello", name=run_name)
        failed = server.journal.count(turn=2)
        server.clear()
        server.script("hello", "not asked again", Reply("hi there, you", pieces=3))
        pieces: list[str] = []
        for _ in range(2):
            told.clear()
            assert await run_task(chat, "hello", name=run_name) == "hi there, you"
            pieces.append("".join(event.text for event in told if isinstance(event, TextDelta)))
        assert failed
        assert server.journal.per_turn(user="hello") == {2: 1}
        assert pieces == ["hi there, you" if streaming else ""] * 2


async def test_a_planner_that_writes_its_plan_into_the_answer_leaves_it_out_of_it(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    plan = "/*PLANNING*/ look first /*ACTION*/"
    model_server.script(
        "riddle", Reply(plan, calls=(call("look", where="here"),)), "/*REASONING*/ saw it /*FINAL_ANSWER*/ 42"
    )

    @env.task
    async def chat(message: str) -> str:
        return (await run_agent(message, model=GEMINI, planner=PlanReActPlanner(), tools=[look])).strip()

    assert [await run_task(chat, "a riddle", name=run_name) for _ in range(2)] == ["42", "42"]
    assert model_server.journal.count() == 2


async def test_a_workflow_is_durable(run_task: RunTask, run_name: str, model_server: ModelServer) -> None:
    """Agents as nodes, one after the other and side by side, and a tool as a node; one turn fails on its way.

    The functions of its own nodes are the caller's program, which runs again.
    """
    model_server.script(None, "a draft", system="You write", anywhere=True, repeat_last=True)
    model_server.script(None, "praise", system="You praise", anywhere=True, repeat_last=True)
    model_server.script(None, "blame", system="You blame", anywhere=True, repeat_last=True)
    model_server.fault(Fault.error(503, times=1), model="gemini-2.5-pro")
    ran: list[str] = []

    def keep(what: str) -> dict[str, str]:
        """Keep something."""
        ran.append(f"keep {what}")
        return {"kept": what}

    def arrange(node_input: Any) -> dict[str, str]:
        ran.append("arrange")
        return {"what": " and ".join(sorted(str(one) for one in node_input.values()))}

    writer = LlmAgent(name="writer", model=GEMINI, instruction="You write")
    good = LlmAgent(name="good", model=GEMINI, instruction="You praise")
    bad = LlmAgent(name="bad", model="gemini-2.5-pro", instruction="You blame")
    joined = JoinNode(name="both")
    flow = Workflow(name="flow", edges=[(START, writer, (good, bad), joined, arrange, FunctionTool(keep))])

    @env.task(retries=1)
    async def chat(message: str) -> str:
        result: AgentResult[Any] = await ask(flow, message, full_result=True)
        return f"{result.text} {sorted(turn.agent for turn in result.turns)}"

    for _ in range(2):
        answer = await run_task(chat, "go", name=run_name)
        assert "blame and praise" in answer
        assert "['bad', 'good', 'writer']" in answer
    assert model_server.journal.count() == 4
    assert ran.count("keep blame and praise") == 1
    assert ran.count("arrange") == 2


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_the_sdks_spans_of_what_was_replayed_say_so(
    run_task: RunTask, run_name: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    """Turns and tools."""
    model_server.script("see", Reply(calls=(call("look", where="here"),)), "seen")
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("google.adk.telemetry.tracing.tracer", provider.get_tracer("adk"))

    @env.task
    async def chat(message: str) -> str:
        return await run_agent(message, model=GEMINI, tools=[look], streaming=streaming)

    for replayed in (None, True):
        exporter.clear()
        assert await run_task(chat, "see", name=run_name) == "seen"
        spans = [
            one for one in exporter.get_finished_spans() if one.name.startswith(("generate_content", "execute_tool"))
        ]
        assert [(one.attributes or {}).get(REPLAYED) for one in spans] == [replayed] * 3


async def test_thoughts_stay_out_of_the_answer(run_task: RunTask, run_name: str, model_server: ModelServer) -> None:
    """With a planner that makes the model think, streamed, so that thoughts arrive in pieces as well."""
    model_server.script("riddle", Reply("42", thinking="Let me think.", pieces=2))
    told: list[Event] = []
    planner = BuiltInPlanner(thinking_config=types.ThinkingConfig(include_thoughts=True))

    @env.task
    async def chat(message: str) -> str:
        result = await run_agent(message, model=GEMINI, planner=planner, full_result=True, on_event=told.append)
        thought = [part for event in result.native for part in event.content.parts if part.thought]
        assert thought
        return result.output

    assert await run_task(chat, "a riddle", name=run_name) == "42"
    assert "".join(event.text for event in told if isinstance(event, TextDelta)) == "42"


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_a_response_without_an_answer_is_an_error_and_not_recorded(
    run_task: RunTask, run_name: str, model_server: ModelServer, streaming: bool
) -> None:
    """A refusal fails the run for good with what the model said; the next run asks again."""
    model_server.script("secret", Reply("", stop="refusal"))

    @env.task(retries=2)
    async def chat(message: str) -> str:
        return await run_agent(message, model=GEMINI, streaming=streaming)

    for attempt in (1, 2):
        with pytest.raises(flyte.errors.RuntimeUserError, match="The model gave no answer"):
            await run_task(chat, "the secret", name=run_name)
        assert model_server.journal.count() == attempt


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (
            LlmResponse(content=types.Content(parts=[]), finish_reason=types.FinishReason.STOP),
            "MODEL_RETURNED_NO_CONTENT",
        ),
        (LlmResponse(content=types.Content(parts=[types.Part(text="Well, ")]), error_code="OTHER"), "OTHER"),
    ],
    ids=["empty", "cut off"],
)
async def test_what_is_no_answer_is_asked_again(run_task: RunTask, run_name: str, said: LlmResponse, code: str) -> None:
    """It is not on record, and never `""` or what came of it."""
    asked: list[str] = []

    class Silent(BaseLlm):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            asked.append(code)
            yield said.model_copy()

    @env.task
    async def chat(message: str) -> str:
        with pytest.raises(ModelResponseError, match=code) as raised:
            await ask(LlmAgent(name="one", model=Silent(model="silent")), message)
        return raised.value.code

    assert [await run_task(chat, "go", name=run_name) for _ in range(2)] == [code, code]
    assert len(asked) == 2


@pytest.mark.parametrize("model", ["no-such-model", "no/such/model", ""])
async def test_a_model_that_does_not_resolve_is_an_error(model: str) -> None:
    with pytest.raises((AgentError, ValueError), match=r"resolves to no model|give a model's name"):
        await run_agent("hello", model=model)


async def test_one_failing_turn_makes_one_call_and_the_next_attempt_asks_again(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    model_server.script("hello", "hi")
    model_server.fault(Fault.error(500, times=1), user="hello")

    @env.task(retries=1)
    async def chat(message: str) -> str:
        return await run_agent(message, model=GEMINI)

    assert await run_task(chat, "hello", name=run_name) == "hi"
    assert model_server.journal.count() == 2


@pytest.mark.parametrize(
    "config", [RunConfig(streaming_mode=StreamingMode.BIDI), RunConfig(support_cfc=True)], ids=["bidi", "cfc"]
)
async def test_the_live_mode_is_a_clear_error(config: RunConfig) -> None:
    with pytest.raises(NotImplementedError, match="live mode"):
        await run_agent("hello", model=GEMINI, run_config=config)


async def test_an_agent_whose_turns_nobody_reaches_is_refused(run_task: RunTask, run_name: str) -> None:
    class Graph:
        checkpointer = None

    graph: Any = Graph()
    agent = LangGraphAgent.model_construct(name="graph", graph=graph, sub_agents=[])

    @env.task
    async def chat(message: str) -> str:
        return str(await ask(agent, message))

    with pytest.raises(flyte.errors.RuntimeUserError, match="LangGraphAgent, which asks its model in another place"):
        await run_task(chat, "hello", name=run_name)


async def test_an_agent_excludes_what_it_is_built_from() -> None:
    agent = LlmAgent(name="one", model=GEMINI)
    with pytest.raises(ValueError, match="together with instructions, model"):
        await run_agent("hello", agent=agent, model=GEMINI, instructions="Be kind.")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="give an agent, a workflow or an App"):
        await run_agent("hello", agent="one")
    with pytest.raises(TypeError, match="no keyword temperature"):
        await run_agent("hello", model=GEMINI, temperature=1)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="name: "):
        await run_agent("hello", model=GEMINI, name="two words")
    with pytest.raises(TypeError, match="input is 3; give what the user says"):
        await run_agent(3, model=GEMINI)  # type: ignore[call-overload]


async def test_tools_are_added_to_a_copy(run_task: RunTask, run_name: str, model_server: ModelServer) -> None:
    model_server.script("see", Reply(calls=(call("look", where="here"),)), "seen")
    agent = LlmAgent(name="one", model=GEMINI)

    @env.task
    async def chat(message: str) -> str:
        return str(await ask(agent, message, tools=[look]))

    assert await run_task(chat, "see", name=run_name) == "seen"
    assert agent.tools == []
    with pytest.raises(ValueError, match="which calls no tools itself"):
        await ask(SequentialAgent(name="two", sub_agents=[LlmAgent(name="other")]), tools=[look])


async def test_outside_of_a_task_nothing_is_recorded(model_server: ModelServer) -> None:
    model_server.script("hello", "hi", repeat_last=True)
    assert await run_agent("hello", model=GEMINI) == "hi"
    assert await asyncio.to_thread(run_agent_sync, "hello", model=GEMINI) == "hi"
    assert model_server.journal.count() == 2


async def test_without_durability_turns_are_asked_each_time(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    model_server.script("hello", "hi")

    @env.task
    async def chat(message: str) -> str:
        return await run_agent(message, model=GEMINI, durable=False)

    assert [await run_task(chat, "hello", name=run_name) for _ in range(2)] == ["hi", "hi"]
    assert model_server.journal.count() == 2


async def test_a_custom_agents_events_are_the_answer(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """An agent of the caller's class, which runs others in its own order."""
    model_server.script("hello", "hi")

    class Twice(BaseAgent):
        async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Any, None]:
            for agent in self.sub_agents:
                async for event in agent.run_async(ctx):
                    yield event

    root = Twice(name="twice", sub_agents=[LlmAgent(name="one", model=GEMINI)])

    @env.task
    async def chat(message: str) -> str:
        return str(await ask(root, message))

    assert [await run_task(chat, "hello", name=run_name) for _ in range(2)] == ["hi", "hi"]
    assert model_server.journal.count() == 1


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"budget": Budget(turns=1)}, r"(?i)turns"),
        ({"max_llm_calls": 1}, r"LlmCallsLimitExceededError"),
    ],
    ids=["budget", "max_llm_calls"],
)
async def test_a_run_over_its_limit_fails_for_good(
    run_task: RunTask, run_name: str, model_server: ModelServer, limit: dict[str, Any], said: str
) -> None:
    """No retry would change it, so there is none."""
    model_server.script("look", Reply(calls=(call("look", where="here"),)), "seen")
    attempts: list[int] = []

    @env.task(retries=2)
    async def chat(message: str) -> str:
        attempts.append(1)
        return str(await run_agent(message, model=GEMINI, tools=[look], **limit))

    with pytest.raises(flyte.errors.RuntimeUserError, match=said):
        await run_task(chat, "look here", name=run_name)
    assert len(attempts) == 1
    assert model_server.journal.count() == 1
