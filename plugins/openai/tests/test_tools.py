"""Tools: light in the workers, native to the SDK, and run as child actions."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import math
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import flyte
import flyte.errors
import pytest
from agents import Agent, FunctionTool, OpenAIResponsesModel, RunContextWrapper, Runner, function_tool
from agents.tool_context import ToolContext
from flyte.extend import TaskTemplate
from openai import AsyncOpenAI

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import AgentResult, ToolTaskResolver
from flyteplugins.agents.openai import run_agent, tool

RunTask = Callable[..., Any]

APPS = Path(__file__).parent / "apps"
env = flyte.TaskEnvironment("tools")


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


def test_a_worker_that_runs_a_tools_task_does_not_import_the_sdk() -> None:
    """The task is found with the very arguments that a cluster would give its worker."""
    program = """
import asyncio, pathlib, sys
import worker
from flyte._internal.runtime.entrypoints import load_task
from flyte.models import SerializationContext
here = pathlib.Path.cwd()
results = []
for name, inputs in [("get_weather", {"city": "Oslo"}), ("add", {"one": 1})]:
    context = SerializationContext(version="v", root_dir=here, image_cache=None, code_bundle=None)
    arguments = getattr(worker, name).__wrapped_task__.container_args(context)
    resolver, *rest = arguments[arguments.index("--resolver") + 1 :]
    result = load_task(resolver, *rest).forward(**inputs)
    results.append(asyncio.run(result) if asyncio.iscoroutine(result) else result)
print(results, "agents" in sys.modules, "openai" in sys.modules)
"""
    assert in_new_process(program) == "['sunny in Oslo', 3] False False"


def test_defining_tools_and_looking_at_them_does_not_import_the_sdk() -> None:
    program = """
import sys
import worker
from flyte.extend import TaskTemplate
for name in ("get_weather", "add", "shout"):
    tool = getattr(worker, name)
    repr(tool), isinstance(tool, TaskTemplate), callable(tool), tool.__wrapped_task__
print("agents" in sys.modules, worker.shout("hi"))
"""
    assert in_new_process(program) == "False HI"


def test_a_tool_is_a_function_tool_to_the_sdk(worker: Any) -> None:
    native: object = worker.get_weather
    assert isinstance(native, FunctionTool)
    assert worker.get_weather.name == "get_weather"
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
        lambda item: item,
    ],
    ids=["copy", "deepcopy", "pickle", "cloudpickle", "itself"],
)
async def test_a_pre_built_agent_takes_a_tool_and_each_kind_of_copy(
    worker: Any, clone: Callable[[Any], Any], model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(
        "weather", Reply(calls=(call("get_weather", city="Oslo"), call("adder", one=1, two=5))), Reply("Sunny, and 6.")
    )
    agent = Agent(name="a", model="gpt-4.1", tools=[clone(worker.get_weather), clone(worker.add)])

    @env.task
    async def chat() -> str:
        result: AgentResult[str] = await run_agent("weather", agent=agent.clone(), full_result=True)
        assert sorted(item.result for item in result.tool_calls) == ["6", "sunny in Oslo"]
        return result.text

    assert await run_task(chat) == "Sunny, and 6."


async def test_outside_of_a_task_the_sdks_runner_runs_a_tool_by_itself(worker: Any, model_env: ModelServer) -> None:
    model_env.script("weather", Reply(calls=(call("get_weather", city="Oslo"),)), Reply("Sunny."))
    model = OpenAIResponsesModel(
        "gpt-4.1", AsyncOpenAI()
    )  # connections of its own: the SDK's belong to another test's loop
    result = await Runner.run(Agent(name="a", model=model, tools=[worker.get_weather]), "weather")
    assert result.final_output == "Sunny."
    assert "sunny in Oslo" in json.dumps(result.to_input_list())


async def test_a_tool_can_be_called_like_its_task(worker: Any, run_task: RunTask) -> None:
    assert await worker.get_weather("Oslo") == "sunny in Oslo"
    assert worker.add(1) == 3

    @env.task
    async def calling() -> str:
        return str(await worker.get_weather("Rome"))

    assert await run_task(calling) == "sunny in Rome"


def test_renaming_changes_neither_the_task_nor_the_first_tool() -> None:
    first = tool(lookup)
    second = tool(first, name="search", description="Search.")
    third = tool(lookup, name_override="find", description_override="Find.")
    assert (first.name, second.name, third.name) == ("lookup", "search", "find")
    assert (second.description, third.description) == ("Search.", "Find.")
    assert lookup.name == "tools.lookup"
    assert first.__wrapped_task__ is second.__wrapped_task__ is lookup


def test_the_sdks_own_options_reach_its_tool() -> None:
    native = tool(lookup, timeout=3.5, is_enabled=False, strict_mode=False)
    assert (native.timeout_seconds, native.is_enabled, native.strict_json_schema) == (3.5, False, False)
    assert tool(native, name="other").timeout_seconds == 3.5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"requires_approval": "yes"}, TypeError, "requires_approval is 'yes'; give True"),
        ({"colour": "red"}, TypeError, "tool\\(\\) has no option colour"),
        ({"on_unknown": "guess"}, ValueError, "on_unknown is 'guess'"),
    ],
)
def test_a_wrong_option_is_an_error_when_the_tool_is_made(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tool(lookup, **options)


def test_what_is_neither_a_task_nor_a_callable_is_no_tool() -> None:
    with pytest.raises(TypeError, match="A tool is made of a Flyte task or a callable; 3 is a int"):
        tool(3)  # type: ignore[call-overload]


def test_a_task_that_takes_the_sdks_context_is_refused() -> None:
    with pytest.raises(TypeError, match="takes the SDK's context in context"):

        @tool
        @env.task
        async def wrong(context: RunContextWrapper[Any], city: str) -> str:
            """Wrong."""
            return city


async def test_an_inline_tool_gets_the_sdks_context(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("who", Reply(calls=(call("whoami", prefix="I am"),)), Reply("done"))

    @tool
    async def whoami(context: ToolContext[Any], prefix: str) -> str:
        """Say who asks."""
        return f"{prefix} {context.context['user']} via {context.tool_name}"

    assert "context" not in whoami.params_json_schema["properties"]

    @env.task
    async def chat() -> str:
        result: AgentResult[str] = await run_agent("who", tools=[whoami], context={"user": "Ada"}, full_result=True)
        return result.tool_calls[0].result

    assert await run_task(chat) == "I am Ada via whoami"


async def test_tasks_callables_and_native_tools_go_together(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(
        "all",
        Reply(calls=(call("lookup", city="Oslo", days=2), call("double", number=4), call("native", x=1))),
        Reply("ok"),
    )

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    @function_tool
    def native(x: int) -> str:
        """The SDK's own."""
        return f"native {x}"

    @env.task
    async def chat() -> list[str]:
        result: AgentResult[str] = await run_agent("all", tools=[lookup, double, native], full_result=True)
        return sorted(item.result for item in result.tool_calls)

    assert await run_task(chat) == ["8", "native 1", '{"Oslo":2}']


async def test_bad_arguments_and_exceptions_are_told_to_the_model(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(
        "try",
        Reply(calls=(call("lookup", city="Oslo", days="soon"),)),
        Reply(calls=(call("lookup", city="Oslo", days="3"), call("broken", city="Oslo"))),
        Reply("ok"),
    )

    @env.task(cache="disable")
    async def broken(city: str) -> str:
        """Break."""
        raise KeyError(city)

    @env.task
    async def chat() -> list[str]:
        result: AgentResult[str] = await run_agent("try", tools=[lookup, broken], full_result=True)
        return [item.result for item in result.tool_calls if item.error] + [
            item.result for item in result.tool_calls if not item.error
        ]

    told = await run_task(chat)
    assert "days" in told[0]
    assert "KeyError" in told[1]
    assert told[2] == '{"Oslo":3}'


async def test_a_failed_tool_call_is_not_run_again_on_a_resume(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("try", Reply(calls=(call("broken", city="Oslo"),)), Reply("ok"))
    state = {"ran": 0, "crash": True}

    @env.task(cache="disable")
    async def broken(city: str) -> str:
        """Break."""
        state["ran"] += 1
        raise KeyError(city)

    @env.task
    async def chat() -> str:
        answer = await run_agent("try", tools=[broken])
        if state["crash"]:
            raise RuntimeError("crash")
        return str(answer)

    with pytest.raises(Exception, match="crash"):
        await run_task(chat)
    state["crash"] = False
    assert await run_task(chat) == "ok"
    assert state["ran"] == 1


async def test_a_tool_error_can_fail_the_run(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("try", Reply(calls=(call("broken", city="Oslo"),)), Reply("never"))
    state = {"ran": 0}

    @env.task(cache="disable")
    async def broken(city: str) -> str:
        """Break."""
        state["ran"] += 1
        raise KeyError(city)

    @env.task(retries=2)
    async def chat() -> str:
        return str(await run_agent("try", tools=[broken], on_tool_error="raise"))

    with pytest.raises(flyte.errors.RuntimeUserError, match="The tool broken failed: KeyError") as raised:
        await run_task(chat)
    assert raised.value.code == "NonRecoverableError"
    assert state["ran"] == 1
    assert model_env.journal.count() == 1


@pytest.mark.parametrize(("limit", "most"), [(None, 3), (2, 2), (1, 1)])
async def test_parallel_calls_overlap_up_to_the_limit(
    model_env: ModelServer, run_task: RunTask, limit: int | None, most: int
) -> None:
    model_env.script("go", Reply(calls=tuple(call("work", number=number) for number in range(3))), Reply("ok"))
    running = {"now": 0, "most": 0}
    lock = threading.Lock()
    together = threading.Barrier(most)

    def work(number: int) -> int:
        """Work."""
        with lock:
            running["now"] += 1
            running["most"] = max(running["most"], running["now"])
        if most in (3, 1) or number < 2:
            together.wait(timeout=20)  # only if they overlap does this let them on
        with lock:
            running["now"] -= 1
        return number

    @env.task
    async def chat() -> list[str]:
        result: AgentResult[str] = await run_agent("go", tools=[work], max_concurrent_tools=limit, full_result=True)
        outputs = [item for item in result.native.to_input_list() if item.get("type") == "function_call_output"]
        return [item["output"] for item in outputs]

    assert await run_task(chat) == ["0", "1", "2"]
    assert running["most"] == most


async def test_a_sync_task_runs_an_agent_again_and_again(model_env: ModelServer, run_task: RunTask) -> None:
    from flyteplugins.agents.openai import run_agent_sync

    model_env.script("weather", Reply(calls=(call("lookup", city="Oslo", days=1),)), Reply("Sunny."))

    @env.task
    def chat() -> str:
        answers = {run_agent_sync("weather", tools=[lookup], name=f"agent {number}") for number in range(3)}
        return ", ".join(answers)

    assert await run_task(chat) == "Sunny."
    assert model_env.journal.count() == 6

    @env.task
    async def wrong() -> str:
        return str(run_agent_sync("weather"))

    with pytest.raises(Exception, match=r"Use `await run_agent\(\.\.\.\)`"):
        await run_task(wrong, name="wrong")


async def test_agents_in_two_event_loops_do_not_share_connections(model_env: ModelServer) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)
    assert await run_agent("Hi?") == "Hello."
    assert await asyncio.to_thread(lambda: asyncio.run(run_agent("Hi?"))) == "Hello."
    assert await run_agent("Hi?") == "Hello."


@dataclasses.dataclass
class Point:
    x: float
    y: float


async def test_a_dataclass_argument_reaches_the_task_as_one(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("length", point={"x": 3, "y": 4}),)), Reply("ok"))

    @env.task(cache="disable")
    async def length(point: Point) -> float:
        """The length of a vector."""
        return math.hypot(point.x, point.y)

    @env.task
    async def chat() -> str:
        result: AgentResult[str] = await run_agent("go", tools=[length], full_result=True)
        return result.tool_calls[0].result

    assert await run_task(chat) == "5.0"
