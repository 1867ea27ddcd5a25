"""Turns of every chat model that runs inside: where it comes from, how it is asked, what it answers, and when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import flyte
import flyte.errors
import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain.chat_models import init_chat_model
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel
from typing_extensions import TypedDict

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, Usage, call
from flyteplugins.agents.core import AgentResult, TextDelta
from flyteplugins.agents.langchain import DurableChatModel, run_agent, run_agent_sync

RunTask = Callable[..., Any]
Folder = Callable[..., Path]

env = flyte.TaskEnvironment("turns")


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


class Own(BaseChatModel):
    """A model of the caller's own, which counts in its own attributes."""

    answer: str = "own"
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "own"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"answer": self.answer}

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.asked += 1
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"{self.answer} {self.asked}"))])


def one_node(node: Any, state: Any = MessagesState, **options: Any) -> StateGraph[Any]:
    return StateGraph(state).add_node("node", node, **options).add_edge(START, "node")


def said(*models: Any, how: str) -> StateGraph[Any]:
    """A graph whose node asks each model in a way, and joins what they say."""

    async def node(state: MessagesState) -> dict[str, Any]:
        texts = []
        for model in models:
            if how == "ainvoke":
                texts.append((await model.ainvoke(state["messages"])).text)
            elif how == "astream":
                texts.append("".join([str(chunk.text) async for chunk in model.astream(state["messages"])]))
            elif how == "events v2":
                events = [event async for event in model.astream_events(state["messages"], version="v2")]
                texts.append(events[-1]["data"]["output"].text)
            elif how == "events v3":
                stream = await model.astream_events(state["messages"], version="v3")
                texts.append((await stream.output).text)
            elif how == "invoke on the loop":
                texts.append(model.invoke(state["messages"]).text)
        return {"messages": [AIMessage(" ".join(map(str, texts)))]}

    def sync_node(state: MessagesState) -> dict[str, Any]:
        texts = []
        for model in models:
            if how == "invoke":
                texts.append(str(model.invoke(state["messages"]).text))
            elif how == "stream":
                texts.append("".join(str(chunk.text) for chunk in model.stream(state["messages"])))
            else:
                texts += [str(one.text) for one in model.batch([state["messages"], state["messages"]])]
        return {"messages": [AIMessage(" ".join(texts))]}

    return one_node(sync_node if how in ("invoke", "stream", "batch") else node)


@pytest.mark.parametrize(
    "how", ["ainvoke", "astream", "events v2", "events v3", "invoke on the loop", "invoke", "stream", "batch"]
)
async def test_a_model_is_asked_once_in_whatever_way_a_node_asks_it(
    model_env: ModelServer, run_task: RunTask, how: str
) -> None:
    model_env.script("Hi", Reply("Hello there.", pieces=3), repeat_last=True)
    bound = ChatOpenAI(model="gpt-4.1").bind(temperature=0.5)
    configurable = init_chat_model("openai:gpt-5", configurable_fields=("temperature",))
    third = bound if how == "events v3" else configurable  # a configurable model of the SDK's has no such events
    graph = said(ChatOpenAI(model="gpt-4.1"), bound, third, how=how)
    results: list[AgentResult[str]] = []

    @env.task
    async def asking() -> str:
        results.append(await run_agent("Hi", agent=graph, full_result=True))
        return results[-1].text

    first = await run_task(asking)
    assert first == " ".join(["Hello there."] * (6 if how == "batch" else 3))
    requests = model_env.journal.count()
    assert requests == len(results[0].turns) == (6 if how == "batch" else 3)
    assert await run_task(asking) == first
    assert model_env.journal.count() == requests
    assert results[1].usage.fresh.requests == 0
    assert all(turn.replayed for turn in results[1].turns)


async def test_a_record_is_read_streamed_or_not_however_it_was_made(model_env: ModelServer, run_task: RunTask) -> None:
    """Tool calls of a stream come in pieces; the next request is the same in both cases, so nothing is asked again."""
    model_env.script("Hi", Reply("Let me see.", calls=(call("look", city="Oslo"),), pieces=4), Reply("Cold.", pieces=2))

    def look(city: str) -> str:
        """Look a city up."""
        return f"{city} is cold"

    state = {"stream": False}

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi", tools=[look], model="openai:gpt-4.1", stream=state["stream"]))

    for first, second in ((False, True), (True, False)):
        model_env.journal.clear()
        for stream in (first, second):
            state["stream"] = stream
            assert await run_task(asking, name=f"{first}") == "Cold."
        assert model_env.journal.count() == 2
        assert [entry.streamed for entry in model_env.journal.requests()] == [first, first]


async def test_on_event_gets_the_text_as_it_arrives_and_again_marked_on_a_replay(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Hi", Reply("one two three", thinking="hidden thoughts", pieces=3), repeat_last=True)
    seen: list[TextDelta] = []

    @env.task
    async def asking() -> str:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        model = ChatAnthropic(model="claude", timeout=None, stop=None, max_tokens=4096, thinking=thinking)
        return str(await run_agent("Hi", model=model, stream=True, on_event=keep))

    def keep(event: Any) -> None:
        if isinstance(event, TextDelta):
            seen.append(event)

    assert await run_task(asking) == "one two three"
    live, seen = seen, []
    assert await run_task(asking) == "one two three"
    assert "".join(event.text for event in live) == "".join(event.text for event in seen) == "one two three"
    assert len(live) == len(seen) >= 3
    assert [event.replayed for event in live] == [False] * len(live)
    assert [event.replayed for event in seen] == [True] * len(seen)


async def test_every_model_of_a_graph_is_reached(model_env: ModelServer, run_task: RunTask) -> None:
    """In middleware, a graph inside the graph, a tool's body, a model of the caller's own, and one that is made in a node."""
    model_env.script(None, lambda conversation: Reply(f"said {conversation.model}"), repeat_last=True)
    own = Own()
    inner = create_agent(own)

    class Swap(AgentMiddleware[Any, Any]):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(model=ChatOpenAI(model="gpt-swapped")))

    swapped = create_agent("openai:gpt-4.1", middleware=[Swap()])

    async def made_here(state: MessagesState) -> dict[str, Any]:
        texts = [(await ChatOpenAI(model="gpt-made-here").ainvoke("Hi")).text, own.invoke("once more").text]
        found = await swapped.ainvoke({"messages": [HumanMessage("Hi")]})
        return {"messages": [AIMessage(f"{' '.join(map(str, texts))} {found['messages'][-1].text}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("inner", inner)
    graph.add_node("made_here", made_here)
    graph.add_edge(START, "inner").add_edge("inner", "made_here")
    state = {"crash": True}

    @env.task
    async def asking() -> str:
        text = str(await run_agent("Hi", agent=graph))
        if state["crash"]:
            raise Crash("Crash")
        return text

    with pytest.raises(Exception, match="Crash"):
        await run_task(asking)
    assert own.asked == 2
    assert [entry.model for entry in model_env.journal.requests()] == ["gpt-made-here", "gpt-swapped"]
    state["crash"] = False
    assert await run_task(asking) == "said gpt-made-here own 2 said gpt-swapped"
    assert own.asked == 2
    assert model_env.journal.count() == 2


async def test_a_fallback_replays_the_failure_that_it_went_past(model_env: ModelServer, run_task: RunTask) -> None:
    """Both of the SDK's ways to fall back; the first model is not asked again on a resume."""
    model_env.script(None, lambda conversation: Reply(f"said {conversation.model}"), repeat_last=True)
    model_env.fault(Fault.error(500, times=None), model="gpt-broken")
    broken = ChatOpenAI(model="gpt-broken", max_retries=0)
    chain = broken.with_fallbacks([ChatOpenAI(model="gpt-second")])
    agent = create_agent(broken, middleware=[ModelFallbackMiddleware(ChatOpenAI(model="gpt-third"))])
    state = {"crash": True}

    async def node(messages: MessagesState) -> dict[str, Any]:
        return {"messages": [await chain.ainvoke("Hi")]}

    @env.task
    async def asking() -> str:
        text = str(await run_agent("Hi", agent=one_node(node))) + ", " + str(await run_agent("Hi", agent=agent))
        if state["crash"]:
            raise Crash("Crash")
        return text

    with pytest.raises(Exception, match="Crash"):
        await run_task(asking)
    assert [entry.model for entry in model_env.journal.requests()] == [
        "gpt-broken",
        "gpt-second",
        "gpt-broken",
        "gpt-third",
    ]
    state["crash"] = False
    assert await run_task(asking) == "said gpt-second, said gpt-third"
    assert model_env.journal.count() == 4


async def test_a_failing_turn_makes_one_request_and_is_asked_again_by_the_next_attempt(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)
    model_env.fault(Fault.error(500, times=1))
    model = ChatOpenAI(model="gpt-4.1", max_retries=0)
    attempts = []

    @env.task(retries=1)
    async def asking() -> str:
        attempts.append(model_env.journal.count())
        return str(await run_agent("Hi?", model=model))

    assert await run_task(asking) == "Hello."
    assert attempts == [0, 1]
    assert [entry.status for entry in model_env.journal.requests()] == [500, 200]
    assert len([*run_folder().rglob("turn.*")]) == 1


async def test_retries_of_the_client_and_of_middleware_leave_one_leaf(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)
    model_env.fault(Fault.rate_limit(retry_after=0, times=1))
    model_env.fault(Fault.error(500, times=1))
    middleware: Any = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False, retry_on=(Exception,))

    @env.task
    async def asking() -> str:
        model = ChatOpenAI(model="gpt-4.1", max_retries=0)
        return str(await run_agent("Hi?", model=model, middleware=[middleware]))

    assert await run_task(asking) == await run_task(asking) == "Hello."
    assert [entry.status for entry in model_env.journal.requests()] == [429, 500, 200]
    assert len([*run_folder().rglob("turn.*")]) == 1


async def test_a_bad_key_fails_the_task_at_once(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply("never"))
    model_env.fault(Fault.unauthorized())
    attempts = []

    @env.task(retries=3)
    async def asking() -> str:
        attempts.append(1)
        return str(await run_agent("Hi?", model="openai:gpt-4.1"))

    with pytest.raises(flyte.errors.RuntimeUserError) as raised:
        await run_task(asking)
    assert raised.value.code == "NonRecoverableError"
    assert "AuthenticationError" in str(raised.value)
    assert len(attempts) == 1


async def test_outside_of_a_task_the_sdk_runs_as_it_would_by_itself(model_env: ModelServer) -> None:
    model_env.script("Hi", Reply("Hello."), repeat_last=True)
    assert await run_agent("Hi", model="openai:gpt-4.1") == "Hello."
    model_env.fault(Fault.unauthorized())
    with pytest.raises(openai.AuthenticationError):
        await run_agent("Hi", model="openai:gpt-4.1")


async def test_a_turn_of_12_mib_is_asked_once(model_env: ModelServer, run_task: RunTask, run_folder: Folder) -> None:
    model_env.script(None, Reply("x" * 12 * 2**20), repeat_last=True)

    @env.task
    async def asking() -> int:
        return len(await run_agent("Hi?", model="openai:gpt-4.1"))

    assert await run_task(asking) == await run_task(asking) == 12 * 2**20
    assert model_env.journal.count() == 1
    (record,) = run_folder().rglob("turn.*")
    assert record.stat().st_size < 10_000


class Weather(BaseModel):
    """The weather."""

    city: str
    degrees: float


class TypedWeather(TypedDict):
    """The weather."""

    city: str
    degrees: Annotated[float, "in celsius"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Weather, Weather(city="Oslo", degrees=3)), (TypedWeather, {"city": "Oslo", "degrees": 3})],
    ids=["pydantic", "typed dictionary"],
)
async def test_structured_output_comes_back_typed_and_the_same(
    model_env: ModelServer, run_task: RunTask, kind: Any, expected: Any
) -> None:
    model_env.script(None, Reply(structured={"city": "Oslo", "degrees": 3}), repeat_last=True)
    results: list[AgentResult[Any]] = []

    @env.task
    async def asking() -> str:
        results.append(await run_agent("Hi?", model="openai:gpt-4.1", output_type=kind, full_result=True))
        return results[-1].text

    await run_task(asking)
    await run_task(asking)
    assert results[0].output == results[1].output == expected
    assert type(results[0].output) is type(results[1].output) is type(expected)
    assert (results[0].usage.fresh.requests, results[0].usage.replayed.requests) == (1, 0)
    assert (results[1].usage.fresh.requests, results[1].usage.replayed.requests) == (0, 1)
    assert results[0].usage.total == results[1].usage.total


async def test_structured_output_by_a_tool_comes_back_typed(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply(calls=(call("Weather", city="Oslo", degrees=3),)), repeat_last=True)
    outputs: list[Any] = []

    @env.task
    async def asking() -> str:
        outputs.append(await run_agent("Hi?", model="openai:gpt-4.1", response_format=ToolStrategy(Weather)))
        return "done"

    await run_task(asking)
    await run_task(asking)
    assert outputs == [Weather(city="Oslo", degrees=3)] * 2
    assert model_env.journal.count() == 1


async def test_a_parsed_answer_of_a_class_that_cannot_be_imported_comes_back_as_an_instance(
    model_env: ModelServer, run_task: RunTask
) -> None:
    class Local(BaseModel):
        """Something."""

        city: str

    model_env.script(None, Reply(structured={"city": "Oslo"}), repeat_last=True)
    found: list[Any] = []

    async def node(state: MessagesState) -> dict[str, Any]:
        asking = ChatOpenAI(model="gpt-4.1").with_structured_output(Local, method="json_schema")
        found.append(await asking.ainvoke("Hi?"))
        return {"messages": [AIMessage(found[-1].city)]}

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi?", agent=one_node(node)))

    assert await run_task(asking) == await run_task(asking) == "Oslo"
    assert found == [Local(city="Oslo")] * 2
    assert model_env.journal.count() == 1


async def test_the_answer_is_the_text_blocks_and_thinking_never_gets_into_it(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, Reply("The answer.", thinking="secret thoughts"), repeat_last=True)
    results: list[AgentResult[str]] = []

    @env.task
    async def asking() -> str:
        thinking = {"type": "enabled", "budget_tokens": 1024}
        model = ChatAnthropic(model="claude", timeout=None, stop=None, max_tokens=4096, thinking=thinking)
        results.append(await run_agent("Hi?", model=model, full_result=True))
        return results[-1].text

    assert await run_task(asking) == await run_task(asking) == "The answer."
    assert model_env.journal.count() == 1
    for result in results:
        blocks = result.native["messages"][-1].content
        assert [block["type"] for block in blocks] == ["thinking", "text"]
        assert result.turns[0].text == result.output == "The answer."
    assert results[0].native["messages"][-1].content == results[1].native["messages"][-1].content


async def test_the_usage_is_what_the_provider_said(model_env: ModelServer, run_task: RunTask) -> None:
    usage = Usage(input=100, output=7, cached=40, reasoning=3)
    model_env.script(None, Reply("Hi.", usage=usage), repeat_last=True)
    results: list[AgentResult[str]] = []

    @env.task
    async def asking() -> str:
        results.append(await run_agent("Hi?", model="openai:gpt-4.1", full_result=True))
        return results[-1].text

    await run_task(asking)
    await run_task(asking)
    numbers = {"requests": 1, "input_tokens": 100, "output_tokens": 7, "cached_tokens": 40, "reasoning_tokens": 3}
    assert results[0].usage.fresh.as_dict() == results[1].usage.replayed.as_dict()
    assert results[0].usage.fresh.as_dict().items() >= numbers.items()
    assert results[0].native["messages"][-1].usage_metadata == results[1].native["messages"][-1].usage_metadata


async def test_a_summarizers_turn_is_a_leaf_too(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("Hi", Reply("Hello."), repeat_last=True)
    model_env.script(None, Reply("They greeted."), repeat_last=True)
    summarizer: Any = SummarizationMiddleware(
        ChatOpenAI(model="gpt-summary"), trigger=("messages", 3), keep=("messages", 1)
    )
    given = [HumanMessage("One"), AIMessage("Two"), HumanMessage("Three"), AIMessage("Four"), HumanMessage("Hi")]

    @env.task
    async def asking() -> str:
        return str(await run_agent(given, model="openai:gpt-4.1", middleware=[summarizer]))

    assert await run_task(asking) == await run_task(asking) == "Hello."
    assert [entry.model for entry in model_env.journal.requests()] == ["gpt-summary", "gpt-4.1"]


async def test_callbacks_of_the_caller_see_each_turn_fresh_and_replayed(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)

    class Seen(BaseCallbackHandler):
        def __init__(self) -> None:
            self.turns: list[str] = []

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            self.turns.append(response.generations[0][0].text)

    seen = Seen()
    config: Any = {"callbacks": [seen], "tags": ["mine"]}

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi?", model="openai:gpt-4.1", config=config))

    assert await run_task(asking) == await run_task(asking) == "Hello."
    assert seen.turns == ["Hello.", "Hello."]
    assert config == {"callbacks": [seen], "tags": ["mine"]}
    assert model_env.journal.count() == 1


async def test_parallel_nodes_in_threads_do_not_wait_for_each_other(model_env: ModelServer, run_task: RunTask) -> None:
    """More of them than the loop's executor has threads: each waits for its turn, and its thread makes the request itself."""
    model_env.script(None, Reply("Hello."), repeat_last=True)

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]

    def ask(number: int) -> Any:
        def node(state: State) -> dict[str, Any]:
            answer = ChatOpenAI(model="gpt-4.1").invoke(f"Hi {number}")
            return {"messages": [answer.model_copy(update={"id": str(number)})]}

        return node

    graph = StateGraph(State)
    for number in range(40):
        graph.add_node(f"n{number}", ask(number)).add_edge(START, f"n{number}").add_edge(f"n{number}", END)

    @env.task
    async def asking() -> int:
        result = await run_agent("Hi", agent=graph, full_result=True)
        return len(result.turns)

    assert await asyncio.wait_for(run_task(asking), 100) == 40
    assert model_env.journal.count() == 40


async def test_a_text_completion_model_is_refused_rather_than_lost(run_task: RunTask) -> None:
    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(await FakeListLLM(responses=["one"]).ainvoke("Hi"))]}

    durable = {"durable": True}

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi", agent=one_node(node), **durable))  # type: ignore[call-overload]

    with pytest.raises(flyte.errors.RuntimeUserError, match="text completion model"):
        await run_task(asking)
    durable["durable"] = False
    assert await run_task(asking) == "one"


async def test_with_durable_false_turns_are_asked_again(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)

    @env.task
    async def asking() -> str:
        first = await run_agent("Hi?", model="openai:gpt-4.1", durable=False)
        return str(first) + str(await run_agent("Hi?", model="openai:gpt-4.1", durable=False))

    assert await run_task(asking) == await run_task(asking) == "Hello.Hello."
    assert model_env.journal.count() == 4


@pytest.mark.parametrize("how", ["ainvoke", "astream", "invoke", "stream"])
async def test_a_durable_model_in_a_graph_that_is_run_without_run_agent_is_asked_once(
    model_env: ModelServer, run_task: RunTask, how: str
) -> None:
    model_env.script("Hi", Reply("Hello there.", pieces=3), repeat_last=True)
    graph = said(
        DurableChatModel(ChatOpenAI(model="gpt-4.1")), DurableChatModel(Own()).bind(stop=["x"]), how=how
    ).compile()

    @env.task
    async def asking() -> str:
        found = await graph.ainvoke({"messages": [HumanMessage("Hi")]})
        return str(found["messages"][-1].text)

    assert await run_task(asking) == await run_task(asking) == "Hello there. own 1"
    assert model_env.journal.count() == 1
    assert (await graph.ainvoke({"messages": [HumanMessage("Hi")]}))["messages"][-1].text == "Hello there. own 2"
    assert model_env.journal.count() == 2  # outside of a task nothing is on record


def test_a_model_is_asked_on_one_event_loop_after_the_other(model_env: ModelServer) -> None:
    """The providers' packages share one pool of connections in the process, and connections belong to a loop."""
    model_env.script("Hi", Reply("Hello."), repeat_last=True)
    models = (ChatOpenAI(model="gpt-4.1"), ChatAnthropic(model="claude", timeout=None, stop=None))

    async def ask() -> list[str]:
        return [str(await run_agent("Hi", model=model)) for model in models for _ in range(2)]

    for _ in range(3):
        assert asyncio.run(ask()) == ["Hello."] * 4


def test_sync_tasks_and_async_tasks_run_agents_beside_each_other(model_env: ModelServer) -> None:
    model_env.script("Hi", Reply("Hello."), repeat_last=True)
    assert run_agent_sync("Hi", model="openai:gpt-4.1") == "Hello."
    assert asyncio.run(run_agent("Hi", model="openai:gpt-4.1")) == "Hello."
    assert run_agent_sync("Hi", model="openai:gpt-4.1") == "Hello."


async def test_the_sync_form_is_refused_inside_an_event_loop() -> None:
    with pytest.raises(RuntimeError, match=r"await run_agent"):
        run_agent_sync("Hi", model="openai:gpt-4.1")


@pytest.mark.parametrize("output_type", [int, list[int], int | None])
async def test_an_output_type_that_has_no_schema_is_refused_by_its_name(
    model_env: ModelServer, output_type: Any
) -> None:
    with pytest.raises(TypeError, match=r"output_type is .*int.*Give a pydantic model"):
        await run_agent("Hi", model="openai:gpt-4.1", output_type=output_type)


async def test_text_is_an_output_type(model_env: ModelServer) -> None:
    model_env.script(None, Reply("Hi."))
    assert await run_agent("Hi?", model="openai:gpt-4.1", output_type=str) == "Hi."
