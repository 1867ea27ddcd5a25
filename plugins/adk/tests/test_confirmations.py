"""Confirmations that the SDK asks for: a person decides in the middle of the call, and the call goes on as the SDK has it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, FunctionNode, Workflow

from flyteplugins.agents.adk import run_agent, tool
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer, reviewer
from flyteplugins.agents.core import canonical_json

__all__ = ["reviewer"]

RunTask = Callable[..., Any]
GEMINI = "gemini-3.5-flash"

env = flyte.TaskEnvironment("confirmations", cache="disable")

DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


async def refund(order: str, cents: int = 100) -> str:
    """Refund an order."""
    DONE.append(f"refund {order} {cents}")
    return f"refunded {order}"


async def look_up(order: str) -> str:
    """Look an order up."""
    DONE.append(f"look up {order}")
    return f"found {order}"


async def time_off(days: int, tool_context: ToolContext) -> dict[str, Any]:
    """Ask for days off."""
    answer = tool_context.tool_confirmation
    DONE.append("asks" if answer is None else f"answered {answer.confirmed} {answer.payload}")
    if answer is None:
        tool_context.state["asked"] = days
        tool_context.request_confirmation(hint="How many days?", payload={"days": days})
        return {"status": "waits"}
    return {"status": "granted", **(answer.payload or {})} if answer.confirmed else {"status": "refused"}


def much(order: str, cents: int = 100) -> bool:
    return cents >= 1000


def much_with_context(cents: int, tool_context: ToolContext) -> bool:
    assert tool_context.agent_name == "assistant"
    return cents >= 1000


def proposes(model: ModelServer, *calls: Any) -> None:
    model.script("^go$", Reply(calls=calls), lambda conversation: Reply(json.dumps(results(conversation.body or {}))))


def results(body: dict[str, Any]) -> list[Any]:
    return [
        part["functionResponse"]["response"]
        for content in body["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]


def asking(*tools: Any, **options: Any) -> Any:
    """A task that runs an agent with these tools, and gives what the model was told of them."""

    @env.task
    async def ask() -> str:
        given = options or {"tools": list(tools), "model": GEMINI}
        return str(await run_agent("go", **given))

    return ask


async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer
) -> None:
    """Approved, denied with the SDK's own result, and not asked about; the next attempt asks nobody, and runs nothing."""
    proposes(
        model_env,
        *(call(name, order=order) for name, order in zip(("refund", "look_up", "refund"), "abc", strict=True)),
    )
    reviewer.says('"a"', "yes")
    reviewer.says('"c"', "no")
    task = asking(FunctionTool(refund, require_confirmation=True), FunctionTool(look_up))
    rejected = "This tool call is rejected. refund was not approved: a person denied it. It was not done."
    told = [{"result": "refunded a"}, {"result": "found b"}, {"error": rejected}]
    for _ in range(2):
        assert json.loads(await run_task(task, name="run")) == told
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 2


async def test_the_digest_is_that_of_the_arguments_that_run(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer
) -> None:
    """Defaults included; what the person said reaches the model."""
    proposes(model_env, call("refund", order="a"))
    reviewer.says('"a"', "no: it is too late")
    told = json.loads(await run_task(asking(FunctionTool(refund, require_confirmation=True)), name="run"))
    assert told[0]["error"].startswith("This tool call is rejected. ")
    assert told[0]["error"].endswith("They said: it is too late")
    [asked] = reviewer.asked
    assert hashlib.sha256(canonical_json({"order": "a", "cents": 100})).hexdigest() in asked
    assert "FunctionResponse" not in asked
    assert DONE == []


@pytest.mark.parametrize(
    "made",
    [
        FunctionTool(refund, require_confirmation=much),
        tool(refund, require_confirmation=much),
        tool(refund, require_confirmation=much_with_context),
        tool(env.task(refund), require_confirmation=much),
    ],
    ids=["the SDK's", "a callable", "with the context", "a task"],
)
async def test_a_rule_says_which_calls_are_asked_about(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer, made: Any
) -> None:
    proposes(model_env, call("refund", order="a", cents=1000), call("refund", order="b", cents=5))
    reviewer.says('"a"', "yes")
    for _ in range(2):
        await run_task(asking(made), name="run")
    assert sorted(DONE) == ["refund a 1000", "refund b 5"]
    assert len(reviewer.asked) == 1


@pytest.mark.parametrize("first", [True, False], ids=["asked first", "not asked first"])
async def test_a_rule_that_changes_runs_nothing_that_was_refused_and_asks_about_nothing_that_is_done(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer, first: bool
) -> None:
    proposes(model_env, call("refund", order="a"))
    reviewer.says('"a"', "no")
    now = [first]
    task = asking(FunctionTool(refund, require_confirmation=lambda order: now[0]))
    before = await run_task(task, name="run")
    now[0] = not first
    assert await run_task(task, name="run") == before
    assert ([] if first else ["refund a 100"]) == DONE
    assert len(reviewer.asked) == int(first)


@pytest.mark.parametrize("made", [FunctionTool(time_off), tool(time_off)], ids=["the SDK's", "tool"])
@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("approve", {"status": "granted", "days": 5}),
        ('{"days": 2}', {"status": "granted", "days": 2}),
        ("deny", {"status": "refused"}),
    ],
)
async def test_a_tool_that_asks_in_its_call_gets_the_persons_payload(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer, made: Any, typed: str, told: dict[str, Any]
) -> None:
    """It is called again with the answer, both calls are on record, and the state that the first one wrote is kept."""
    proposes(model_env, call("time_off", days=5))
    reviewer.says("How many days", typed)

    @env.task
    async def ask() -> str:
        result: Any = await run_agent("go", tools=[made], model=GEMINI, full_result=True)
        kept = [event.actions.state_delta for event in result.native if event.actions.state_delta]
        return json.dumps([json.loads(result.text), kept])

    for _ in range(2):
        [shown], kept = json.loads(await run_task(ask, name="run"))
        assert (json.loads(shown["result"]) if shown.keys() == {"result"} else shown) == told
        assert kept == [{"asked": 5}]
    confirmed, days = told["status"] == "granted", told.get("days", 5)
    assert ["asks", f"answered {confirmed} {{'days': {days}}}"] == DONE
    assert len(reviewer.asked) == 1


async def test_a_nested_agents_tool_waits_and_goes_on(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer
) -> None:
    """The SDK itself cannot go on with an agent that is used as a tool."""
    model_env.script("^go$", Reply(calls=(call("clerk", request="pay a"),)), "all done", system="You lead")
    model_env.script("pay a", Reply(calls=(call("refund", order="a"),)), "paid", system="You pay")
    reviewer.says('"a"', "yes")
    pays = FunctionTool(refund, require_confirmation=True)
    clerk = LlmAgent(name="clerk", model=GEMINI, instruction="You pay", tools=[pays])
    task = asking(agent=LlmAgent(name="lead", model=GEMINI, instruction="You lead", tools=[AgentTool(clerk)]))
    for _ in range(2):
        assert await run_task(task, name="run") == "all done"
    assert DONE == ["refund a 100"]
    assert len(reviewer.asked) == 1
    assert model_env.journal.count() == 4


async def test_a_child_that_was_reached_by_transfer_asks(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer
) -> None:
    model_env.script(
        "^go$",
        Reply(calls=(call("transfer_to_agent", agent_name="clerk"),)),
        Reply(calls=(call("refund", order="a"),)),
        "paid",
    )
    reviewer.says('"a"', "yes")
    pays = FunctionTool(refund, require_confirmation=True)
    clerk = LlmAgent(name="clerk", model=GEMINI, description="Pays.", tools=[pays])
    root = LlmAgent(name="root", model=GEMINI, sub_agents=[clerk])
    for _ in range(2):
        assert await run_task(asking(agent=root), name="run") == "paid"
    assert DONE == ["refund a 100"]
    assert len(reviewer.asked) == 1


async def test_a_callback_that_asks_in_place_of_the_tool_is_answered(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer
) -> None:
    """There the SDK ends its run, and goes on with the answer."""
    proposes(model_env, call("refund", order="a"))
    reviewer.says('"a"', "yes")

    def before(tool: BaseTool, args: dict[str, Any], tool_context: ToolContext) -> dict[str, str] | None:
        if tool_context.tool_confirmation is not None:
            return None
        tool_context.request_confirmation(hint="Really?")
        tool_context.actions.skip_summarization = True
        return {"status": "waits"}

    agent = LlmAgent(name="one", model=GEMINI, tools=[refund], before_tool_callback=before)
    for _ in range(2):
        assert "refunded a" in await run_task(asking(agent=agent), name="run")
    assert DONE == ["refund a 100"]
    assert len(reviewer.asked) == 1
    assert "Really?" in reviewer.asked[0]


async def test_a_workflow_waits_for_a_person_in_its_nodes(run_task: RunTask, reviewer: Reviewer) -> None:
    """A node that requires a confirmation, one that asks a question, and a tool as a node."""
    reviewer.says("Action: pay", "yes")
    reviewer.says("Which address", "Main Street 1")
    reviewer.says("Action: refund", "yes")

    def begin() -> dict[str, Any]:
        return {"cents": 5}

    def pay(node_input: dict[str, Any]) -> dict[str, Any]:
        DONE.append(f"pay {node_input['cents']}")
        return node_input

    def ask(node_input: dict[str, Any]) -> RequestInput:
        return RequestInput(interrupt_id="address", message="Which address?")

    def send(node_input: Any) -> dict[str, Any]:
        return {"order": str(node_input)}

    def end(node_input: Any) -> str:
        return str(node_input)

    pays = FunctionNode(func=pay, name="pay", require_confirmation=True, rerun_on_resume=True)
    flow = Workflow(
        name="flow", edges=[(START, begin, pays, ask, send, FunctionTool(refund, require_confirmation=True), end)]
    )
    for _ in range(2):
        assert "refunded Main Street 1" in await run_task(asking(agent=flow), name="run")
    assert DONE.count("refund Main Street 1 100") == 1
    assert len(reviewer.asked) == 3


async def test_what_waits_is_no_answer_and_goes_on_when_somebody_is_there(
    run_task: RunTask, model_env: ModelServer, reviewer: Reviewer
) -> None:
    proposes(model_env, call("time_off", days=5), call("refund", order="a"))
    reviewer.present = False

    @env.task(retries=2)
    async def ask() -> str:
        tools = [tool(time_off), FunctionTool(refund, require_confirmation=True)]
        result: Any = await run_agent("go", tools=tools, model=GEMINI, full_result=True)
        return f"{bool(result.output)} {sorted(one.partition(' ')[0] for one in result.pending)}"

    waits = await run_task(ask, name="run")
    assert waits.startswith("False ['")
    assert DONE in (["asks"], [])
    reviewer.present = True
    reviewer.says("How many days", "approve")
    reviewer.says('"a"', "yes")
    assert await run_task(ask, name="run") == "True []"
    assert DONE.count("asks") == 1
    assert DONE.count("refund a 100") == 1
    assert model_env.journal.count() == 2


async def test_a_rule_that_fails_lets_nothing_through(run_task: RunTask, model_env: ModelServer) -> None:
    proposes(model_env, call("refund", order="a"))

    def broken(order: str) -> bool:
        raise ValueError("no rule")

    with pytest.raises(flyte.errors.RuntimeUserError, match=r"needs a confirmation is not known.*ValueError: no rule"):
        await run_task(asking(tool(refund, require_confirmation=broken)), name="run")
    assert DONE == []
    with pytest.raises(TypeError, match="require_confirmation is 'yes'; give True, False, or a function"):
        tool(refund, require_confirmation="yes")
    with pytest.raises(TypeError, match="which ask the same person"):
        tool(refund, require_confirmation=True, requires_approval=True)
