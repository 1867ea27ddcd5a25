"""Tools: tasks, callables, and every kind of tool that the SDK has."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import pytest
from google.adk.agents import LlmAgent
from google.adk.artifacts import InMemoryArtifactService
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from google.adk.memory import InMemoryMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pydantic import BaseModel

from flyteplugins.agents.adk import run_agent, tool
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, ToolCall, call
from flyteplugins.agents.core import AgentError, AgentResult

RunTask = Callable[..., Any]
GEMINI = "gemini-3.5-flash"

pytestmark = pytest.mark.usefixtures("model_env")

env = flyte.TaskEnvironment("adk_tools")
DONE: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@tool
@env.task(cache="disable")
async def measure(unit: Unit, at: datetime.datetime, values: list[float], limit: float | None = None) -> str:
    """Measure something."""
    DONE.append((unit, at, values, limit))
    return f"{unit.name} {at.isoformat()} {values!r} {limit!r}"


def plain(unit: Unit, at: datetime.datetime, values: list[float], limit: float | None = None) -> str:
    """Measure something."""
    DONE.append((unit, at, values, limit))
    return f"{unit.name} {at.isoformat()} {values!r} {limit!r}"


def remember(fact: str, tool_context: ToolContext) -> dict[str, str]:
    """Keep a fact."""
    DONE.append(fact)
    tool_context.state["fact"] = fact
    return {"kept": fact}


def fail(why: str) -> str:
    """Fail."""
    DONE.append(why)
    raise RuntimeError(f"broken: {why}")


@pytest.mark.parametrize(
    "made",
    [measure, plain, LlmAgent(name="one", model=GEMINI, tools=[plain])],
    ids=["task", "callable", "the agent's own"],
)
async def test_arguments_arrive_as_the_types_that_the_tool_names(
    run_task: RunTask, run_name: str, model_server: ModelServer, made: Any
) -> None:
    """An Enum, a datetime, floats from ints, and an optional float: coerced, and the call is made once."""
    said = {"unit": "kelvin", "at": "2026-01-02T03:04:05Z", "values": [1, 2], "limit": 3}
    model_server.script("measure", Reply(calls=(ToolCall("measure" if made is measure else "plain", said),)), "ok")
    given: dict[str, Any] = {"agent": made} if isinstance(made, LlmAgent) else {"model": GEMINI, "tools": [made]}

    @env.task
    async def chat(message: str) -> str:
        result: AgentResult[Any] = await run_agent(message, full_result=True, **given)
        return result.tool_calls[0].result

    shown = "KELVIN 2026-01-02T03:04:05+00:00 [1.0, 2.0] 3.0"
    assert [await run_task(chat, "measure it", name=run_name) for _ in range(2)] == [shown, shown]
    assert [(Unit.KELVIN, datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC), [1.0, 2.0], 3.0)] == DONE
    assert all(type(value) is float for value in (*DONE[0][2], DONE[0][3]))


class Order(BaseModel):
    item: str
    count: int = 1


def place(
    order: Order, others: list[Order] | None = None, note: str | None = None, *, tool_context: ToolContext
) -> str:
    """Place orders."""
    DONE.append((order, others, note))
    assert isinstance(order, Order)
    assert tool_context.agent_name == "one"
    return f"{order.count} {order.item}"


async def test_wrong_arguments_of_an_agents_own_function_are_told_to_the_model(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """As of any other tool; the function is not called, and right ones are what its types say."""
    model_server.script(
        "order",
        Reply(
            calls=(
                call("place", order={"item": "tea", "count": "many"}),
                call("place"),
                call("place", order={"item": "tea"}, others=[{"item": "cake"}]),
            )
        ),
        lambda conversation: Reply(" | ".join(one.text for one in conversation.results)),
    )
    agent = LlmAgent(name="one", model=GEMINI, tools=[place])

    @env.task
    async def chat(message: str) -> str:
        return str(await run_agent(message, agent=agent))

    for _ in range(2):
        wrong, missing, right = (await run_task(chat, "order it", name=run_name)).split(" | ")
        assert "order.count" in wrong
        assert "Error" in missing
        assert "order" in missing
        assert right == "1 tea"
    assert [(Order(item="tea"), [Order(item="cake")], None)] == DONE


def test_a_task_that_takes_the_sdks_context_is_refused_when_the_tool_is_made() -> None:
    async def look(where: str, tool_context: ToolContext) -> str:
        return where

    async def written(where: str, context: ToolContext | None = None) -> str:
        return where

    written.__annotations__ = {"where": "str", "context": "ToolContext | None", "return": "str"}
    look.__annotations__ = {"where": str, "tool_context": ToolContext, "return": str}
    with pytest.raises(TypeError, match=r"takes the SDK's context in tool_context, which no worker has"):
        tool(env.task(look))


@pytest.mark.parametrize("made", [tool(remember), FunctionTool(remember)], ids=["tool", "the SDK's"])
async def test_what_a_tool_does_through_its_context_is_replayed(
    run_task: RunTask, run_name: str, model_server: ModelServer, made: Any
) -> None:
    """The state that a call wrote is there on a resume, on which the call is not made."""
    model_server.script("keep", Reply(calls=(call("remember", fact="blue"),)), "ok")
    agent = LlmAgent(name="one", model=GEMINI, instruction="You know {fact?}", tools=[made])

    @env.task
    async def chat(message: str) -> str:
        result: AgentResult[Any] = await run_agent(message, agent=agent, full_result=True)
        return str([event.actions.state_delta for event in result.native if event.actions.state_delta])

    assert [await run_task(chat, "keep it", name=run_name) for _ in range(2)] == [str([{"fact": "blue"}])] * 2
    assert DONE == ["blue"]
    assert ["You know blue" in str(request.body) for request in model_server.journal.requests()] == [False, True]


@pytest.mark.parametrize("made", [fail, tool(fail), FunctionTool(fail)], ids=["callable", "tool", "the SDK's"])
async def test_an_exception_is_told_to_the_model_and_the_call_not_made_again(
    run_task: RunTask, run_name: str, model_server: ModelServer, made: Any
) -> None:
    """As is the name of a tool that does not exist."""
    calls = (call("fail", why="rain"), ToolCall("nothing", {}, unlisted=True))
    model_server.script("try", Reply(calls=calls), lambda conversation: Reply(str(conversation.body["contents"][-1])))

    @env.task
    async def chat(message: str) -> str:
        return await run_agent(message, model=GEMINI, tools=[made])

    fresh = await run_task(chat, "try it", name=run_name)
    assert "the tool fail failed. RuntimeError: broken: rain" in fresh
    assert "no tool with that name is available" in fresh
    assert await run_task(chat, "try it", name=run_name) == fresh
    assert DONE == ["rain"]


async def test_a_callback_of_the_agents_answers_an_exception_first(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """On a resume as well, where it is given an equal exception."""
    model_server.script(
        "try",
        Reply(calls=(call("fail", why="rain"),)),
        lambda conversation: Reply(str(conversation.body["contents"][-1])),
    )
    given: list[Exception] = []

    def answer(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, str]:
        given.append(error)
        return {"said": "by the callback"}

    agent = LlmAgent(name="one", model=GEMINI, tools=[fail], on_tool_error_callback=answer)

    @env.task
    async def chat(message: str) -> str:
        return str(await run_agent(message, agent=agent))

    for _ in range(2):
        assert "by the callback" in await run_task(chat, "try it", name=run_name)
    assert [repr(error) for error in given] == ["RuntimeError('broken: rain')"] * 2


@pytest.mark.parametrize("made", [tool(fail), FunctionTool(fail)], ids=["tool", "the SDK's"])
async def test_an_exception_fails_the_run_where_it_is_to(
    run_task: RunTask, run_name: str, model_server: ModelServer, made: Any
) -> None:
    model_server.script("try", Reply(calls=(call("fail", why="rain"),)), "ok")

    @env.task(retries=2)
    async def chat(message: str) -> str:
        return await run_agent(message, model=GEMINI, tools=[made], on_tool_error="raise")

    with pytest.raises(flyte.errors.RuntimeUserError, match="The tool fail failed: RuntimeError: broken: rain"):
        await run_task(chat, "try it", name=run_name)
    assert DONE == ["rain"]


async def test_a_call_that_is_answered_later_is_pending_and_no_answer(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    model_server.script("order", Reply(calls=(call("order", what="tea"),)), "ordered")

    def order(what: str) -> None:
        """Order something, which takes days."""
        DONE.append(what)

    agent = LlmAgent(name="one", model=GEMINI, tools=[LongRunningFunctionTool(order)])

    @env.task
    async def chat(message: str, full: bool) -> str:
        if not full:
            return str(await run_agent(message, agent=agent))
        result: AgentResult[Any] = await run_agent(message, agent=agent, full_result=True)
        return str(result.pending)

    assert await run_task(chat, "order tea", True, name=run_name) == "('order',)"
    with pytest.raises(flyte.errors.RuntimeUserError, match=r"waits for order\. That is no answer"):
        await run_task(chat, "order tea", False, name=f"{run_name}-2")


class Executor(BaseCodeExecutor):
    """Says which code it was given."""

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        DONE.append(code_execution_input.code)
        return CodeExecutionResult(stdout="5")


async def test_code_of_a_model_is_executed_once(run_task: RunTask, run_name: str, model_server: ModelServer) -> None:
    """In another run of the same name its outcome comes from the record."""

    def turns(conversation: Any) -> Reply:
        return Reply("It is 5." if "tool_output" in str(conversation.body) else "```tool_code\nprint(2 + 3)\n```")

    agent = LlmAgent(name="one", model=GEMINI, code_executor=Executor(), instruction="You count.")
    model_server.script(None, turns, system="You count", anywhere=True, repeat_last=True)

    @env.task
    async def chat(message: str) -> str:
        return str(await run_agent(message, agent=agent, artifact_service=InMemoryArtifactService()))

    answers = [await run_task(chat, "count it", name=run_name) for _ in range(2)]
    assert answers == ["It is 5."] * 2
    assert DONE == ["print(2 + 3)"]


async def test_a_memory_that_is_preloaded_is_the_same_on_a_resume(
    run_task: RunTask, run_name: str, model_server: ModelServer
) -> None:
    """Its service is asked once; what it would say now is no part of the request."""
    model_server.script("hello", "hi")

    class Service(InMemoryMemoryService):
        async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
            DONE.append(query)
            text = types.Part(text=f"fact {len(DONE)}")
            return SearchMemoryResponse(memories=[MemoryEntry(content=types.Content(role="user", parts=[text]))])

    agent = LlmAgent(name="one", model=GEMINI, tools=[PreloadMemoryTool()])
    service = Service()

    @env.task
    async def chat(message: str) -> str:
        return str(await run_agent(message, agent=agent, memory_service=service))

    assert [await run_task(chat, "hello", name=run_name) for _ in range(2)] == ["hi", "hi"]
    assert DONE == ["hello"]
    assert "fact 1" in str(model_server.journal.requests()[0].body)
    assert model_server.journal.count() == 1


async def test_media_of_a_tool_comes_back_as_media(run_task: RunTask, run_name: str, model_server: ModelServer) -> None:
    """A part with bytes, as the SDK's tools may return one; a failing second turn has the call replayed."""
    model_server.script("draw", Reply(calls=(call("draw"),)), "drawn")
    model_server.fault(Fault.error(500, times=1), user="draw it", turn=2)

    def draw() -> types.Part:
        """Draw something."""
        DONE.append("draw")
        return types.Part.from_bytes(data=b"\x89PNG\xff", mime_type="image/png")

    agent = LlmAgent(name="one", model=GEMINI, tools=[FunctionTool(draw)])

    @env.task(retries=1)
    async def chat(message: str) -> bytes:
        result: AgentResult[Any] = await run_agent(message, agent=agent, full_result=True)
        [response] = [one for event in result.native for one in event.get_function_responses()]
        data: bytes = response.parts[0].inline_data.data
        return data

    assert await run_task(chat, "draw it", name=run_name) == b"\x89PNG\xff"
    assert DONE == ["draw"]


def test_what_a_tool_cannot_be_is_an_error_that_says_so() -> None:
    with pytest.raises(TypeError, match="tool\\(\\) has no option colour"):
        tool(fail, colour="red")
    with pytest.raises(TypeError, match="which such tools do not have"):
        tool(remember, on_unknown="fail")
    with pytest.raises(TypeError, match="A tool is made of a Flyte task or a callable"):
        tool(3)  # type: ignore[call-overload]


async def test_a_tool_of_the_sdks_is_no_lone_list() -> None:
    with pytest.raises(TypeError, match="give a list of tools"):
        await run_agent("hello", model=GEMINI, tools=tool(fail))  # type: ignore[call-overload]
    assert issubclass(AgentError, flyte.errors.NonRecoverableError)
