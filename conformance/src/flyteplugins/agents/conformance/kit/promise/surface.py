"""What an adapter exports, takes and gives back."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from typing import Any

from flyteplugins.agents.conformance.models import Fault
from flyteplugins.agents.core import AgentResult

from .._capabilities import Capability
from .._checks import check, expect
from .._stage import Stage, env
from ._dialogue import ANSWER, QUESTION, City, agent_options, note, options, script, structured

DEFAULTS: dict[str, Any] = {
    "agent": None,
    "tools": (),
    "model": None,
    "instructions": None,
    "name": None,
    "output_type": None,
    "durable": True,
    "observability": True,
    "memory_key": None,
    "budget": None,
    "on_event": None,
    "on_tool_error": "model",
    "max_concurrent_tools": None,
    "full_result": False,
}


@check("surface.names")
async def names_and_defaults(stage: Stage) -> None:
    """`tool`, `run_agent` and `run_agent_sync` have the same keywords and defaults as in every adapter."""
    run_agent, run_agent_sync = stage.adapter.run_agent, stage.adapter.run_agent_sync
    expect(inspect.iscoroutinefunction(run_agent), True, "run_agent is a coroutine function", "Make it `async def`.")
    given = inspect.signature(run_agent).parameters
    first, *rest = given.values()
    expect(first.name, "input", "run_agent's first parameter", "Take what the user says as `input`.")
    found = {name: given[name].default for name in DEFAULTS if name in given}
    expect(found, DEFAULTS, "run_agent's keywords and their defaults", "Add those that differ.")
    positional = [one.name for one in rest if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    expect(positional, [], "positional parameters behind the input", "Put a `*` behind `input`.")
    same = inspect.signature(run_agent_sync).parameters
    expect(list(same), list(given), "run_agent_sync's parameters", "Make it with core's `sync_variant`.")
    expect(
        inspect.iscoroutinefunction(run_agent_sync), False, "run_agent_sync is a coroutine function", "Make it sync."
    )
    expect(
        {"name", "description"} <= set(inspect.signature(stage.adapter.tool).parameters),
        True,
        "tool takes name= and description=",
        "Add them, and hand them to NativeTool.of.",
    )


@check("surface.light")
async def the_sdk_loads_when_an_agent_runs(stage: Stage) -> None:
    """Importing `tool` and `run_agent`, and making tools with them, does not import the SDK."""
    program = (
        "import json, sys, flyte\n"
        f"from {stage.adapter.module} import run_agent, tool\n"
        "env = flyte.TaskEnvironment('light')\n"
        "@tool\n@env.task\n"
        "async def look(city: str) -> str:\n    return city\n"
        f"print(json.dumps([name for name in {stage.adapter.sdk!r} if name in sys.modules]))"
    )
    argv = [sys.executable, "-c", program]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, check=False)
    expect(done.returncode, 0, f"a program with nothing but a tool in it ({done.stderr[-500:]})", "Mend its error.")
    loaded = json.loads(done.stdout.splitlines()[-1])
    expect(loaded, [], "SDK modules that it loads", "Import the SDK inside of run_agent and of the tool's factory.")


@check("surface.sync")
async def a_sync_task_can_run_agents(stage: Stage) -> None:
    """`run_agent_sync` works again and again in a sync task, and refuses to block an event loop."""
    stage.server.script(None, "Hello.", repeat_last=True)
    adapter = stage.adapter

    @env.task(cache="disable")
    def in_sync(names: list[str]) -> list[str]:
        return [str(adapter.run_agent_sync("Hi", model=adapter.model, name=name)) for name in names]

    async def body() -> Any:
        return await in_sync.aio(["a", "b"])

    todo = "Make run_agent_sync with core's `sync_variant`."
    expect(await stage.attempt(body), ["Hello.", "Hello."], "answers of two agents in a sync task", todo)
    try:
        adapter.run_agent_sync("Hi", model=adapter.model)
    except RuntimeError as error:
        expect("await" in str(error), True, "the error inside a running event loop says to use await", todo)
    else:
        expect("an answer", "a RuntimeError", "run_agent_sync inside a running event loop", todo)


@check("surface.result", Capability.OUTPUT)
async def the_answer_has_the_type_that_was_asked_for(stage: Stage) -> None:
    """The answer is text, an instance of `output_type`, or an `AgentResult`, live and replayed."""
    stage.server.script(None, structured, repeat_last=True)
    run_agent, model = stage.adapter.run_agent, stage.adapter.model

    async def body() -> Any:
        text = await run_agent("Hi", model=model)
        city = await run_agent("Hi, Oslo", model=model, output_type=City)
        full = await run_agent("Hi, Oslo", model=model, output_type=City, full_result=True)
        return text, city, full

    for which in ("live", "replayed"):
        text, city, full = await stage.attempt(body)
        expect(text, "Cold.", f"the {which} answer as text", "Return the final text.")
        expect(city, City(name="Oslo", degrees=3.5), f"the {which} answer", "Return an instance of output_type.")
        expect(type(full), AgentResult, f"the {which} full result", "Return `run.result(...)` of core's agent run.")
        expect(full.output, city, f"the {which} full result's output", "Give the instance to `run.result(...)`.")
        json.dumps(full.as_dict())


@check("surface.caller", Capability.AGENTS)
async def what_the_caller_passes_stays_as_it_was(stage: Stage) -> None:
    """Neither the pre-built agent nor the list of tools is changed."""
    script(stage.server)
    given = agent_options(stage)
    more = [renamed]
    before = {name: _shape(value) for name, value in given.items()}

    async def body(**options: Any) -> Any:
        return await stage.adapter.run_agent(QUESTION, **{**given, **options})

    todo = "Work on a copy: a pre-built agent may run in other tasks at the same time."
    expect(await stage.attempt(body, "alone"), ANSWER, "the answer of a pre-built agent", todo)
    try:
        added = [*given.get("tools", ()), *more] if "tools" in given else more
        answer = await stage.attempt(lambda: body(tools=added), "with-a-tool")
        expect(answer, ANSWER, "the answer of a pre-built agent with a tool added", todo)
    except ValueError as error:
        expect("tools" in str(error), True, f"the refusal of tools beside an agent names them ({error})", todo)
    expect(more, [renamed], "the caller's list of tools", todo)
    for name, value in given.items():
        after = {key: shape for key, shape in _shape(value).items() if key in before[name]}
        expect(after, before[name], f"the attributes of the caller's {name}=", todo)


def renamed(text: str) -> str:
    """Say it again."""
    return text


def _shape(value: object) -> dict[str, object]:
    """Which object each attribute is, and how long the containers among them are."""
    found = vars(value) if hasattr(value, "__dict__") else {}
    return {
        name: (id(item), len(item) if isinstance(item, (list, dict, set)) else None) for name, item in found.items()
    }


@check("surface.excludes", Capability.AGENTS)
async def an_agent_excludes_what_it_has_itself(stage: Stage) -> None:
    """A pre-built agent together with `model`, or with `output_type`, is an error that names them."""
    for name, value in (("model", stage.adapter.model), ("output_type", City)):
        try:
            await stage.adapter.run_agent("Hi", **{**agent_options(stage, [note]), name: value})
        except (ValueError, TypeError) as error:
            expect(name in str(error), True, f"the error names {name}= ({error})", "Name the arguments.")
        else:
            expect("an answer", "a ValueError", f"agent= together with {name}=", "Refuse it: one of them is ignored.")
    expect(stage.asked(), 0, "requests for a run that is refused", "Refuse before anything is asked.")


@check("surface.outside")
async def outside_of_a_task_nothing_is_different(stage: Stage) -> None:
    """Outside of a Flyte task the same call gives the same answer, and the SDK's own exceptions pass."""
    script(stage.server)
    answer = await stage.adapter.run_agent(QUESTION, **options(stage))
    expect(answer, ANSWER, "the answer outside of a task", "Let core's agent run pass everything through.")
    expect(stage.did(), ["note Rome", "temperature Oslo", "temperature Rome"], "what the tools did", "Run them.")
    stage.server.clear()
    stage.server.script(None, "never")
    stage.server.fault(Fault.unauthorized())
    try:
        await stage.adapter.run_agent("Hi", model=stage.adapter.model)
    except Exception as error:  # noqa: BLE001 - which one it is is what is looked at
        ours = type(error).__module__.startswith("flyteplugins.agents.core")
        expect(ours, False, f"the error of a wrong key is ours ({error!r})", "Let the SDK's own exception pass.")
    else:
        expect("an answer", "an exception", "a wrong key outside of a task", "Let the SDK's own exception pass.")


@check("surface.not_durable")
async def without_durability_only_task_tools_are_recorded(stage: Stage) -> None:
    """With `durable=False` turns and plain functions are made again, and task tools are not."""
    script(stage.server)

    async def body() -> Any:
        return await stage.adapter.run_agent(QUESTION, **options(stage, durable=False))

    await stage.crash(body)
    stage.asked(), stage.did()
    expect(await stage.attempt(body), ANSWER, "the answer of the second attempt", "Make its turns again.")
    expect(stage.asked(), 3, "requests of a second attempt with durable=False", "Hand `durable` to core's agent run.")
    expect(stage.did(), ["note Rome"], "what tools did again", "Make task tools with core's AgentTool.")
