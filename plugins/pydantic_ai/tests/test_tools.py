"""Tools: tasks, callables, the SDK's own, MCP servers and dynamic toolsets."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, FunctionToolset, ToolsetTool

from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.core import AgentError, ToolCallFinished
from flyteplugins.agents.pydantic_ai import idempotency_key, run_agent, tool

RunTask = Callable[..., Any]
APPS = Path(__file__).parent / "apps"
MODEL = "openai:gpt-4.1"

env = flyte.TaskEnvironment("tools")
effects: list[str] = []
crashes = {"left": 0}


@pytest.fixture(autouse=True)
def _forget() -> None:
    effects.clear()
    crashes["left"] = 0


def crash() -> None:
    if crashes["left"]:
        crashes["left"] -= 1
        raise RuntimeError("crash")


async def twice(run_task: RunTask, task: Any, **inputs: Any) -> Any:
    """Run a task that crashes when its agent is done, and resume it."""
    crashes["left"] = 1
    with pytest.raises(Exception, match="crash"):
        await run_task(task, name="run", **inputs)
    return await run_task(task, name="run", **inputs)


def returns(result: Any) -> list[ToolReturnPart]:
    return [
        part for message in result.native.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)
    ]


@tool
@env.task(cache="disable")
async def lookup(city: str, depth: int = 1) -> str:
    """Look a city up.

    Args:
        city: The city's name.
        depth: How deep.
    """
    effects.append(f"lookup {city} {depth}")
    return f"found {city}"


@tool
@env.task(cache="disable", retries=3)
async def picky(city: str) -> str:
    """Look a city up, if it is spelled well."""
    effects.append(f"picky {city}")
    if city != "Oslo":
        raise ModelRetry("Spell it Oslo.")
    return "found Oslo"


@tool
@env.task(cache="disable")
def broken(city: str) -> str:
    """Fail."""
    effects.append("broken")
    raise ValueError(f"no {city}")


async def test_a_retry_that_a_task_asks_for_reaches_the_model_at_once_and_is_not_asked_for_again_on_a_resume(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(
        "where", Reply(calls=(call("picky", city="Osslo"),)), Reply(calls=(call("picky", city="Oslo"),)), "there"
    )

    @env.task
    async def asking() -> str:
        result = await run_agent("where", tools=[picky], model=MODEL, full_result=True)
        parts = returns(result)
        crash()
        return f"{parts[0].outcome} {parts[0].content} / {parts[1].outcome} {parts[1].content}"

    answer = await twice(run_task, asking)
    assert answer == "retried Spell it Oslo. / success found Oslo"
    assert effects == ["picky Osslo", "picky Oslo"]  # the task's own retries were not used
    assert model_env.journal.per_turn(user="where") == {1: 1, 2: 1, 3: 1}


async def test_a_failure_of_a_tool_is_told_to_the_model_and_kept(model_env: ModelServer, run_task: RunTask) -> None:
    def shaky(city: str) -> str:
        """Fail as well."""
        effects.append("shaky")
        raise KeyError(city)

    model_env.script("where", Reply(calls=(call("broken", city="Oslo"), call("shaky", city="Rome"))), "nowhere")

    @env.task
    async def asking() -> str:
        result = await run_agent("where", tools=[broken, shaky], model=MODEL, full_result=True)
        said = [f"{part.outcome} {part.content}" for part in returns(result)]
        crash()
        return "\n".join(said)

    answer = await twice(run_task, asking)
    assert answer.split("\n") == [
        "failed Error: the tool broken failed. ValueError: no Oslo",
        "failed Error: the tool shaky failed. KeyError: 'Rome'",
    ]
    assert sorted(effects) == ["broken", "shaky"]


@pytest.mark.parametrize("which", ["task", "callable", "the SDK's"])
async def test_a_failure_of_a_tool_ends_the_run_where_that_is_asked_for(
    model_env: ModelServer, run_task: RunTask, which: str
) -> None:
    def shaky(city: str) -> str:
        """Fail."""
        raise ValueError(f"no {city}")

    kinds: dict[str, Any] = {"task": broken, "callable": shaky, "the SDK's": Tool(shaky)}
    name = "broken" if which == "task" else "shaky"
    model_env.script("where", Reply(calls=(call(name, city="Oslo"),)))

    @env.task
    async def asking() -> str:
        return await run_agent("where", tools=[kinds[which]], model=MODEL, on_tool_error="raise")

    with pytest.raises(Exception, match=f"The tool {name} failed: ValueError: no Oslo"):
        await run_task(asking)


async def test_a_bad_argument_is_told_to_the_model(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("where", Reply(calls=(call("lookup", city="Oslo", depth="deep"),)), "nowhere")

    @env.task
    async def asking() -> str:
        result = await run_agent("where", tools=[lookup], model=MODEL, full_result=True)
        return f"{returns(result)[0].outcome}: {returns(result)[0].content}"

    answer = await run_task(asking)
    assert answer.startswith("failed: Error:")
    assert "depth" in answer
    assert effects == []


async def test_the_model_is_told_of_types_defaults_and_descriptions(model_env: ModelServer) -> None:
    await run_agent("What is 2 + 3?", tools=[lookup], model=MODEL)
    [offered] = model_env.journal.requests()[0].body["tools"]
    assert offered["name"] == "lookup"
    assert offered["description"] == "Look a city up."
    assert offered["parameters"]["properties"]["city"] == {"type": "string", "description": "The city's name."}
    assert offered["parameters"]["required"] == ["city"]


class Weather(BaseModel):
    degrees: int


def agent_with_tools(**options: Any) -> Agent[Any, str]:
    agent = Agent(MODEL, name="own", defer_model_check=True, **options)

    @agent.tool
    async def measure(ctx: RunContext[str], city: str) -> Weather:
        effects.append(f"measure {city} for {ctx.deps}")
        return Weather(degrees=20)

    @agent.tool_plain(retries=2)
    def guess(number: int) -> str:
        effects.append(f"guess {number}")
        if number < 3:
            raise ModelRetry("More.")
        return "right"

    return agent


async def test_tools_of_a_pre_built_agent_are_called_once_with_its_context(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script(
        "warm",
        Reply(calls=(call("measure", city="Oslo"), call("guess", number=1))),
        Reply(calls=(call("guess", number=3),)),
        "20 degrees",
    )
    agent = agent_with_tools()

    @env.task
    async def asking() -> str:
        result = await run_agent("warm", agent=agent, deps="Ada", full_result=True)
        crash()
        return " ".join(f"{part.outcome}:{part.content}" for part in returns(result))

    assert await twice(run_task, asking) == "success:{'degrees': 20} retried:More. success:right"
    assert sorted(effects) == ["guess 1", "guess 3", "measure Oslo for Ada"]  # the first two run side by side


async def test_toolsets_without_ids_given_for_one_run_and_dynamic_ones_are_recorded(
    model_env: ModelServer, run_task: RunTask
) -> None:
    def plain(city: str) -> str:
        """One."""
        effects.append(f"plain {city}")
        return "one"

    def dynamic(city: str) -> str:
        """Two."""
        effects.append(f"dynamic {city}")
        return "two"

    async def choose(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        effects.append("chosen")
        return FunctionToolset([dynamic])

    model_env.script("go", Reply(calls=(call("plain", city="Oslo"), call("dynamic", city="Rome"))), "done")

    @env.task
    async def asking() -> str:
        toolsets = [FunctionToolset([plain]), DynamicToolset(choose, per_run_step=True)]
        answer = await run_agent("go", model=MODEL, tools=toolsets[:1], toolsets=toolsets[1:])
        crash()
        return answer

    assert await twice(run_task, asking) == "done"
    assert sorted(effect for effect in effects if effect != "chosen") == ["dynamic Rome", "plain Oslo"]
    chosen = effects.count("chosen")
    assert await run_task(asking, name="run") == "done"
    assert effects.count("chosen") == chosen  # discovery is on record as well


class Own(AbstractToolset[Any]):
    """A toolset of the program's own class."""

    @property
    def id(self) -> str | None:
        return None

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return await FunctionToolset([self.act]).get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        return self.act(**tool_args)

    def act(self, city: str) -> str:
        """Act."""
        effects.append(f"act {city}")
        if city == "Rome":
            raise ModelRetry("Not Rome.")
        return "acted"


async def test_a_toolset_of_the_programs_own_class_is_recorded(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("act", city="Rome"),)), Reply(calls=(call("act", city="Oslo"),)), "done")

    @env.task
    async def asking() -> str:
        result = await run_agent("go", model=MODEL, tools=[Own()], full_result=True)
        crash()
        return " ".join(f"{part.outcome}:{part.content}" for part in returns(result))

    assert await twice(run_task, asking) == "retried:Not Rome. success:acted"
    assert effects == ["act Rome", "act Oslo"]


async def test_a_tool_may_call_tasks_and_run_agents_and_is_counted_the_same_on_a_resume(
    model_env: ModelServer, run_task: RunTask
) -> None:
    expert = Agent(MODEL, name="expert", defer_model_check=True, tools=[lookup])

    async def ask_expert(ctx: RunContext[Any], question: str) -> str:
        """Ask an expert."""
        effects.append("asked")
        answer = await expert.run(question, usage=ctx.usage)
        return answer.output

    model_env.script("start", Reply(calls=(call("ask_expert", question="really?"),)), "yes")
    model_env.script("really", Reply(calls=(call("lookup", city="Oslo"),)), "I think so")
    states: list[Any] = []

    @env.task
    async def asking() -> str:
        result = await run_agent("start", model=MODEL, tools=[ask_expert], full_result=True)
        usage = result.native.usage
        states.append((usage.requests, usage.input_tokens, usage.tool_calls, [turn.agent for turn in result.turns]))
        states.append(result.usage.total.requests)
        crash()
        return result.output

    assert await twice(run_task, asking) == "yes"
    assert effects == ["asked", "lookup Oslo 1"]
    assert model_env.journal.count() == 4
    assert states[0] == states[2]
    assert states[1] == states[3] == 4
    assert states[0][3] == ["flyte-agent", "expert", "expert", "flyte-agent"]


async def test_a_crash_inside_of_a_sub_agent_repeats_none_of_its_turns(
    model_env: ModelServer, run_task: RunTask
) -> None:
    def fragile(city: str) -> str:
        """Crash the process, the first time."""
        effects.append("fragile")
        if crashes["left"]:
            crashes["left"] -= 1
            raise asyncio.CancelledError  # what a dying worker sees, if anything
        return "well"

    expert = Agent(MODEL, name="expert", defer_model_check=True, tools=[tool(fragile)])

    async def ask_expert(question: str) -> str:
        """Ask an expert."""
        return (await expert.run(question)).output

    model_env.script("start", Reply(calls=(call("ask_expert", question="really?"),)), "yes")
    model_env.script("really", Reply(calls=(call("fragile", city="Oslo"),)), "I think so")

    @env.task
    async def asking() -> str:
        return await run_agent("start", model=MODEL, tools=[ask_expert])

    crashes["left"] = 1
    with pytest.raises(BaseException):  # noqa: B017, PT011
        await run_task(asking, name="run")
    assert await run_task(asking, name="run") == "yes"
    assert effects == ["fragile", "fragile"]
    assert model_env.journal.per_turn(user="really?") == {1: 1, 2: 1}
    assert model_env.journal.per_turn(user="start") == {1: 1, 2: 1}


async def test_calls_of_one_turn_run_side_by_side_within_the_limit(model_env: ModelServer, run_task: RunTask) -> None:
    running: list[int] = [0, 0]
    together: list[asyncio.Event] = []

    async def slow(number: int) -> str:
        """Wait until as many run as may."""
        running[0] += 1
        running[1] = max(running)
        if running[0] == (limits[0] or 5):
            together[0].set()
        await asyncio.wait_for(together[0].wait(), 60)
        await asyncio.sleep(0)
        running[0] -= 1
        return str(number)

    limits: list[int] = []
    model_env.script(
        "go", Reply(calls=tuple(call("slow", number=number) for number in range(5))), "done", repeat_last=True
    )

    @env.task
    async def asking(limit: int) -> list[str]:
        running[:] = [0, 0]
        together[:] = [asyncio.Event()]
        limits[:] = [limit]
        result = await run_agent(
            "go", model=MODEL, tools=[slow], full_result=True, max_concurrent_tools=limit or None, name=f"limit {limit}"
        )
        return [str(part.content) for part in returns(result)]

    assert await run_task(asking, limit=2, name="two") == ["0", "1", "2", "3", "4"]
    assert running[1] == 2
    assert await run_task(asking, limit=0, name="none") == ["0", "1", "2", "3", "4"]
    assert running[1] == 5


async def test_a_call_has_one_idempotency_key_on_every_attempt(model_env: ModelServer, run_task: RunTask) -> None:
    keys: list[str] = []

    def pay(amount: int) -> str:
        """Pay."""
        keys.append(idempotency_key())
        crash()
        return "paid"

    model_env.script("pay", Reply(calls=(call("pay", amount=1), call("pay", amount=1))), "done")

    @env.task
    async def asking() -> str:
        return await run_agent("pay", model=MODEL, tools=[Tool(pay, sequential=True)], on_tool_error="raise")

    crashes["left"] = 1
    with pytest.raises(Exception, match="crash"):
        await run_task(asking, name="run")
    assert await run_task(asking, name="run") == "done"
    assert keys[0] == keys[1]
    assert keys[1] != keys[2]


async def test_a_tool_can_opt_out_of_being_recorded(model_env: ModelServer, run_task: RunTask) -> None:
    def clock() -> str:
        """Tell the time."""
        effects.append("clock")
        return "noon"

    model_env.script("time", Reply(calls=(call("clock"),)), "noon")

    @env.task
    async def asking() -> str:
        answer = await run_agent("time", model=MODEL, tools=[tool(clock, durable=False)])
        crash()
        return answer

    assert await twice(run_task, asking) == "noon"
    assert effects == ["clock", "clock"]


async def test_a_tool_of_the_sdks_can_opt_out_by_its_metadata_and_is_told_of(
    model_env: ModelServer, run_task: RunTask
) -> None:
    def clock() -> dict[str, int]:
        """Tell the time."""
        effects.append("clock")
        return {"hour": 12}

    model_env.script("time", Reply(calls=(call("clock"),)), "noon")
    told: list[str] = []

    @env.task
    async def asking() -> str:
        result = await run_agent("time", model=MODEL, tools=[Tool(clock, metadata={"flyte": False})], full_result=True)
        told.extend(one.result for one in result.tool_calls)
        crash()
        return result.text

    assert await twice(run_task, asking) == "noon"
    assert effects == ["clock", "clock"]
    assert [json.loads(one) for one in told] == [{"hour": 12}] * 2


async def test_a_result_that_has_no_json_form_is_an_error_and_nothing_is_lost(
    model_env: ModelServer, run_task: RunTask
) -> None:
    def odd() -> object:
        """Return something odd."""
        return object()

    model_env.script("go", Reply(calls=(call("odd"),)))

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", agent=Agent(MODEL, name="a", tools=[odd], defer_model_check=True)))

    with pytest.raises(Exception, match="the result cannot be made canonical JSON"):
        await run_task(asking)


async def test_tool_calls_are_told_with_arguments_results_and_errors(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("warm", Reply(calls=(call("measure", city="Oslo"), call("guess", number=1))), "20")
    seen: list[ToolCallFinished] = []

    @env.task
    async def asking(durable: bool) -> None:
        await run_agent(
            "warm",
            agent=agent_with_tools(),
            deps="Ada",
            durable=durable,
            on_event=lambda event: seen.append(event) if isinstance(event, ToolCallFinished) else None,
        )

    for durable in (True, False):
        seen.clear()
        await run_task(asking, durable=durable, name=str(durable))
        told = {event.name: event for event in seen}
        assert told["measure"].arguments == {"city": "Oslo"}
        assert "20" in told["measure"].result
        assert told["measure"].agent == "own"
        assert "More." in (told["guess"].error or "")


async def test_the_sdks_options_of_a_tool_are_its_own() -> None:
    renamed = tool(lookup, name="find", description="Find it.", retries=4, timeout=3.0, sequential=True)
    assert (renamed.name, renamed.description, renamed.max_retries, renamed.timeout, renamed.sequential) == (
        "find",
        "Find it.",
        4,
        3.0,
        True,
    )
    assert lookup.name == "lookup"
    with pytest.raises(TypeError, match="no option colour"):
        tool(lookup, colour="red")


def test_a_tool_passes_for_the_sdks_and_survives_copies() -> None:
    assert isinstance(lookup, Tool)
    for other in (copy.copy(lookup), copy.deepcopy(lookup), pickle.loads(pickle.dumps(lookup))):
        assert other.name == "lookup"
        assert Agent("test", tools=[other]).toolsets
    assert lookup.__wrapped_task__ is not None


def test_a_task_that_takes_the_context_is_refused() -> None:
    with pytest.raises(TypeError, match="which no worker has"):

        @tool
        @env.task
        async def nosy(ctx: RunContext[Any], city: str) -> str:
            return city


def test_an_agent_is_not_a_tool() -> None:
    with pytest.raises(TypeError, match="Make a tool of a function that runs it"):
        asyncio.run(run_agent("x", tools=[Agent("test", name="expert")]))


def test_a_worker_of_a_tool_does_not_load_the_sdk() -> None:
    program = (
        "import sys, worker; assert not {'pydantic_ai', 'openai'} & set(sys.modules); "
        "print(worker.add.__wrapped_task__.name)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=APPS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "worker.add"


async def test_a_failed_call_is_told_as_failed_by_a_tool_that_says_so(
    model_env: ModelServer, run_task: RunTask
) -> None:
    @tool
    @env.task(cache="disable", retries=2)
    def gone(city: str) -> str:
        """Say that it is gone."""
        effects.append("gone")
        raise ToolFailed(f"{city} is gone")

    model_env.script("where", Reply(calls=(call("gone", city="Oslo"),)), "gone")

    @env.task
    async def asking() -> str:
        result = await run_agent("where", model=MODEL, tools=[gone], full_result=True)
        return f"{returns(result)[0].outcome}: {returns(result)[0].content}"

    assert await run_task(asking) == "failed: Oslo is gone"
    assert effects == ["gone"]


def test_the_error_of_a_failed_run_is_not_recoverable() -> None:
    assert issubclass(AgentError, flyte.errors.NonRecoverableError)
