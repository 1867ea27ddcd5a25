"""What the SDK lets a program say about tools, output, models and the server's state reaches the provider, and replays."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import pytest
from agents import (
    Agent,
    AgentOutputSchemaBase,
    ApplyPatchOperation,
    ApplyPatchResult,
    ApplyPatchTool,
    CodeInterpreterTool,
    CustomTool,
    FileSearchTool,
    HostedMCPTool,
    LocalShellTool,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    ShellTool,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    WebSearchTool,
    function_tool,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

from flyteplugins.agents.conformance.models import ModelServer, Reply, Usage, call
from flyteplugins.agents.core import AgentResult, ToolCallFinished
from flyteplugins.agents.openai import FunctionTool, run_agent, tool

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("native-options")

EFFECTS: list[str] = []


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    EFFECTS.clear()


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up.

    Args:
        city: The city.
    """
    EFFECTS.append(f"lookup {city}")
    return f"found {city}"


@env.task(cache="disable")
async def broken(city: str) -> str:
    """Never works."""
    EFFECTS.append(f"broken {city}")
    raise ValueError(f"no {city}")


@env.task(cache="disable")
async def slow(city: str) -> str:
    """Takes its time."""
    EFFECTS.append(f"slow {city}")
    await asyncio.Event().wait()
    return city


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


async def twice(run_task: RunTask, **options: Any) -> list[AgentResult[Any]]:
    """Run an agent in a task that crashes when the agent has its answer, and again on a resume."""
    results: list[AgentResult[Any]] = []

    @env.task
    async def chat() -> str:
        results.append(await run_agent("go", full_result=True, **options))
        if len(results) == 1:
            raise Crash("Crash")
        return str(results[-1].text)

    with pytest.raises(Exception, match="Crash"):
        await run_task(chat)
    await run_task(chat)
    return results


# options of tools


def test_every_option_of_function_tool_is_known() -> None:
    """A new one of the SDK's fails here."""
    import inspect

    from flyteplugins.agents.openai import _tool

    ours = {*_tool._FIELDS, *_tool._OTHERS, "name_override", "description_override"}
    ours |= {"docstring_style", "use_docstring_info"}
    theirs = {name for name in inspect.signature(function_tool).parameters if name != "func"}
    assert theirs <= ours
    with pytest.raises(TypeError, match="has no option nonsense"):
        tool(lookup, nonsense=1)


def test_fields_of_the_native_tool_are_what_was_given() -> None:
    def enabled(context: Any, agent: Any) -> bool:
        return True

    def extract(context: Any) -> dict[str, Any]:
        return {}

    given: FunctionTool = tool(
        lookup,
        is_enabled=enabled,
        timeout=3.5,
        timeout_behavior="raise_exception",
        defer_loading=True,
        strict_mode=False,
        custom_data_extractor=extract,
        allowed_callers=["direct", "programmatic"],
        output_json_schema={
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    )
    native = copy.copy(given)
    assert (native.is_enabled, native.timeout_seconds, native.timeout_behavior) == (enabled, 3.5, "raise_exception")
    assert (native.defer_loading, native.strict_json_schema) == (True, False)
    assert native.custom_data_extractor is extract
    assert native.allowed_callers == ["direct", "programmatic"]
    assert native.output_json_schema is not None

    class Found(BaseModel):
        name: str

    typed: FunctionTool = copy.copy(tool(lookup, output_type=Found))
    assert typed.output_json_schema is not None
    assert list(typed.output_json_schema["properties"]) == ["name"]


def test_the_docstring_is_used_as_the_options_say() -> None:
    plain: FunctionTool = copy.copy(tool(lookup))
    bare: FunctionTool = copy.copy(tool(lookup, use_docstring_info=False))
    styled: FunctionTool = copy.copy(tool(lookup, docstring_style="sphinx"))
    assert plain.description == "Look a city up."
    assert bare.description == ""
    assert "description" not in bare.params_json_schema["properties"]["city"]
    assert "Args:" in styled.description
    with pytest.raises(ValueError, match="docstring_style is 'latex'"):
        tool(lookup, docstring_style="latex")


async def test_the_callers_failure_function_says_what_the_model_is_told_once(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("broken", city="Oslo"),)), Reply("done"))
    told: list[str] = []

    def tell(context: RunContextWrapper[Any], error: Exception) -> str:
        told.append(type(error).__name__)
        return f"sorry, {context.tool_name}"  # type: ignore[attr-defined]  # it is a ToolContext

    results = await twice(run_task, tools=[tool(broken, failure_error_function=tell)])
    assert [result.tool_calls[0].result for result in results] == ["sorry, broken"] * 2
    assert len(told) == 1
    assert EFFECTS == ["broken Oslo"]
    assert model_env.journal.count() == 2


async def test_without_a_failure_function_a_tools_exception_fails_the_run(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("broken", city="Oslo"),)), Reply("never"))

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", tools=[tool(broken, failure_error_function=None)]))

    with pytest.raises(flyte.errors.RuntimeUserError, match="The tool broken failed: ValueError: no Oslo") as raised:
        await run_task(chat)
    assert raised.value.code == "NonRecoverableError"


async def test_a_missed_deadline_is_told_to_the_model_and_is_on_record(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("go", Reply(calls=(call("slow", city="Oslo"),)), Reply("done"))
    results = await twice(run_task, tools=[tool(slow, timeout=0.2)])
    outputs = [result.tool_calls[0].result for result in results]
    assert outputs[0] == outputs[1]
    assert "timed out after 0.2 seconds" in outputs[0]
    assert EFFECTS == ["slow Oslo"]


async def test_a_missed_deadline_may_fail_the_run(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("slow", city="Oslo"),)), Reply("never"))

    @env.task
    async def chat() -> str:
        return str(await run_agent("go", tools=[tool(slow, timeout=0.2, timeout_behavior="raise_exception")]))

    with pytest.raises(Exception, match=r"timed out after 0\.2 seconds"):
        await run_task(chat)


async def test_guardrails_of_a_tool_and_custom_data_work(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"), call("lookup", city="Rome"))), Reply("done"))

    def not_rome(data: Any) -> ToolGuardrailFunctionOutput:
        if "Rome" in data.context.tool_arguments:
            return ToolGuardrailFunctionOutput.reject_content("Rome is secret.")
        return ToolGuardrailFunctionOutput.allow()

    guarded = tool(
        lookup,
        tool_input_guardrails=[ToolInputGuardrail(guardrail_function=not_rome)],
        custom_data_extractor=lambda context: {"length": len(context.output)},
    )
    results = await twice(run_task, tools=[guarded])
    items = [[item for item in result.native.new_items if item.type == "tool_call_output_item"] for result in results]
    assert [[item.output for item in one] for one in items] == [["found Oslo", "Rome is secret."]] * 2
    assert [one[0].custom_data for one in items] == [{"length": 10}] * 2
    assert EFFECTS == ["lookup Oslo"]


async def test_a_parameter_of_any_shape_makes_the_schema_a_plain_one(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("note", facts={"a": [1, {"b": None}]}),)), Reply("done"))

    @tool
    def note(facts: dict[str, Any]) -> str:
        """Note facts."""
        return json.dumps(facts)

    results = await twice(run_task, tools=[note, lookup])
    offered = {entry["name"]: entry["strict"] for entry in model_env.journal.requests()[0].body["tools"]}
    assert offered == {"note": False, "lookup": True}
    assert results[1].tool_calls[0].result == '{"a": [1, {"b": null}]}'
    with pytest.raises(Exception, match=r"strict|additionalProperties"):
        copy.copy(tool(note, strict_mode=True))


# the SDK's own tools


async def test_tools_that_the_provider_runs_are_passed_through(model_env: ModelServer, run_task: RunTask) -> None:
    searched = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    model_env.script("go", Reply("done", items=(searched,)), repeat_last=True)
    hosted = [
        WebSearchTool(search_context_size="low"),
        FileSearchTool(vector_store_ids=["vs_1"], max_num_results=2),
        CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}}),
        HostedMCPTool(
            tool_config={
                "type": "mcp",
                "server_label": "docs",
                "server_url": "https://example.invalid/mcp",
                "require_approval": "never",
                "headers": {"Authorization": "Bearer secret-token"},
            }
        ),
    ]
    results = await twice(run_task, tools=hosted, model="gpt-4.1")
    (request,) = model_env.journal.requests()
    assert [entry["type"] for entry in request.body["tools"]] == [
        "web_search",
        "file_search",
        "code_interpreter",
        "mcp",
    ]
    assert request.body["tools"][3]["headers"] == {"Authorization": "Bearer secret-token"}
    items = [[item.to_input_item() for item in result.native.new_items] for result in results]
    assert items[0] == items[1]
    assert items[0][0]["type"] == "web_search_call"


async def test_tools_of_the_sdk_that_act_in_this_process_do_so_once(model_env: ModelServer, run_task: RunTask) -> None:
    custom_call = {"type": "custom_tool_call", "id": "ct1", "call_id": "c2", "name": "sql", "input": "select 1"}
    patch_call = {"type": "apply_patch_call", "id": "p1", "call_id": "c3", "status": "completed",
                  "operation": {"type": "create_file", "path": "a.txt", "diff": "+a"}}  # fmt: skip
    model_env.script("go", Reply(items=(custom_call, patch_call)), Reply("done"))

    class Editor:
        def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
            EFFECTS.append(f"create {operation.path}")
            return ApplyPatchResult(output=f"made {operation.path}")

        update_file = delete_file = create_file

    async def run_sql(context: Any, text: str) -> str:
        EFFECTS.append(text)
        return "1 row"

    hooked: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            hooked.append(tool.name)

    tools = [
        CustomTool(name="sql", description="Run SQL.", on_invoke_tool=run_sql),
        ApplyPatchTool(editor=Editor()),
    ]
    results = await twice(run_task, tools=tools, hooks=Hooks())
    assert sorted(EFFECTS) == ["create a.txt", "select 1"]
    assert outputs_of(results[0]) == outputs_of(results[1])
    assert sorted(hooked) == sorted(["sql", "apply_patch"] * 2)
    assert {one.name for one in results[1].tool_calls} == {"sql", "apply_patch"}
    assert all(one.replayed for one in results[1].tool_calls)
    assert model_env.journal.count() == 2


async def test_a_custom_tool_that_fails_tells_the_model_and_is_not_run_again(
    model_env: ModelServer, run_task: RunTask
) -> None:
    custom_call = {"type": "custom_tool_call", "id": "ct1", "call_id": "c2", "name": "sql", "input": "select 1"}
    model_env.script("go", Reply(items=(custom_call,)), Reply("done"))

    def run_sql(context: Any, text: str) -> str:
        EFFECTS.append(text)
        raise ValueError("no such table")

    results = await twice(run_task, tools=[CustomTool(name="sql", description="Run SQL.", on_invoke_tool=run_sql)])
    assert "no such table" in json.dumps(outputs_of(results[0]))
    assert outputs_of(results[0]) == outputs_of(results[1])
    assert EFFECTS == ["select 1"]


def outputs_of(result: AgentResult[Any]) -> list[Any]:
    return [item.raw_item for item in result.native.new_items if item.type == "tool_call_output_item"]


async def test_the_older_local_shell_runs_once(monkeypatch: pytest.MonkeyPatch, run_task: RunTask) -> None:
    """The SDK's answer to such a call lacks an id that its own types require, so the strict server would refuse it."""
    shell_call = {"type": "local_shell_call", "id": "l1", "call_id": "c1", "status": "completed",
                  "action": {"type": "exec", "command": ["ls"], "env": {}}}  # fmt: skip
    told: list[ToolCallFinished] = []

    async def run_shell(request: Any) -> str:
        EFFECTS.append("shell")
        return "a file"

    with ModelServer(strict=False) as server:
        server.script("go", Reply(items=(shell_call,)), Reply("done"))
        for name, value in server.env().items():
            monkeypatch.setenv(name, value)
        results = await twice(
            run_task,
            tools=[LocalShellTool(executor=run_shell)],
            on_event=lambda event: told.append(event) if isinstance(event, ToolCallFinished) else None,
        )
        assert server.journal.count() == 2
    assert outputs_of(results[0]) == outputs_of(results[1])
    assert EFFECTS == ["shell"]
    assert [(event.name, event.call, event.result, event.replayed) for event in told] == [
        ("local_shell", "c1", "a file", replayed) for replayed in (False, True)
    ]
    assert told[0].arguments == {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}}


async def test_a_shell_tells_what_its_commands_did_once(model_env: ModelServer, run_task: RunTask) -> None:
    from agents import ShellCallOutcome, ShellCommandOutput, ShellResult

    shell_call = {"type": "shell_call", "id": "s1", "call_id": "c1", "status": "completed",
                  "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}}  # fmt: skip
    model_env.script("go", Reply(items=(shell_call,)), Reply("done"))

    async def execute(request: Any) -> ShellResult:
        EFFECTS.append("shell")
        outcome = ShellCallOutcome(type="exit", exit_code=3)
        return ShellResult(output=[ShellCommandOutput(stdout="a file", stderr="oh", outcome=outcome)])

    results = await twice(run_task, tools=[ShellTool(executor=execute)])
    outputs = [
        [item.raw_item for item in result.native.new_items if item.type == "tool_call_output_item"]
        for result in results
    ]
    assert outputs[0] == outputs[1]
    assert "exit_code" in json.dumps(outputs[0])
    assert EFFECTS == ["shell"]
    assert results[0].tool_calls[0].result == "a file\noh"


# output, limits, error handlers


class Plain(AgentOutputSchemaBase):
    """An output schema of the program's own: a number in a box."""

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return "boxed"

    def json_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"box": {"type": "integer"}},
            "required": ["box"],
            "additionalProperties": False,
        }

    def is_strict_json_schema(self) -> bool:
        return True

    def validate_json(self, json_str: str) -> Any:
        return json.loads(json_str)["box"]


async def test_an_output_schema_of_the_callers_own(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(structured={"box": 3}), repeat_last=True)
    results: list[Any] = []

    @env.task
    async def chat() -> int:
        results.append(await run_agent("go", agent=Agent(name="a", model="gpt-4.1", output_type=Plain())))
        return int(results[-1])

    assert await run_task(chat) == await run_task(chat) == 3
    assert model_env.journal.count() == 1
    assert model_env.journal.requests()[0].body["text"]["format"]["schema"] == Plain().json_schema()


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_limit_of_turns_fails_the_task_at_once_and_a_handler_may_answer_instead(
    model_env: ModelServer, run_task: RunTask, streamed: bool
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), repeat_last=True)
    attempts: list[int] = []
    options: dict[str, Any] = {"tools": [lookup], "max_turns": 2}
    if streamed:
        options["on_event"] = lambda event: None

    @env.task(retries=2)
    async def failing() -> str:
        attempts.append(1)
        return str(await run_agent("go", **options))

    @env.task
    async def handled() -> str:
        return str(await run_agent("go", error_handlers={"max_turns": lambda data: "enough"}, **options))

    with pytest.raises(flyte.errors.RuntimeUserError, match="MaxTurnsExceeded") as raised:
        await run_task(failing, name="one")
    assert raised.value.code == "NonRecoverableError"
    assert len(attempts) == 1
    assert await run_task(handled, name="two") == "enough"


# the server's state


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_run_continues_a_chain_of_responses_and_replays_it(
    model_env: ModelServer, run_task: RunTask, streamed: bool
) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"))
    options: dict[str, Any] = {"on_event": lambda event: None} if streamed else {}
    results = await twice(run_task, tools=[lookup], auto_previous_response_id=True, **options)
    first, second = model_env.journal.requests()
    assert "previous_response_id" not in first.body
    assert second.body["previous_response_id"] == first.response_id
    assert [item["type"] for item in second.body["input"]] == ["function_call_output"]
    assert [result.native.last_response_id for result in results] == [second.response_id] * 2


async def test_a_run_continues_a_conversation_on_the_server_once(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply(calls=(call("lookup", city="Oslo"),)), Reply("done"))
    client = AsyncOpenAI()
    conversation = await client.conversations.create()
    results = await twice(run_task, tools=[lookup], conversation_id=conversation.id)
    assert [result.text for result in results] == ["done", "done"]
    assert model_env.journal.count() == 2
    items = client.conversations.items.list(conversation.id, order="asc")
    kept = [getattr(item, "role", None) or item.type async for item in items]
    assert kept == ["user", "function_call", "function_call_output", "assistant"]


async def test_prompt_caching_is_the_callers_and_the_sdks(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script("go", Reply("done", usage=Usage(input=100, output=5, cached=64)), repeat_last=True)
    settings = ModelSettings(prompt_cache_retention="24h", extra_args={"prompt_cache_key": "mine"})
    results = await twice(run_task, run_config=RunConfig(model_settings=settings, tracing_disabled=True))
    (request,) = model_env.journal.requests()
    assert (request.body["prompt_cache_key"], request.body["prompt_cache_retention"]) == ("mine", "24h")
    assert [result.usage.total.cached_tokens for result in results] == [64, 64]
    assert results[1].usage.replayed.cached_tokens == 64


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel], ids=["responses", "chat"])
@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_the_requests_are_those_that_the_sdk_makes_by_itself(
    model_env: ModelServer, run_task: RunTask, kind: Any, streamed: bool
) -> None:
    """With the bare SDK, and in a task with and without durability: equal bodies, but for cache keys that the SDK makes up."""
    model_env.script("go", Reply("Let me see.", calls=(call("look", city="Oslo"),)), Reply("done"))

    @function_tool
    def look(city: str) -> str:
        """Look."""
        return f"found {city}"

    def agent() -> Agent[Any]:
        return Agent(
            name="a",
            instructions="Be brief.",
            model=kind("gpt-4.1", AsyncOpenAI()),
            tools=[look],
            model_settings=ModelSettings(temperature=0.2),
        )

    async def bare() -> None:
        if not streamed:
            await Runner.run(agent(), "go", run_config=RunConfig(tracing_disabled=True))
            return
        result = Runner.run_streamed(agent(), "go", run_config=RunConfig(tracing_disabled=True))
        async for _ in result.stream_events():
            pass

    @env.task
    async def chat(durable: bool) -> str:
        options: dict[str, Any] = {"on_event": lambda event: None} if streamed else {}
        return str(await run_agent("go", agent=agent(), durable=durable, **options))

    bodies: list[list[Any]] = []
    for ask in (
        bare,
        lambda: run_task(chat, durable=True, name="one"),
        lambda: run_task(chat, durable=False, name="two"),
    ):
        model_env.journal.clear()
        await ask()
        bodies.append([without_made_up(entry.body) for entry in model_env.journal.requests()])
    assert len(bodies[0]) == 2
    assert bodies[0] == bodies[1] == bodies[2]


def without_made_up(body: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in body.items()
        if name != "prompt_cache_key" or not value.startswith("agents-sdk:run:")
    }
