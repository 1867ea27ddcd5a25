"""Tools: run once, told of once, with one schema."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime
import enum
import json
import pickle
import time
from typing import Annotated, Any, Literal

import flyte.errors
from pydantic import BaseModel, Field

from flyteplugins.agents.conformance.models import Conversation, Reply, ToolCall, call
from flyteplugins.agents.core import AgentError, tool_schema

from .._capabilities import Capability
from .._checks import NotConformingError, check, expect
from .._stage import EFFECTS, Crash, Stage, env
from ._dialogue import INSTRUCTIONS, note, temperature

AGENT_TOOL = "Make the SDK's tool object of core's AgentTool, whose `call` does this."


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Place:
    """A place."""

    name: str
    height: float = 0.0


class Visit(BaseModel):
    """A visit."""

    place: str
    days: int = 1


@env.task(cache="disable")
async def many(
    colour: Colour,
    mode: Literal["a", "b"],
    place: Place,
    visit: Visit,
    numbers: list[float],
    when: datetime.datetime,
    limit: Annotated[int, Field(description="How many at most.")] = 3,
    config: str | None = None,
) -> dict[str, Any]:
    """Take many types.

    Args:
        colour: The colour.
        numbers: Some numbers.
    """
    EFFECTS.append("many")
    return {
        "types": [type(one).__name__ for one in (colour, mode, place, visit, numbers, when, limit, config)],
        "numbers": [type(one).__name__ for one in numbers],
    }


def nothing() -> float:
    """Take nothing."""
    return float("nan")


@env.task(cache="disable")
async def failing(city: str) -> str:
    """Fail."""
    EFFECTS.append(f"failing {city}")
    raise ValueError(f"no such city: {city}")


def _results(conversation: Conversation) -> list[str]:
    return [result.text for result in conversation.results]


class Seen:
    """Scripts calls, and keeps what the model is shown.

    Args:
        stage: Where.
        calls: What it calls, at once.
    """

    def __init__(self, stage: Stage, *calls: ToolCall) -> None:
        self.first: Conversation | None = None
        self.results: list[str] = []
        stage.server.script(None, Reply(calls=calls), self._answer, repeat_last=True)
        self._calls = calls

    def _answer(self, conversation: Conversation) -> Reply:
        self.first = conversation
        self.results = _results(conversation)
        return Reply("done")


async def _run(stage: Stage, seen: Seen, tools: list[Any], run: str = "run", **more: Any) -> Any:
    del seen
    given = {"model": stage.adapter.model, "instructions": INSTRUCTIONS, "tools": tools} | more
    return await stage.crash(lambda: stage.adapter.run_agent("Go.", **given), run)


@check("tools.schema", Capability.TASK_TOOLS)
async def every_adapter_has_one_schema(stage: Stage) -> None:
    """The model is told of a tool what core's schema says: names, descriptions, which are required, and types."""
    seen = Seen(stage, call("nothing"))
    await _run(stage, seen, [stage.adapter.tool(many), nothing])
    assert seen.first is not None
    offered = {tool.name.removeprefix(stage.adapter.tool_prefix): tool for tool in seen.first.tools}
    wanted = tool_schema(many.func)
    expect(sorted(offered), ["many", "nothing"], "the names of the tools on offer", AGENT_TOOL)
    expect(offered["many"].description, wanted.description, "the description of a tool", AGENT_TOOL)
    properties: Any = offered["many"].parameters.get("properties")
    expect(list(properties), list(wanted.parameters["properties"]), "its parameters", AGENT_TOOL)
    for name, described in wanted.parameters["properties"].items():
        if "description" in described and "$ref" not in described:
            text = properties[name].get("description")
            expect(text, described["description"], f"the description of {name}", AGENT_TOOL)
    text = json.dumps(offered["many"].parameters)
    for word in ("red", "blue", '"a"', '"b"', "height", "days", "date-time", "How many at most."):
        expect(word in text, True, f"{word} is in the tool's schema", AGENT_TOOL)
    expect(seen.results, ['"NaN"'], "what a tool without arguments gives", AGENT_TOOL)


@check("tools.arguments", Capability.TASK_TOOLS)
async def arguments_are_read_by_their_types(stage: Stage) -> None:
    """What the model sends becomes what the task takes, and what does not fit is told to the model."""
    arguments: dict[str, Any] = {
        "colour": "red",
        "mode": "a",
        "place": {"name": "Oslo", "height": 3},
        "visit": {"place": "Oslo", "days": 2},
        "numbers": "[1, 2]",
        "when": "2026-01-02T03:04:05",
        "limit": 3,
        "config": None,
    }
    seen = Seen(stage, ToolCall("many", arguments), ToolCall("many", {**arguments, "colour": "green"}))
    await _run(stage, seen, [stage.adapter.tool(many)])
    expect(len(seen.results), 2, "results of two calls", AGENT_TOOL)
    try:
        result = json.loads(seen.results[0])
    except ValueError as error:
        raise NotConformingError(f"A result that is no text is not JSON: {seen.results[0]!r}. {AGENT_TOOL}") from error
    types = ["Colour", "str", "Place", "Visit", "list", "datetime", "int", "NoneType"]
    expect(result["types"], types, "the types that a task gets", AGENT_TOOL)
    expect(result["numbers"], ["float", "float"], "the types inside of a list", AGENT_TOOL)
    expect("colour" in seen.results[1], True, f"the model is told what does not fit ({seen.results[1]})", AGENT_TOOL)
    expect(stage.did(), ["many"], "what ran", "Validate before anything runs.")


@check("tools.failures", Capability.TASK_TOOLS)
async def a_failure_is_told_to_the_model_or_fails_the_run(stage: Stage) -> None:
    """A tool's exception reaches the model and is not run again; with `on_tool_error="raise"` it fails the run for good."""
    seen = Seen(stage, call("failing", city="Atlantis"))
    tools = [stage.adapter.tool(failing)]
    await _run(stage, seen, tools)
    expect("no such city: Atlantis" in seen.results[0], True, f"what the model is told ({seen.results})", AGENT_TOOL)
    stage.did()
    expect(await _run(stage, seen, tools), "done", "the answer on a replay", AGENT_TOOL)
    expect(stage.did(), [], "failed tools that are run again on a resume", AGENT_TOOL)
    attempts: list[int] = []

    async def body() -> Any:
        attempts.append(1)
        return await stage.adapter.run_agent("Go.", model=stage.adapter.model, tools=tools, on_tool_error="raise")

    todo = "Let AgentTool's AgentError pass the SDK's loop; core's agent run unwraps it."
    try:
        answer = await stage.attempt(body, "raise", retried=True)
    except flyte.errors.NonRecoverableError as error:
        expect("no such city" in str(error), True, f"the error says why ({error})", todo)
    except Exception as error:
        raise NotConformingError(f'on_tool_error="raise" raised {type(error).__name__}: {error}. {todo}') from error
    else:
        expect(answer, "an error", 'a tool\'s exception with on_tool_error="raise"', todo)
    expect(len(attempts), 1, "attempts", todo)


@check("tools.overlap", Capability.TASK_TOOLS)
async def calls_of_one_turn_overlap_and_keep_their_order(stage: Stage) -> None:
    """Parallel calls run side by side, as many as may, and their results have the order of the calls, whoever is first."""
    running: list[int] = [0, 0, 0]

    async def wait(name: str, centiseconds: int) -> str:
        """Wait."""
        running[0] += 1
        running[1] = max(running[:2])
        deadline = time.monotonic() + 5
        while running[1] < running[2]:
            await asyncio.sleep(0.005)
            if time.monotonic() > deadline:
                running[2] = 0
        await asyncio.sleep(centiseconds / 100)
        running[0] -= 1
        return f"{name} waited"

    names = ["a", "b", "c", "d"]
    for order, limit in (([9, 6, 3, 0], None), ([0, 9, 3, 6], 2), ([3, 0, 9, 6], 1)):
        stage.server.clear()
        running[:] = [0, 0, limit or 4]
        calls = [
            call("wait", name=name, centiseconds=centiseconds) for name, centiseconds in zip(names, order, strict=True)
        ]
        seen = Seen(stage, *calls)
        run = f"limit-{limit}"
        await _run(stage, seen, [wait], run, max_concurrent_tools=limit)
        wanted = [f"{name} waited" for name in names]
        expect(
            seen.results,
            wanted,
            f"results of calls that end in the order of {order}",
            "Give results in the calls' order.",
        )
        expect(running[1], limit or 4, f"calls at once with max_concurrent_tools={limit}", AGENT_TOOL)
        stage.asked()
        await _run(stage, seen, [wait], run, max_concurrent_tools=limit)
        expect((seen.results, stage.asked()), (wanted, 0), "results and requests on a replay", AGENT_TOOL)


@check("tools.once", Capability.INLINE_TOOLS)
async def a_finished_tool_is_not_run_again(stage: Stage) -> None:
    """A call that ended is not run again, though its body was changed since; one that was opted out is."""
    seen = Seen(stage, call("note", text="x"), call("temperature", city="Oslo"), call("free", text="y"))

    def free(text: str) -> str:
        """Say it."""
        EFFECTS.append(f"free {text}")
        return text

    tool = stage.adapter.tool
    await _run(stage, seen, [note, temperature, tool(free, durable=False)])
    expect(stage.did(), ["free y", "note x", "temperature Oslo"], "tools of a first attempt", AGENT_TOOL)

    def changed(text: str) -> str:
        """Write something down.

        Args:
            text: What to write.
        """
        EFFECTS.append("changed")
        return text

    stage.asked()
    again = [tool(changed, name="note", description=tool_schema(note).description), temperature]
    await _run(stage, seen, [*again, tool(free, durable=False)])
    expect(stage.did(), ["free y"], "tools of a second attempt", AGENT_TOOL)
    expect(seen.results, ["noted: x", "20 degrees in Oslo", "y"], "what the model was told", AGENT_TOOL)
    expect(stage.asked(), 0, "requests of a second attempt", "A tool's body is no part of a turn's key.")


@check("tools.keys_of_effects", Capability.INLINE_TOOLS)
async def a_call_has_a_key_of_its_own(stage: Stage) -> None:
    """`idempotency_key()` is the same on every attempt of a call, and different for every other call."""
    found: list[str] = []
    idempotency_key = stage.adapter.export("idempotency_key")

    def pay(amount: int) -> str:
        """Pay."""
        del amount
        found.append(idempotency_key())
        if len(found) == 2:
            raise Crash
        return "paid"

    stage.server.script(None, Reply(calls=(call("pay", amount=1),)), Reply(calls=(call("pay", amount=1),)), "done")

    async def body() -> Any:
        return await stage.adapter.run_agent("Go.", model=stage.adapter.model, tools=[pay])

    try:
        await stage.attempt(body)
    except Crash:
        pass
    else:
        raise NotConformingError("A tool died, and the run went on. Let what is no Exception pass.")
    expect(await stage.attempt(body), "done", "the answer of the second attempt", AGENT_TOOL)
    expect(len(found), 3, "calls of the tool in both attempts", AGENT_TOOL)
    expect(found[1] == found[2], True, "a call that died has the same key when it is made again", AGENT_TOOL)
    expect(found[0] != found[1], True, "two equal calls have different keys", AGENT_TOOL)


@check("tools.nested", Capability.INLINE_TOOLS)
async def a_function_may_call_tasks_and_agents(stage: Stage) -> None:
    """A plain function runs in the task's context: it may call tasks, and run agents whose turns are recorded."""
    adapter = stage.adapter

    async def delegate(city: str) -> str:
        """Ask somebody else."""
        warm = await temperature.aio(city)
        return f"{warm}; {await adapter.run_agent('Inner?', model=adapter.model, name='inner')}"

    stage.server.script("Outer", Reply(calls=(call("delegate", city="Oslo"),)), "done")
    stage.server.script("Inner", "inner answer")

    async def body() -> Any:
        result = await adapter.run_agent("Outer?", model=adapter.model, tools=[delegate], full_result=True)
        return result.tool_calls[0].result

    wanted = "20 degrees in Oslo; inner answer"
    expect(await stage.crash(body), wanted, "what the tool gave", AGENT_TOOL)
    expect(stage.asked(), 3, "requests of both agents", AGENT_TOOL)
    stage.did()
    for path in stage.records(kind="tool"):
        path.unlink()
    for path in stage.folder().rglob("started.*"):
        path.unlink()
    expect(await stage.attempt(body), wanted, "what the tool gives when it is run again", AGENT_TOOL)
    expect(stage.asked(), 0, "requests of an agent inside of a tool that is run again", AGENT_TOOL)


@check("tools.unknown", Capability.INLINE_TOOLS)
async def a_call_without_an_outcome_is_decided_about(stage: Stage) -> None:
    """A call that had started when the attempt died is made again and told of, or with `on_unknown="fail"` fails the run."""
    adapter = stage.adapter
    deaths: list[str] = []

    def risky(text: str) -> str:
        """Do something."""
        if text not in deaths:
            deaths.append(text)
            raise Crash
        return "done"

    for decision in ("retry", "fail"):
        stage.server.clear()
        stage.server.script(None, Reply(calls=(call("risky", text=decision),)), "over")
        told: list[str] = []

        async def body(decision: str = decision, told: list[str] = told) -> Any:
            return await adapter.run_agent(
                "Go.",
                model=adapter.model,
                tools=[adapter.tool(risky, on_unknown=decision)],
                on_event=lambda event: told.append(event.type),
                **adapter.streaming,
            )

        try:
            await stage.attempt(body, decision)
        except Crash:
            told.clear()
        if decision == "retry":
            expect(await stage.attempt(body, decision), "over", "the answer of the second attempt", AGENT_TOOL)
            expect("tool call repeated" in told, True, f"somebody is told that it is run again ({told})", AGENT_TOOL)
            continue
        try:
            answer = await stage.attempt(body, decision)
        except AgentError as error:
            expect("risky" in str(error), True, f"the error names the tool ({error})", AGENT_TOOL)
        else:
            expect(answer, "an error", 'a call that had started, with on_unknown="fail"', AGENT_TOOL)


@check("tools.copies", Capability.TASK_TOOLS)
async def a_tool_can_be_copied_and_renamed(stage: Stage) -> None:
    """The tool survives copy, deepcopy and pickle, can be called like its task, and renaming changes nothing of it."""
    adapter = stage.adapter
    made = adapter.tool(temperature)
    stage.server.script(None, Reply(calls=(call("temperature", city="Oslo"), call("warmth", city="Rome"))), "done")
    ways: dict[str, Any] = {
        "itself": lambda: made,
        "copy": lambda: copy.copy(made),
        "deepcopy": lambda: copy.deepcopy(made),
    }
    ways["pickle"] = lambda: pickle.loads(pickle.dumps(made))
    for name, way in ways.items():
        other = adapter.tool(made, name="warmth", description="Warmth.")
        given = adapter.agent(INSTRUCTIONS, [way(), other])
        answer = await stage.crash(lambda given=given: adapter.run_agent("Go.", **given), name)  # type: ignore[misc]
        expect(answer, "done", f"the answer with a tool as {name}", "Let core's NativeTool be the tool.")
        done = ["temperature Oslo", "temperature Rome"]
        expect(stage.did(), done, f"what a tool as {name} did", "Let core's NativeTool be the tool.")
    direct = await stage.attempt(lambda: made(city="Oslo"), "direct")
    expect(direct, "20 degrees in Oslo", "what a tool gives when it is called like its task", AGENT_TOOL)
