"""A person decides about a call before it is made: by the tool's own `requires_approval`, and by the SDK's own features."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    HookMatcher,
    PermissionResultAllow,
    create_sdk_mcp_server,
)
from claude_agent_sdk import tool as sdk_tool

from flyteplugins.agents.claude import approve_with_flyte, run_agent, tool
from flyteplugins.agents.claude._approvals import Permissions
from flyteplugins.agents.claude._context import RunContext
from flyteplugins.agents.conformance.approvals import ApprovalSuite
from flyteplugins.agents.conformance.models import ModelServer, Reply, call
from flyteplugins.agents.conformance.reviewer import Reviewer, reviewer
from flyteplugins.agents.core import Approval, ApprovalAnswered, Event, ToolCallFinished, request_approval

__all__ = ["reviewer"]

RunTask = Callable[..., Any]

env = flyte.TaskEnvironment("claude-approvals", cache="disable")

OURS = "mcp__flyte_tools__"


class TestApprovals(ApprovalSuite):
    adapter = "claude"


DONE: list[str] = []
EVENTS: list[Event] = []
OPTIONS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def emptied() -> None:
    DONE.clear()
    EVENTS.clear()
    OPTIONS.clear()


@tool
@env.task
async def refund(order: str, cents: int = 100) -> str:
    """Pay the money for an order back."""
    DONE.append(f"refund {order} {cents}")
    return f"refunded {order}"


@tool
@env.task
async def look_up(order: str) -> str:
    """Look an order up."""
    DONE.append(f"look up {order}")
    return f"found {order}"


@sdk_tool("pay", "Pay a bill.", {"bill": str})
async def pay(arguments: dict[str, Any]) -> dict[str, Any]:
    DONE.append(f"pay {arguments['bill']}")
    return {"content": [{"type": "text", "text": f"paid {arguments['bill']}"}]}


@env.task(retries=2)
async def asking() -> str:
    tools = OPTIONS.get("tools", [refund, look_up])
    result = await run_agent(
        "go",
        tools=tools,
        options=OPTIONS["options"](),
        subagents=OPTIONS.get("subagents"),
        on_event=EVENTS.append,
        full_result=True,
    )
    return f"{result.output} {[one.partition(':')[0] for one in result.pending]}"


def proposes(model: ModelServer, *names: str) -> None:
    calls = tuple(call(name, order=order) for name, order in zip(names, "abcdef", strict=False))
    model.script("^go$", Reply(calls=calls), "all done")


def told(model: ModelServer) -> str:
    return str(model.journal.requests()[-1].body["messages"][-1]["content"])


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def hook_asks(*names: str, reason: str = "") -> dict[Any, list[HookMatcher]]:
    """Hooks that say `ask` about some tools, and nothing about the others."""

    async def hook(given: Any, call_id: str | None, context: Any) -> Any:
        if given["tool_name"].removeprefix(OURS) not in names:
            return {}
        said = {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": reason}
        return {"hookSpecificOutput": said}

    return {"PreToolUse": [HookMatcher(matcher=None, hooks=[hook])]}


def by_can_use_tool() -> ClaudeAgentOptions:
    return ClaudeAgentOptions(can_use_tool=approve_with_flyte(), allowed_tools=[f"{OURS}look_up"])


def by_hooks() -> ClaudeAgentOptions:
    return ClaudeAgentOptions(hooks=hook_asks("refund"))


def by_hooks_and_can_use_tool() -> ClaudeAgentOptions:
    """What is allowed beforehand is asked about all the same where a hook says so."""
    return ClaudeAgentOptions(
        can_use_tool=approve_with_flyte(), allowed_tools=["mcp__flyte_tools"], hooks=hook_asks("refund")
    )


FORMS = pytest.mark.parametrize(
    "form", [by_can_use_tool, by_hooks, pytest.param(by_hooks_and_can_use_tool, marks=pytest.mark.thorough)]
)


@FORMS
async def test_gated_and_ungated_calls_of_one_turn_come_out_right_and_nobody_is_asked_twice(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: Any
) -> None:
    OPTIONS["options"] = form
    proposes(model_env, "refund", "look_up", "refund")
    reviewer.says('"a"', "yes")
    reviewer.says('"c"', "no: it is too late")
    for _ in range(2):
        assert await run_task(asking, name="run") == "all done []"
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len(reviewer.asked) == 2
    assert all("Action: refund" in asked and '"cents": 100' in asked for asked in reviewer.asked)
    assert model_env.journal.count() == 2
    assert all(text in told(model_env) for text in ("refunded a", "found b", "a person denied it", "it is too late"))
    refused = [event for event in EVENTS if isinstance(event, ToolCallFinished) and event.error]
    assert [(event.name, event.arguments, event.replayed) for event in refused] == [
        ("refund", {"order": "c", "cents": 100}, False),
        ("refund", {"order": "c", "cents": 100}, True),
    ]


@pytest.mark.parametrize("form", [by_can_use_tool, by_hooks])
async def test_what_waits_is_no_answer_and_goes_on_when_somebody_is_there(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: Any
) -> None:
    OPTIONS["options"] = form
    proposes(model_env, "refund")
    reviewer.present = False
    assert await run_task(asking, name="run") == "None ['refund sha256']"
    assert DONE == []
    reviewer.present = True
    reviewer.says('"a"', "yes")
    assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund a 100"]
    assert model_env.journal.count() == 2


async def test_edited_arguments_run_as_edited_and_are_what_the_digest_covers(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    ask = approve_with_flyte(Approval(edit=True))
    OPTIONS["options"] = lambda: ClaudeAgentOptions(can_use_tool=ask)
    proposes(model_env, "refund")
    reviewer.says("do not fit", '{"order": "b", "cents": "7"}')  # coerced, as the model's are
    reviewer.says('"a"', '{"order": "b", "cents": "many"}')
    for _ in range(2):
        assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund b 7"]
    assert len(reviewer.asked) == 2
    assert "refunded b" in told(model_env)
    answered = [event for event in EVENTS if isinstance(event, ApprovalAnswered)]
    assert [event.replayed for event in answered] == [False, True]


async def test_tools_of_mcp_servers_and_built_in_ones_are_asked_about_as_well(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, tmp_path: Path
) -> None:
    def options() -> ClaudeAgentOptions:
        return ClaudeAgentOptions(
            can_use_tool=approve_with_flyte(Approval(edit=True)),
            mcp_servers={"mine": create_sdk_mcp_server("mine", tools=[pay])},
            tools=["Bash"],
            cwd=tmp_path,
        )

    OPTIONS.update(options=options, tools=[])
    calls = (
        call("mcp__mine__pay", bill="one"),
        call("mcp__mine__pay", bill="two"),
        call("Bash", command="touch wrong", description="x"),
        call("Bash", command="touch never", description="x"),
    )
    model_env.script("^go$", Reply(calls=calls), "all done")
    reviewer.says('"one"', '{"bill": "another"}')
    reviewer.says('"two"', "deny: too much")
    reviewer.says("touch wrong", '{"command": "touch right", "description": "x"}')
    reviewer.says("touch never", "no")
    for _ in range(2):
        assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["pay another"]
    assert files(tmp_path) == ["right"]
    assert len(reviewer.asked) == 4
    assert sum("Action: mine/pay" in asked for asked in reviewer.asked) == 2
    assert "too much" in told(model_env)


@FORMS
async def test_the_tools_of_a_sub_agent_are_asked_about(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, form: Any
) -> None:
    helper = AgentDefinition(description="Pays.", prompt="You pay.", tools=[f"{OURS}refund", f"{OURS}look_up"])
    OPTIONS.update(options=form, subagents={"payer": helper})
    model_env.script(
        "^go$",
        Reply(calls=(call("Agent", description="pay", prompt="pay it back", subagent_type="payer"),)),
        Reply("all done"),
    )
    model_env.script(
        "pay it back",
        Reply(calls=(call("refund", order="a"), call("look_up", order="b"), call("refund", order="c"))),
        Reply("paid"),
    )
    reviewer.says("subagent_type", "yes")
    reviewer.says('"a"', "yes")
    reviewer.says('"c"', "no: it is too late")
    for _ in range(2):
        assert await run_task(asking, name="run") == "all done []"
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len([asked for asked in reviewer.asked if "Action: refund" in asked]) == 2
    assert model_env.journal.count() == 4


async def test_calls_that_nobody_is_asked_about_do_not_wait_for_those_that_somebody_is(
    model_env: ModelServer, run_task: RunTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        looked.set()
        return "seen"

    async def answer(text: str, deadline: float | None, again: Callable[[str], str]) -> str:
        await asyncio.wait_for(looked.wait(), 60)
        assert not again("yes")
        return "yes"

    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.has_console", lambda: True)
    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.ask_console", answer)
    OPTIONS.update(options=by_hooks, tools=[refund, look])
    model_env.script("^go$", Reply(calls=(call("refund", order="a"), call("look"))), "all done")
    assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund a 100"]


async def test_a_reason_of_a_hook_is_shown_and_a_predicate_says_whom_to_ask(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    dear = approve_with_flyte(Approval(when=lambda arguments: arguments["cents"] > 50, prompt="Is it worth it?"))
    OPTIONS["options"] = lambda: ClaudeAgentOptions(
        can_use_tool=dear, hooks=hook_asks("refund", reason="It is \x1b[2Jmoney.")
    )
    calls = (call("refund", order="a", cents=50), call("refund", order="b", cents=51))
    model_env.script("^go$", Reply(calls=calls), "all done")
    reviewer.says("", "yes")
    assert await run_task(asking, name="run") == "all done []"
    assert sorted(DONE) == ["refund a 50", "refund b 51"]
    [asked] = reviewer.asked
    assert "Is it worth it?\nIt is  [2Jmoney." in asked


async def test_a_function_of_the_callers_may_hand_a_call_on_and_a_tool_that_asks_by_itself_asks_once(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    ask = approve_with_flyte()

    async def can_use_tool(name: str, arguments: dict[str, Any], context: Any) -> Any:
        return PermissionResultAllow() if name.endswith("look_up") else await ask(name, arguments, context)

    gated = tool(refund, requires_approval=Approval(prompt="The tool asks."))
    OPTIONS.update(options=lambda: ClaudeAgentOptions(can_use_tool=can_use_tool), tools=[gated, look_up])
    proposes(model_env, "refund", "look_up")
    reviewer.says("The tool asks", "yes")
    assert await run_task(asking, name="run") == "all done []"
    assert sorted(DONE) == ["look up b", "refund a 100"]
    assert len(reviewer.asked) == 1


async def test_what_changes_after_it_was_approved_does_not_run(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    ask = approve_with_flyte()

    async def can_use_tool(name: str, arguments: dict[str, Any], context: Any) -> Any:
        await ask(name, arguments, context)
        return PermissionResultAllow(updated_input={**arguments, "cents": 100_000})

    OPTIONS["options"] = lambda: ClaudeAgentOptions(can_use_tool=can_use_tool)
    proposes(model_env, "refund")
    reviewer.says('"a"', "yes")
    with pytest.raises(flyte.errors.RuntimeUserError, match="changed after they were approved") as caught:
        await run_task(asking, name="run")
    assert caught.value.code == "NonRecoverableError"
    assert DONE == []


async def test_nobody_is_asked_about_arguments_that_do_not_fit(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    OPTIONS["options"] = by_can_use_tool
    model_env.script("^go$", Reply(calls=(call("refund", order="a", cents="many"),)), "all done")
    assert await run_task(asking, name="run") == "all done []"
    assert (DONE, reviewer.asked) == ([], [])
    assert "cents" in told(model_env)


IMPATIENT = {
    "MCP_TOOL_TIMEOUT": "1000",
    "CLAUDE_CODE_SDK_MCP_TOOL_IDLE_TIMEOUT": "1000",
    "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT": "1000",
    "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "1000",
    "CLAUDE_CODE_STREAM_CLOSE_TIMEOUT": "1000",
    "CLAUDE_AFK_TIMEOUT_MS": "1000",
    "CLAUDE_CODE_USER_DIALOG_TIMEOUT_MS": "1000",
}
"""Whatever may end a wait of Claude Code's, which are minutes or hours else."""


@pytest.mark.parametrize("form", ["the tool", "can_use_tool", "a hook"])
async def test_a_person_may_take_longer_than_claude_code_waits_for_anything_else(
    model_env: ModelServer, run_task: RunTask, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    async def answer(text: str, deadline: float | None, again: Callable[[str], str]) -> str:
        await asyncio.sleep(5)
        assert not again("yes")
        return "yes"

    for name, value in IMPATIENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.has_console", lambda: True)
    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.ask_console", answer)
    gated = tool(refund, requires_approval=True) if form == "the tool" else refund
    forms = {
        "can_use_tool": lambda: ClaudeAgentOptions(can_use_tool=approve_with_flyte(), env=dict(IMPATIENT)),
        "a hook": lambda: ClaudeAgentOptions(hooks=hook_asks("refund"), env=dict(IMPATIENT)),
    }
    OPTIONS.update(tools=[gated], options=forms.get(form, lambda: ClaudeAgentOptions(env=dict(IMPATIENT))))
    proposes(model_env, "refund")
    assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund a 100"]
    assert "refunded a" in told(model_env)


async def test_a_hook_that_asks_by_itself_is_waited_for_and_what_it_is_told_ends_the_run(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    """Claude Code would go on without it after a minute, and take an error in it for no opinion: the call would be made."""

    async def hook(given: Any, call_id: str | None, context: Any) -> Any:
        return {} if await request_approval("by hand", given["tool_input"]) else {"decision": "block"}

    matcher = HookMatcher(matcher=None, hooks=[hook])
    OPTIONS["options"] = lambda: ClaudeAgentOptions(hooks={"PreToolUse": [matcher]})
    proposes(model_env, "refund")
    reviewer.present = False
    assert await run_task(asking, name="run") == "None ['by hand sha256']"
    assert DONE == []
    reviewer.present = True
    reviewer.says("by hand", "yes")
    assert await run_task(asking, name="run") == "all done []"
    assert DONE == ["refund a 100"]
    assert len(reviewer.asked) == 1
    assert matcher == HookMatcher(matcher=None, hooks=[hook])


async def test_a_hook_that_nobody_answers_fails_the_run_and_does_not_let_the_call_pass(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    """Claude Code takes an error in a hook for no opinion."""

    async def hook(given: Any, call_id: str | None, context: Any) -> Any:
        await request_approval("by hand", given["tool_input"], timeout=60, on_timeout="raise")
        return {}

    OPTIONS["options"] = lambda: ClaudeAgentOptions(hooks={"PreToolUse": [HookMatcher(hooks=[hook])]})
    proposes(model_env, "refund")
    reviewer.says("by hand", None)
    with pytest.raises(flyte.errors.RuntimeUserError, match="Nobody decided about by hand"):
        await run_task(asking, name="run")
    assert DONE == []
    assert model_env.journal.count() == 1


def test_a_hook_has_as_much_time_as_it_is_given_and_else_all_there_is() -> None:
    async def hook(given: Any, call_id: str | None, context: Any) -> Any:
        return {}

    class Built:
        server_name = "flyte_tools"

    matchers = [HookMatcher(hooks=[hook]), HookMatcher(hooks=[hook], timeout=3)]
    given = ClaudeAgentOptions(hooks={"PreToolUse": matchers, "PostToolUse": matchers})
    permissions = Permissions(None, Built(), RunContext(lambda error: None))  # type: ignore[arg-type]
    hooks = permissions.options(given)["hooks"]
    assert [matcher.timeout for matcher in hooks["PreToolUse"]] == [2_147_483.0, 3]
    assert hooks["PostToolUse"] == matchers
    assert given.hooks == {"PreToolUse": matchers, "PostToolUse": matchers}


async def test_nobody_in_time_is_told_to_the_model_or_fails_the_run(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    outcome: Any = "deny"
    OPTIONS["options"] = lambda: ClaudeAgentOptions(
        can_use_tool=approve_with_flyte(Approval(timeout=60, on_timeout=outcome))
    )
    proposes(model_env, "refund")
    reviewer.says('"a"', None)
    assert await run_task(asking, name="run") == "all done []"
    assert "nobody answered in time" in told(model_env)
    model_env.clear()
    proposes(model_env, "refund")
    outcome = "raise"
    with pytest.raises(flyte.errors.RuntimeUserError, match="Nobody decided about refund"):
        await run_task(asking, name="another")
    assert DONE == []


async def test_what_no_hook_asks_about_and_nobody_allowed_is_refused(model_env: ModelServer, tmp_path: Path) -> None:
    """As it is without hooks: only who wants to be asked is."""
    options = ClaudeAgentOptions(hooks=hook_asks("refund"), tools=["Bash"], cwd=tmp_path)
    model_env.script("^go$", Reply(calls=(call("Bash", command="touch it", description="x"),)), "all done")
    assert await run_agent("go", options=options) == "all done"
    assert "haven't granted it" in told(model_env)
    assert files(tmp_path) == []


@pytest.mark.parametrize("given", [None, False])
def test_a_way_to_ask_that_asks_nobody_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="nobody would be asked"):
        approve_with_flyte(given)


async def test_outside_of_a_run_a_person_is_asked_as_well(reviewer: Reviewer) -> None:
    """For the SDK alone."""
    reviewer.says("Action: Bash", "yes")
    answer = await approve_with_flyte()("Bash", {"command": "ls"}, None)  # type: ignore[arg-type]
    assert isinstance(answer, PermissionResultAllow)
