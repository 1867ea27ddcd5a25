"""Tools: light in the workers, native to the SDK, run as child actions, and recorded where they run inline."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import cloudpickle  # type: ignore[import-untyped]
import flyte
import flyte.errors
import pytest
from flyte.extend import TaskTemplate
from langchain.agents import create_agent
from langchain.tools import InjectedState, InjectedToolCallId, ToolRuntime
from langchain.tools import tool as langchain_tool
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, ToolException
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import AgentResult, ToolTaskResolver
from flyteplugins.agents.langchain import idempotency_key, run_agent, tool

RunTask = Callable[..., Any]

APPS = Path(__file__).parent / "apps"
MODEL = "openai:gpt-4.1"
env = flyte.TaskEnvironment("tools")


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


@env.task(cache="disable")
async def lookup(city: str, days: int = 1) -> dict[str, int]:
    """Look a city up.

    Args:
        city: The city.
        days: How many days ahead.
    """
    return {city: days}


@pytest.fixture
def worker() -> Iterator[Any]:
    """The module `worker`, imported by its name as a worker imports it."""
    sys.path.insert(0, str(APPS))
    import worker  # type: ignore[import-not-found]  # it is on the path of a worker only

    yield worker
    sys.path.remove(str(APPS))
    del sys.modules["worker"]


def in_new_process(program: str) -> str:
    """Run a program beside the test applications, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=APPS, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SDKS = '[name for name in ("langchain", "langchain_core", "langgraph", "openai") if name in sys.modules]'


def test_a_tool_is_a_tool_to_the_sdk(worker: Any) -> None:
    native: object = worker.get_weather
    assert isinstance(native, BaseTool)
    assert worker.add.name == "adder"
    assert worker.add.description == "Add two numbers."
    assert isinstance(worker.get_weather.__wrapped_task__, TaskTemplate)
    assert isinstance(getattr(worker.get_weather.__wrapped_task__, "task_resolver"), ToolTaskResolver)  # noqa: B009


@pytest.mark.parametrize(
    "clone",
    [
        copy.copy,
        copy.deepcopy,
        lambda item: pickle.loads(pickle.dumps(item)),
        lambda item: cloudpickle.loads(cloudpickle.dumps(item)),
        lambda item: item.model_copy(),
        lambda item: item,
    ],
    ids=["copy", "deepcopy", "pickle", "cloudpickle", "model_copy", "itself"],
)
async def test_a_pre_built_agent_takes_a_tool_and_each_kind_of_copy(
    worker: Any, clone: Callable[[Any], Any], model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(
        "weather", Reply(calls=(call("get_weather", city="Oslo"), call("adder", one=1, two=5))), Reply("Sunny, and 6.")
    )
    agent = create_agent(MODEL, [clone(worker.get_weather), clone(worker.add)])

    @env.task
    async def chat() -> str:
        result: AgentResult[str] = await run_agent("weather", agent=agent, full_result=True)
        assert sorted(item.result for item in result.tool_calls) == ["6", "sunny in Oslo"]
        return result.text

    assert await run_task(chat) == "Sunny, and 6."


async def test_outside_of_a_task_the_sdk_runs_a_tool_by_itself(worker: Any, model_env: ModelServer) -> None:
    model_env.script("weather", Reply(calls=(call("get_weather", city="Oslo"),)), Reply("Sunny."))
    model = ChatOpenAI(
        model="gpt-4.1", timeout=61
    )  # connections of its own: the package's belong to another test's loop
    state = await create_agent(model, [worker.get_weather]).ainvoke({"messages": [HumanMessage("weather")]})
    assert [message.text for message in state["messages"][2:]] == ["sunny in Oslo", "Sunny."]
    assert worker.get_weather.invoke("Rome") == "sunny in Rome"
    assert await worker.get_weather.ainvoke({"city": "Rome"}) == "sunny in Rome"


async def test_task_tools_and_plain_callables_are_run_once(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("Hi", Reply(calls=(call("lookup", city="Oslo"), call("shout", text="hi"))), Reply("done"))
    ran: list[str] = []
    state = {"crash": True}

    @env.task(cache="disable")
    async def lookup(city: str) -> str:
        """Look a city up."""
        ran.append(city)
        return city

    def shout(text: str) -> str:
        """Shout."""
        ran.append(text)
        return text.upper()

    @env.task
    async def chat() -> str:
        answer = str(await run_agent("Hi", tools=[lookup, shout], model=MODEL))
        if state["crash"]:
            raise Crash("Crash")
        return answer

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    assert sorted(ran) == ["Oslo", "hi"]
    state["crash"] = False
    assert await run_task(chat) == "done"
    assert sorted(ran) == ["Oslo", "hi"]


async def test_a_tool_may_have_parameters_of_any_name_and_none(model_env: ModelServer, run_task: RunTask) -> None:
    odd = {"config": "c", "self": "s", "_x": 1, "run_manager": "r", "callbacks": [2], "runtime": "t", "state": "st"}
    given: list[Any] = []

    def odd_names(
        config: str, self: str, _x: int, run_manager: str, callbacks: list[int], runtime: str, state: str
    ) -> str:
        given.append({"config": config, "self": self, "_x": _x, "run_manager": run_manager, "callbacks": callbacks})
        given[-1] |= {"runtime": runtime, "state": state}
        return "odd"

    def odd_names_of_a_task(
        config: str, _x: int, run_manager: str, callbacks: list[int], runtime: str, state: str
    ) -> str:
        return odd_names(config, "s", _x, run_manager, callbacks, runtime, state)  # Flyte has no parameter `self`

    odd_task = env.task(cache="disable")(odd_names_of_a_task)

    def nothing() -> str:
        """Do nothing."""
        return "nothing"

    @env.task
    async def chat(on_task: bool) -> str:
        target = odd_task if on_task else odd_names
        result = await run_agent("Hi", tools=[tool(target, name="odd"), nothing], model=MODEL, full_result=True)
        return " ".join(sorted(item.result for item in result.tool_calls))

    for on_task in (True, False):
        arguments = {name: value for name, value in odd.items() if name != "self" or not on_task}
        model_env.script("Hi", Reply(calls=(call("odd", **arguments), call("nothing"))), Reply("done"))
        assert await run_task(chat, on_task=on_task, name=str(on_task)) == "nothing odd"
        model_env.clear()
    assert given == [odd, odd]


async def test_three_parallel_tools_overlap_and_no_more_than_may(model_env: ModelServer, run_task: RunTask) -> None:
    """The task tools of one turn, the plain callables, and the SDK's sync tools, which run in threads."""
    running: list[int] = []
    most: list[int] = []

    def began() -> None:
        running.append(1)
        most.append(len(running))

    @env.task(cache="disable")
    async def wait_task(number: int) -> int:
        """Wait."""
        began()
        await asyncio.sleep(0.5)
        running.pop()
        return number

    async def wait_here(number: int) -> int:
        """Wait."""
        began()
        await asyncio.sleep(0.5)
        running.pop()
        return number

    @langchain_tool
    def wait_thread(number: int) -> int:
        """Wait."""
        began()
        time.sleep(0.5)
        running.pop()
        return number

    @env.task
    async def chat(which: str, limit: int) -> list[str]:
        target = {"task": wait_task, "here": wait_here, "thread": wait_thread}[which]
        result = await run_agent(
            "Hi", tools=[target], model=MODEL, full_result=True, max_concurrent_tools=limit or None
        )
        return [message.text for message in result.native["messages"] if isinstance(message, ToolMessage)]

    for which in ("task", "here", "thread"):
        name = f"wait_{which}"
        for limit, expected in ((0, 3), (2, 2), (1, 1)):
            model_env.clear()
            model_env.script("Hi", Reply(calls=tuple(call(name, number=number) for number in (3, 1, 2))), Reply("done"))
            most.clear()
            assert await run_task(chat, which=which, limit=limit, name=f"{which}-{limit}") == ["3", "1", "2"]
            assert max(most) == expected, (which, limit, most)


async def test_a_failure_and_a_bad_argument_reach_the_model_and_are_not_run_again(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(
        "Hi", Reply(calls=(call("broken", city="Oslo"), call("lookup", city="Oslo", days="soon"))), Reply("So it goes.")
    )
    ran: list[str] = []

    @env.task(cache="disable")
    async def broken(city: str) -> str:
        """Fail."""
        ran.append(city)
        raise ValueError("No such city.")

    results: list[AgentResult[str]] = []

    @env.task
    async def chat() -> str:
        results.append(await run_agent("Hi", tools=[broken, lookup], model=MODEL, full_result=True))
        return results[-1].text

    assert await run_task(chat) == await run_task(chat) == "So it goes."
    assert ran == ["Oslo"]
    for result in results:
        messages = {one.name: one for one in result.native["messages"] if isinstance(one, ToolMessage)}
        assert {one.status for one in messages.values()} == {"error"}
        assert "No such city." in messages["broken"].text
        assert "days" in messages["lookup"].text


@pytest.mark.parametrize("kind", ["task", "function", "the SDK's"])
async def test_with_on_tool_error_raise_a_failure_ends_the_run(
    model_env: ModelServer, run_task: RunTask, kind: str
) -> None:
    model_env.script("Hi", Reply(calls=(call("broken", city="Oslo"),)), Reply("never"))

    async def broken(city: str) -> str:
        """Fail."""
        raise ValueError("No such city.")

    target: Any = {"task": env.task(cache="disable")(broken), "function": broken, "the SDK's": langchain_tool(broken)}[
        kind
    ]
    attempts = []

    @env.task(retries=2)
    async def chat() -> str:
        attempts.append(1)
        return str(await run_agent("Hi", tools=[target], model=MODEL, on_tool_error="raise"))

    with pytest.raises(flyte.errors.RuntimeUserError, match="No such city") as raised:
        await run_task(chat)
    assert raised.value.code == "NonRecoverableError"
    assert len(attempts) == 1


async def test_inline_tools_get_the_runtime_the_state_the_config_and_the_id_of_the_call(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """Ours and the SDK's; in an agent and in a `ToolNode` of a graph; the model is not told of them."""

    async def ours(
        city: str,
        runtime: ToolRuntime[Any, Any],
        messages: Annotated[list[Any], InjectedState("messages")],
        call_id: Annotated[str, InjectedToolCallId],
        config: RunnableConfig,
    ) -> str:
        """Look."""
        assert call_id == runtime.tool_call_id
        assert config["tags"] == ["mine"]
        return f"{city} {len(runtime.state['messages'])} {len(messages)}"

    @langchain_tool
    def theirs(city: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Look."""
        return f"{city} {len(runtime.state['messages'])}"

    made = [tool(ours), theirs]
    assert list(made[0].args) == ["city"]

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await ChatOpenAI(model="gpt-4.1").bind_tools(made).ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", ToolNode(made))
    graph.add_edge(START, "ask").add_edge("tools", "ask").add_conditional_edges("ask", tools_condition)

    @env.task
    async def chat(way: str) -> list[str]:
        agent: Any = create_agent(MODEL, made) if way == "agent" else graph
        result = await run_agent("Hi", agent=agent, config={"tags": ["mine"]}, full_result=True)
        return sorted(message.text for message in result.native["messages"] if isinstance(message, ToolMessage))

    for way in ("agent", "graph"):
        for _ in range(2):
            model_env.script("Hi", Reply(calls=(call("ours", city="Oslo"), call("theirs", city="Rome"))), Reply("done"))
            assert await run_task(chat, way=way, name=way) == ["Oslo 2 2", "Rome 2"]
        assert model_env.journal.count() == 2
        model_env.clear()


async def test_a_command_and_an_artifact_of_the_sdks_own_tools_come_back_from_the_record(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Hi", Reply(calls=(call("note", text="x"), call("paint", what="y"))), Reply("done"))
    ran: list[str] = []

    @langchain_tool
    def note(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note."""
        ran.append("note")
        return Command(update={"notes": [text], "messages": [ToolMessage(f"noted {text}", tool_call_id=call_id)]})

    @langchain_tool(response_format="content_and_artifact")
    def paint(what: str) -> tuple[str, Any]:
        """Paint."""
        ran.append("paint")
        return f"painted {what}", {"pixels": b"\x00\xff", "size": (1, 2)}

    class State(MessagesState, total=False):
        notes: list[str]

    schema: Any = State
    agent = create_agent(MODEL, [note, paint], state_schema=schema)
    states: list[Any] = []
    crash = {"crash": True}

    @env.task
    async def chat() -> str:
        result = await run_agent("Hi", agent=agent, full_result=True)
        states.append(result.native)
        assert sorted(one.result for one in result.tool_calls) == ["noted x", "painted y"], "what the model was given"
        if crash["crash"]:
            raise Crash("Crash")
        return str(result.text)

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    crash["crash"] = False
    assert await run_task(chat) == "done"
    assert sorted(ran) == ["note", "paint"]
    for state in states:
        assert state["notes"] == ["x"]
        artifacts = [one.artifact for one in state["messages"] if isinstance(one, ToolMessage) and one.name == "paint"]
        assert artifacts == [{"pixels": b"\x00\xff", "size": (1, 2)}]


async def test_two_equal_calls_whose_results_change_places_answer_their_own_calls(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Hi", Reply(calls=(call("look", city="Oslo"), call("look", city="Oslo"))), Reply("done"))
    delays = [0.2, 0.0]
    state = {"crash": True}

    @langchain_tool
    async def look(city: str) -> str:
        """Look."""
        await asyncio.sleep(delays.pop(0))
        return city

    @env.task
    async def chat() -> str:
        answer = str(await run_agent("Hi", tools=[look], model=MODEL))
        if state["crash"]:
            raise Crash("Crash")
        return answer

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    state["crash"] = False
    assert await run_task(chat) == "done"
    assert model_env.journal.count() == 2


async def test_an_inline_tool_may_call_tasks_and_agents_and_has_its_own_idempotency_key(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Start", Reply(calls=(call("deep", city="Oslo"), call("sync_key"))), Reply("done"))
    model_env.script("inner", Reply("inner answer"), repeat_last=True)
    keys: list[str] = []
    state = {"crash": True}

    @langchain_tool
    async def deep(city: str) -> str:
        """Go deep."""
        keys.append(idempotency_key())
        found = await lookup(city)
        return f"{found} {await run_agent('inner', model=MODEL)}"

    @langchain_tool
    def sync_key() -> str:
        """Tell the key."""
        keys.append(idempotency_key())
        return "key"

    @env.task
    async def chat() -> str:
        result = await run_agent("Start", tools=[deep, sync_key], model=MODEL, full_result=True)
        if state["crash"]:
            raise Crash("Crash")
        return " ".join(sorted(item.result for item in result.tool_calls))

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    assert len(set(keys)) == 2
    state["crash"] = False
    assert await run_task(chat) == "key {'Oslo': 1} inner answer"
    assert len(keys) == 2
    assert model_env.journal.count() == 3


async def test_the_turns_of_a_graph_that_is_used_as_a_tool_are_leaves(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """And so is its outcome, in which every message has another id each time."""
    model_env.script("Start", Reply(calls=(call("expert", messages=["what?"]),)), Reply("done"))
    model_env.script("what", Reply("that"), repeat_last=True)
    state = {"crash": "inside"}

    async def ask(messages: Any) -> dict[str, Any]:
        answer = await ChatOpenAI(model="gpt-expert").ainvoke(messages["messages"])
        if state["crash"] == "inside":
            raise Crash("Crash")
        return {"messages": [answer]}

    graph: Any = StateGraph(MessagesState)
    expert = graph.add_node("ask", ask).add_edge(START, "ask").compile()
    as_tool: Any = expert.as_tool(name="expert", description="Ask.", arg_types={"messages": list[str]})

    @env.task
    async def chat() -> str:
        answer = str(await run_agent("Start", tools=[as_tool], model=MODEL))
        if state["crash"]:
            raise Crash("Crash")
        return answer

    for crash, requests in (("inside", 2), ("after", 3), ("after", 3), ("", 3)):
        state["crash"] = crash
        if crash:
            with pytest.raises(Exception, match="Crash"):
                await run_task(chat)
        else:
            assert await run_task(chat) == "done"
        assert model_env.journal.count() == requests


async def test_the_sdks_own_errors_of_a_tool_reach_the_model_as_the_sdk_says(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Hi", Reply(calls=(call("picky", city="Oslo"),)), Reply("So it goes."))

    @langchain_tool
    def picky(city: str) -> str:
        """Fail."""
        raise ToolException("Not that one.")

    picky.handle_tool_error = True
    results: list[Any] = []

    @env.task
    async def chat() -> str:
        result = await run_agent("Hi", tools=[picky], model=MODEL, full_result=True)
        results.append((result.tool_calls[0].error, result.native["messages"][2].status))
        return str(result.text)

    assert await run_task(chat) == await run_task(chat) == "So it goes."
    assert results == [("Not that one.", "error")] * 2


def test_tool_refuses_what_it_cannot_do_with_a_reason() -> None:
    with pytest.raises(TypeError, match="no option handle_tool_error"):
        tool(len, handle_tool_error=True)

    async def steers(city: str) -> Command[Any]:
        return Command()

    with pytest.raises(TypeError, match=r"returns a Command.*LangChain's own"):
        tool(steers)

    @env.task
    async def takes_runtime(city: str, runtime: ToolRuntime[Any, Any]) -> str:
        return city

    with pytest.raises(TypeError, match="which no worker has"):
        tool(takes_runtime)
    with pytest.raises(TypeError, match="a Flyte task or a callable"):
        tool(3)  # type: ignore[call-overload]


async def test_a_model_cannot_forge_what_the_sdk_fills_in(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("Hi", Reply(calls=(call("ours", city="Oslo", call_id="forged"),)), Reply("done"))
    seen: list[str] = []

    def ours(city: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Look."""
        seen.append(call_id)
        return city

    @env.task
    async def chat() -> str:
        return str(await run_agent("Hi", tools=[ours], model=MODEL))

    assert await run_task(chat) == "done"
    assert len(seen) == 1
    assert seen != ["forged"]
