"""Approvals: a tool's own, and the SDK's confirmations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar

import flyte
import flyte.errors
import pytest
from mistralai.client import Mistral
from mistralai.client.utils import BackoffStrategy, RetryConfig
from mistralai.extra.exceptions import DeferredToolCallsException
from mistralai.extra.run.context import RunContext

from flyteplugins.agents.conformance.approvals import ApprovalSuite, did_refund, done, look_up, refund, reviewer
from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, ToolCall, call
from flyteplugins.agents.conformance.reviewer import Reviewer
from flyteplugins.agents.core import AgentError, Approval
from flyteplugins.agents.mistral import run_agent, tool

__all__ = ["done", "reviewer"]

env = flyte.TaskEnvironment("mistral-approvals", cache="disable")

RunTask = Callable[..., Any]

QUICKLY = RetryConfig("backoff", BackoffStrategy(1, 10, 1, 30_000, jitter_ms=0), retry_connection_errors=True)
NEVER = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), retry_connection_errors=False)


class TestApprovals(ApprovalSuite):
    adapter = "mistral"


class TestRequiresConfirmation(ApprovalSuite):
    """The SDK's own option on a tool of ours."""

    adapter = "mistral"
    gate: ClassVar[Mapping[str, Any]] = {"requires_confirmation": True}


class TestRunContext(ApprovalSuite):
    """A function that the caller registered with the SDK."""

    adapter = "mistral"
    limited: ClassVar[Mapping[str, Any]] = {"approval": Approval(timeout=60)}

    def options(self, agents: ModuleType) -> dict[str, Any]:
        async def own(order: str, cents: int = 100) -> str:
            """Refund an order."""
            return await did_refund(order, cents)

        own.__name__ = "refund"
        context = RunContext(model="mistral-medium-latest")
        context.register_func(own, requires_confirmation=True)
        return {"agent": context, "tools": [agents.tool(look_up)]}


# -- what runs on the server


STREAMED = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])


def connector(model: ModelServer, *more: ToolCall, queries: str = "a") -> None:
    """Have the model call a connector of the server's, which waits for a confirmation, beside tools that run here."""
    waiting = tuple(ToolCall("search", {"q": query}, unlisted=True, confirm=True) for query in queries)
    model.script(
        "^go$",
        Reply(calls=(*waiting, *more)),
        lambda conversation: Reply(" / ".join(r.text for r in conversation.results)),
    )


@STREAMED
async def test_a_connectors_call_is_confirmed_or_refused_as_a_person_says(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], streaming: bool
) -> None:
    """One is allowed and one refused, in the same request as the result of a call that ran here."""
    connector(model_env, call("look_up", order="c"), queries="ab")
    reviewer.says('"a"', "yes")
    reviewer.says('"b"', "no")

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", tools=[tool(look_up)], streaming=streaming, server_state=True))

    for _ in range(2):
        assert await run_task(asking, name="run") == "allowed / denied / found c"
    assert done == ["look up c"]
    assert len(reviewer.asked) == 2
    assert model_env.journal.count() == 2
    sent = model_env.journal.requests()[-1].body
    assert sorted(one["confirmation"] for one in sent["tool_confirmations"]) == ["allow", "deny"]


@STREAMED
@pytest.mark.parametrize("retries", [QUICKLY, NEVER], ids=["in place", "next attempt"])
async def test_an_answer_to_a_confirmation_that_is_lost_changes_nothing(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, streaming: bool, retries: RetryConfig
) -> None:
    """The confirmation was applied, and the connection was reset in place of its answer: nobody confirms twice."""
    connector(model_env)
    model_env.fault(Fault.lost(), turn=2)
    reviewer.says('"a"', "yes")

    @env.task(retries=2)
    async def asking() -> str:
        return str(await run_agent("go", streaming=streaming, server_state=True, retries=retries))

    assert await run_task(asking, name="run") == "allowed"
    assert len(reviewer.asked) == 1
    assert model_env.journal.count() == 2


async def test_a_connectors_call_that_nobody_confirms_in_time_is_refused(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    connector(model_env)
    reviewer.says('"a"', None)

    @env.task
    async def asking() -> str:
        return str(await run_agent("go", server_state=True, approval=Approval(timeout=60)))

    assert await run_task(asking) == "denied"
    assert "Without an answer by" in reviewer.asked[0]


async def test_a_connectors_call_that_waits_is_no_answer(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer
) -> None:
    connector(model_env)
    reviewer.present = False

    @env.task
    async def asking() -> str:
        result = await run_agent("go", server_state=True, full_result=True)
        return f"{result.output} {[one.partition(':')[0] for one in result.pending]}"

    assert await run_task(asking, name="run") == "None ['search sha256']"
    reviewer.present = True
    reviewer.says('"a"', "yes")
    assert await run_task(asking, name="run") == "allowed []"
    assert model_env.journal.count() == 2


@STREAMED
async def test_without_server_state_nothing_can_be_confirmed(
    model_env: ModelServer, run_task: RunTask, streaming: bool
) -> None:
    """There is no conversation that a confirmation could be given to. A tool of the same name is not run in its place."""
    connector(model_env)
    searched: list[str] = []

    @tool
    def search(q: str) -> str:
        """Search."""
        searched.append(q)
        return "found"

    @env.task(retries=2)
    async def asking() -> str:
        return str(await run_agent("go", tools=[search], streaming=streaming))

    with pytest.raises(
        flyte.errors.RuntimeUserError, match=r"search waits on the server .* Give run_agent server_state"
    ):
        await run_task(asking)
    assert model_env.journal.count() == 1
    assert searched == []


async def test_a_decision_about_a_conversation_that_is_gone_is_an_error(
    model_env: ModelServer, reviewer: Reviewer
) -> None:
    connector(model_env, call("forget"))
    reviewer.says('"a"', "yes")
    client = Mistral(api_key="k", server_url=model_env.mistral_server_url)

    async def forget() -> str:
        """Forget everything."""
        listed: Any = await client.beta.conversations.list_async()
        for one in listed:
            await client.beta.conversations.delete_async(conversation_id=getattr(one, "root", one).id)
        return "forgotten"

    with pytest.raises(AgentError, match="the server cannot be told what was decided about the calls"):
        await run_agent("go", tools=[forget], server_state=True)


async def test_a_memory_keeps_what_was_decided(model_env: ModelServer, run_task: RunTask, reviewer: Reviewer) -> None:
    """The next run of its key goes on from the server's copy, and where that is gone from the transcript."""
    connector(model_env)
    model_env.script("^again$", "fine", repeat_last=True)
    reviewer.says('"a"', "yes")
    client = Mistral(api_key="k", server_url=model_env.mistral_server_url)

    @env.task
    async def asking(text: str, server_state: bool) -> str:
        return str(await run_agent(text, server_state=server_state, memory_key="ada"))

    assert await run_task(asking, text="go", server_state=True, name="one") == "allowed"
    assert await run_task(asking, text="again", server_state=True, name="two") == "fine"
    listed: Any = await client.beta.conversations.list_async()
    for one in listed:
        await client.beta.conversations.delete_async(conversation_id=getattr(one, "root", one).id)
    assert await run_task(asking, text="again", server_state=False, name="three") == "fine"
    sent = model_env.journal.requests()[-1].body["inputs"]
    assert [one.get("confirmation_status") for one in sent if one["type"] == "function.call"] == ["allowed"]
    assert not any(one["type"] == "function.result" for one in sent)


# -- the caller's answers to what an earlier run of the SDK's left waiting


async def left_waiting(model: ModelServer, client: Mistral) -> Any:
    """What the SDK's own runner raises: a call of a function and one of a connector wait."""
    connector(model, call("refund", order="a"))
    with pytest.raises(DeferredToolCallsException) as raised:
        await client.beta.conversations.run_async(run_ctx=await confirming(), inputs="go")
    assert {one.tool_name for one in raised.value.deferred_calls} == {"search", "refund"}
    return raised.value


async def confirming() -> RunContext:
    async def own(order: str, cents: int = 100) -> str:
        """Refund an order."""
        return await did_refund(order, cents)

    own.__name__ = "refund"
    context = RunContext(model="mistral-medium-latest")
    context.register_func(own, requires_confirmation=True)
    return context


@STREAMED
@pytest.mark.parametrize("confirms", [True, False])
async def test_the_callers_answers_go_to_the_calls_that_wait(
    model_env: ModelServer, run_task: RunTask, reviewer: Reviewer, done: list[str], streaming: bool, confirms: bool
) -> None:
    """Nobody else is asked. Changed arguments run as the caller has changed them; a replay answers nothing twice."""
    left = await left_waiting(model_env, Mistral(api_key="k", server_url=model_env.mistral_server_url))

    @env.task
    async def answering() -> str:
        answers = [
            (one.confirm({"cents": "7"} if one.tool_name == "refund" else None) if confirms else one.reject("too late"))
            for one in left.deferred_calls
        ]
        context = await confirming()
        return str(await run_agent(answers, agent=context, conversation_id=left.conversation_id, streaming=streaming))

    for _ in range(2):
        assert await run_task(answering, name="run") == ("allowed / refunded a" if confirms else "denied / too late")
    assert done == (["refund a 7"] if confirms else [])
    assert reviewer.asked == []
    assert model_env.journal.count() == 2


async def test_answers_without_their_conversation_are_an_error(model_env: ModelServer) -> None:
    left = await left_waiting(model_env, Mistral(api_key="k", server_url=model_env.mistral_server_url))
    with pytest.raises(ValueError, match="Give conversation_id="):
        await run_agent([one.confirm() for one in left.deferred_calls])
    assert model_env.journal.count() == 1


async def test_a_tools_own_policy_asks_whatever_the_caller_confirms(
    model_env: ModelServer, reviewer: Reviewer, done: list[str]
) -> None:
    left = await left_waiting(model_env, Mistral(api_key="k", server_url=model_env.mistral_server_url))
    reviewer.says('"a"', "no")
    answers = [one.confirm() for one in left.deferred_calls]
    gated = tool(refund, requires_approval=True)
    answer = await run_agent(answers, tools=[gated], conversation_id=left.conversation_id)
    assert "a person denied it" in str(answer)
    assert done == []
