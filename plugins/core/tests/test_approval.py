"""Approvals on a laptop: what is asked, what a decision covers, and what becomes of a call."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import pytest

from flyteplugins.agents.conformance.reviewer import Reviewer, reviewer
from flyteplugins.agents.core import (
    AgentError,
    AgentTool,
    Approval,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalExpiredError,
    ApprovalItem,
    ApprovalPendingError,
    ApprovalRequest,
    Budget,
    Event,
    RecordError,
    as_agent_tool,
    check_sdk_approval,
    decide_call,
    request_approval,
    request_approvals,
)

__all__ = ["reviewer"]

Attempt = Any
StartAgent = Callable[..., Any]

MAIL = {"to": "maya@example.test", "subject": "Your export question", "body": "Thanks for joining, Maya."}
DIGEST = "7292b1cf5c92933d867792003ffe175badcd8a036258d24e1e2a5c7f864be97e"


def send_tool(sent: list[dict[str, str]], **options: Any) -> AgentTool:
    def send_email(to: str, subject: str, body: str = "Thanks for joining, Maya.") -> str:
        """Send a mail."""
        sent.append({"to": to, "subject": subject, "body": body})
        return "sent"

    return AgentTool(send_email, **({"requires_approval": True} | options))


SHORT = {name: MAIL[name] for name in ("to", "subject")}


# -- what it is bound to


def test_the_digest_is_that_of_the_canonical_arguments() -> None:
    item = ApprovalItem.of("send_email", MAIL)
    assert item.digest == DIGEST
    assert item.canonical == json.dumps(MAIL, sort_keys=True, separators=(",", ":"))


async def test_a_person_sees_the_digest_and_the_defaults_and_is_asked_once(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    sent: list[dict[str, str]] = []
    events: list[Event] = []
    reviewer.says("is no answer", "yes")
    reviewer.says("send_email", "maybe")

    async def body() -> Any:
        async with start_agent(on_event=events.append) as run:
            del run
            return await send_tool(sent).call(SHORT)

    outcomes = [await attempt(body) for _ in range(2)]
    assert [outcome.text for outcome in outcomes] == ["sent", "sent"]
    assert sent == [MAIL]
    first, second = reviewer.asked
    assert DIGEST in first
    assert MAIL["body"] in first
    assert "'maybe' is no answer" in second
    asked = [event for event in events if isinstance(event, ApprovalAsked)]
    answered = [event for event in events if isinstance(event, ApprovalAnswered)]
    assert [(one.digest, one.arguments, one.replayed) for one in asked] == [(DIGEST, MAIL, False), (DIGEST, MAIL, True)]
    assert [(one.decision, one.request, one.replayed) for one in answered] == [
        ("approved", asked[0].request, False),
        ("approved", asked[1].request, True),
    ]
    assert DIGEST in asked[0].request
    assert asked[0].request == asked[1].request
    assert answered[0].by
    [record] = attempt.files("approval.")
    kept = json.loads(record.read_bytes().partition(b"\n")[2])
    assert json.loads(kept["canonical"]) == MAIL
    assert (kept["digest"], kept["by"]) == (DIGEST, answered[0].by)


async def test_other_arguments_need_another_decision(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    sent: list[dict[str, str]] = []
    reviewer.says("maya", "yes")
    reviewer.says("eve", "no")
    to = ["maya@example.test", "eve@example.test"]

    async def body() -> Any:
        async with start_agent():
            return (await send_tool(sent).call({"to": to.pop(0), "subject": "Hi"})).text

    texts = [await attempt(body) for _ in range(2)]
    assert texts == ["sent", "send_email was not approved: a person denied it. It was not done."]
    assert len(sent) == 1
    assert len(reviewer.asked) == 2


async def test_arguments_that_change_while_a_person_thinks_do_not_run(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    held: list[list[str]] = []

    def publish(pages: list[str]) -> str:
        ran.append(pages)
        return "done"

    tool = AgentTool(
        publish,
        requires_approval=lambda arguments: held.append(arguments["pages"]) or True,  # type: ignore[func-returns-value]
    )
    answer = reviewer.answer

    async def answers_late(*question: Any) -> str | None:
        held[0].append("everything else")
        return await answer(*question)

    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.ask_console", answers_late)
    reviewer.says("publish", "yes")

    async def body() -> Any:
        async with start_agent():
            return await tool.call({"pages": ["one"]})

    with pytest.raises(AgentError, match="changed after they were approved"):
        await attempt(body)
    assert ran == []


async def test_a_decision_on_record_that_was_changed_is_refused(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    import hashlib

    sent: list[dict[str, str]] = []
    reviewer.says("send_email", "no")

    async def body() -> Any:
        async with start_agent():
            return await send_tool(sent).call(SHORT)

    await attempt(body)
    [file] = attempt.files("approval.")
    header, _, payload = file.read_bytes().partition(b"\n")
    changed = payload.replace(b"maya@", b"evil@").replace(b'"denied"', b'"approved"')
    kept = json.loads(header) | {"bytes": len(changed), "sha256": hashlib.sha256(changed).hexdigest()}
    file.write_bytes(json.dumps(kept).encode() + b"\n" + changed)
    with pytest.raises(RecordError, match="it was changed"):
        await attempt(body)
    assert sent == []


def test_what_a_person_reads_hides_nothing() -> None:
    from flyteplugins.agents.core._approval import shown

    text = shown({"a": "x\u202ey\x9bz\x00\u2028"})
    assert text.isascii()
    assert json.loads(text) == {"a": "x\u202ey\x9bz\x00\u2028"}


# -- what becomes of a call


async def test_calls_beside_each_other_do_not_mix_and_one_that_waits_holds_no_place(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, str]] = []
    looked = asyncio.Event()
    answer = reviewer.answer

    async def when_the_other_is_done(*question: Any) -> str | None:
        await looked.wait()
        return await answer(*question)

    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.ask_console", when_the_other_is_done)
    for number in range(4):
        reviewer.says(f'"{number}"', "yes" if number % 2 else "no")

    def look() -> str:
        looked.set()
        return "seen"

    async def body() -> Any:
        async with start_agent(max_concurrent_tools=1):
            calls = [send_tool(sent).call({"to": str(number), "subject": "Hi"}) for number in range(4)]
            return [outcome.text for outcome in await asyncio.gather(*calls, AgentTool(look).call({}))]

    texts = await attempt(body)
    assert [text.partition(" ")[0] for text in texts] == ["send_email", "sent", "send_email", "sent", "seen"]
    assert sorted(mail["to"] for mail in sent) == ["1", "3"]
    assert await attempt(body) == texts
    assert len(reviewer.asked) == 4


async def test_only_calls_that_the_predicate_names_are_asked_about(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    ran: list[int] = []
    reviewer.says("refund", "yes")

    def refund(cents: int, note: str = "none") -> str:
        ran.append(cents)
        return "done"

    async def is_much(arguments: Any) -> bool:
        assert arguments["note"] == "none"
        return bool(arguments["cents"] > 100)

    async def body() -> Any:
        async with start_agent():
            tool = AgentTool(refund, requires_approval=is_much)
            return [(await tool.call({"cents": cents})).text for cents in ("5", 500)]

    assert await attempt(body) == ["done", "done"]
    assert ran == [5, 500]
    assert len(reviewer.asked) == 1


@pytest.mark.parametrize("broken", [lambda arguments: 1, lambda arguments: arguments["nonsense"]])
async def test_a_predicate_that_does_not_say_lets_nothing_through(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, broken: Any
) -> None:
    sent: list[dict[str, str]] = []

    async def body() -> Any:
        async with start_agent():
            return await send_tool(sent, requires_approval=broken).call(SHORT)

    with pytest.raises(AgentError, match="predicate"):
        await attempt(body)
    assert (sent, reviewer.asked) == ([], [])


async def test_a_deadline_passes_whatever_the_retries_and_its_outcome_is_as_stated(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    sent: list[dict[str, str]] = []
    reviewer.says("it is denied", None)
    reviewer.says("the run fails", None)
    policy = Approval(timeout=timedelta(hours=1))

    async def body() -> Any:
        async with start_agent():
            return await send_tool(sent, requires_approval=policy).call(SHORT)

    outcomes = [await attempt(body) for _ in range(2)]
    assert {outcome.text for outcome in outcomes} == {
        "send_email was not approved: nobody answered in time. It was not done."
    }
    policy = Approval(timeout=timedelta(hours=1), on_timeout="raise")
    with pytest.raises(ApprovalExpiredError, match="on_timeout is 'raise'"):
        await attempt(body, name=f"{attempt.name}-raise")
    assert sent == []
    assert len(reviewer.asked) == 2


async def test_a_resume_after_the_deadline_asks_nobody(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, killed: type[BaseException]
) -> None:
    sent: list[dict[str, str]] = []
    reviewer.present = False

    async def body() -> Any:
        async with start_agent():
            return await send_tool(sent, requires_approval=Approval(timeout=0.2)).call(SHORT)

    with pytest.raises(ApprovalPendingError):
        await attempt(body)
    await asyncio.sleep(0.25)
    reviewer.present = True
    assert "nobody answered in time" in (await attempt(body)).text
    assert (sent, reviewer.asked) == ([], [])


async def test_somebody_is_reminded_before_the_deadline(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reminded: list[ApprovalRequest] = []
    heard = asyncio.Event()
    answer = reviewer.answer

    async def after_the_reminder(*question: Any) -> str | None:
        await heard.wait()
        return await answer(*question)

    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.ask_console", after_the_reminder)
    reviewer.says("send_email", "yes")

    async def remind(request: ApprovalRequest) -> None:
        reminded.append(request)
        heard.set()

    async def body() -> Any:
        async with start_agent():
            policy = Approval(timeout=100, remind=remind, remind_before=99.9)
            return await send_tool([], requires_approval=policy).call(SHORT)

    assert (await attempt(body)).text == "sent"
    [request] = reminded
    assert (request.action, request.digest) == ("send_email", DIGEST)
    assert request.deadline is not None
    assert request.deadline - request.asked == pytest.approx(100)


async def test_a_wait_for_a_person_counts_for_no_budget(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = reviewer.answer

    async def slowly(*question: Any) -> str | None:
        await asyncio.sleep(0.5)
        return await answer(*question)

    monkeypatch.setattr("flyteplugins.agents.core._approval_asking.ask_console", slowly)
    reviewer.says("", "yes")
    spent: list[float] = []

    async def asks_inside() -> str:
        first, second = await asyncio.gather(request_approval("a", 1), request_approval("b", 2))
        return f"{first.decision} {second.decision}"

    async def body() -> Any:
        async with start_agent(budget=Budget(seconds=100)) as run:
            outcomes = [await send_tool([]).call(SHORT), await AgentTool(asks_inside).call({})]
            spent.append(run.meter.spent.seconds)
            return [outcome.text for outcome in outcomes]

    for _ in range(2):
        assert await attempt(body) == ["sent", "approved approved"]
    assert len(reviewer.asked) == 3
    assert all(seconds < 0.4 for seconds in spent)


async def test_edited_arguments_are_validated_run_as_edited_and_are_what_the_digest_covers(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    sent: list[dict[str, str]] = []
    reviewer.says("do not fit", json.dumps(MAIL | {"body": "Shorter."}))
    reviewer.says("send_email", '{"to": 7}')

    async def body() -> Any:
        async with start_agent():
            return await send_tool(sent, requires_approval=Approval(edit=True)).call(SHORT)

    for _ in range(2):
        assert (await attempt(body)).text == "sent"
    assert sent == [MAIL | {"body": "Shorter."}]
    assert len(reviewer.asked) == 2
    [record] = attempt.files("approval.")
    kept = json.loads(record.read_bytes().partition(b"\n")[2])
    assert kept["digest"] == ApprovalItem.of("send_email", MAIL | {"body": "Shorter."}).digest
    assert kept["proposed"] == DIGEST


async def test_edited_arguments_have_one_order_live_and_replayed(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    """An SDK may write them into its next request, whose text is part of that turn's key."""
    reviewer.says("refund", '{"order": "b", "cents": 7}')

    async def body() -> Any:
        async with start_agent():
            decision = await decide_call("refund", {"order": "a", "cents": 1}, Approval(edit=True))
            return json.dumps(decision.arguments)

    assert await attempt(body) == await attempt(body) == '{"cents": 7, "order": "b"}'


async def test_a_call_of_unknown_outcome_is_run_again_only_if_a_person_says_so(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, killed: type[BaseException]
) -> None:
    effects: list[str] = []
    reviewer.says("may have happened", "no")

    def charge() -> str:
        effects.append("charged")
        if not attempt.died:
            raise killed
        return "done"

    async def body() -> Any:
        async with start_agent():
            return await AgentTool(charge, on_unknown="ask").call({})

    await attempt(body)
    for _ in range(2):
        assert "decided that it is not run again" in (await attempt(body)).text
    assert effects == ["charged"]
    assert len(reviewer.asked) == 1


# -- nobody there


async def test_what_waits_ends_the_run_whatever_the_sdk_makes_of_it(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer, model: Any
) -> None:
    sent: list[dict[str, str]] = []
    reviewer.present = False

    async def body() -> Any:
        async with start_agent() as run:
            try:
                await send_tool(sent).call(SHORT)
            except ApprovalPendingError:
                await run.finish("an answer")  # as an SDK that swallows errors would
            return "an answer"

    with pytest.raises(ApprovalPendingError) as raised:
        await attempt(body)
    assert raised.value.pending == (f"send_email sha256:{DIGEST}",)
    assert raised.value.result is not None
    assert (raised.value.result.output, raised.value.result.text) == (None, "")
    assert raised.value.result.as_dict()["pending"] == [f"send_email sha256:{DIGEST}"]
    reviewer.present = True
    reviewer.says("send_email", "yes")
    assert await attempt(body) == "an answer"
    assert sent == [MAIL]


async def test_a_tools_own_task_that_waits_ends_the_agents_run_too(
    attempt: Attempt, start_agent: StartAgent, reviewer: Reviewer
) -> None:
    reviewer.present = False

    async def body() -> Any:
        async with start_agent():
            return await AgentTool(asks_in_its_task).call({})

    with pytest.raises(ApprovalPendingError, match="is pending") as raised:
        await attempt(body)
    assert "asks_in_its_task" in raised.value.pending[0]
    reviewer.present = True
    reviewer.says("deploy", "yes")
    assert (await attempt(body)).text == "approved"


env = flyte.TaskEnvironment("core-approvals", cache="disable")


@env.task(retries=3)
async def asks_in_its_task() -> str:
    return (await request_approval("deploy", {"version": 1})).decision


# -- by itself


async def test_a_request_in_a_task_without_an_agent_is_asked_once_and_a_list_is_one_request(
    attempt: Attempt, reviewer: Reviewer
) -> None:
    reviewer.says("2 actions", "yes")
    reviewer.says("deploy", "no")

    async def body() -> Any:
        first = await request_approval("deploy", {"version": 1}, prompt="Now?")
        both = await request_approvals([("send_email", MAIL), ("deploy", {"version": 2})])
        again = await request_approval("deploy", {"version": 1})
        return [bool(first), bool(both), bool(again), both.digest, [item.digest for item in both.items]]

    found = await attempt(body)
    assert found[:3] == [False, True, False]
    listed = [{"action": "send_email", "arguments": MAIL}, {"action": "deploy", "arguments": {"version": 2}}]
    assert found[3] == ApprovalItem.of("x", listed).digest
    assert found[4] == [DIGEST, ApprovalItem.of("x", {"version": 2}).digest]
    assert DIGEST in reviewer.asked[1]
    assert len(reviewer.asked) == 3
    assert await attempt(body) == found
    assert len(reviewer.asked) == 3


async def test_outside_of_a_task_a_person_is_asked_each_time(reviewer: Reviewer) -> None:
    reviewer.says("send_email", "yes", "no")
    sent: list[dict[str, str]] = []
    assert (await send_tool(sent).call(SHORT)).text == "sent"
    assert (await request_approval("send_email", MAIL)).decision == "denied"
    reviewer.present = False
    with pytest.raises(ApprovalPendingError):
        await request_approval("send_email", MAIL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "more than 0 seconds"),
        ({"timeout": "1h"}, "give seconds or a timedelta"),
        ({"on_timeout": "approve"}, "give 'deny' or 'raise'"),
        ({"remind": print}, "there is no deadline"),
        ({"remind": print, "timeout": 5, "remind_before": 6}, "give a timeout that is longer"),
        ({"when": True}, "give a function"),
    ],
)
def test_a_policy_that_makes_no_sense_is_an_error_when_it_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Approval(**options)


@pytest.mark.parametrize(
    ("value", "edits", "message"),
    [
        (True, False, "give an Approval"),
        (Approval(when=bool), True, "approval has when, and it is the SDK that says so"),
        (Approval(edit=True), False, "approval has edit, and it is the SDK that says so"),
    ],
)
def test_what_the_sdk_decides_is_no_policy_for_its_own_questions(value: object, edits: bool, message: str) -> None:
    assert check_sdk_approval(None) is None
    assert check_sdk_approval(Approval(timeout=5)) == Approval(timeout=5)
    assert check_sdk_approval(Approval(edit=True), edits=True) == Approval(edit=True)
    with pytest.raises((TypeError, ValueError), match=message):
        check_sdk_approval(value, edits=edits)


def test_a_tool_keeps_its_policy_when_it_is_renamed_copied_or_pickled() -> None:
    tool = AgentTool(os.getcwd, requires_approval=Approval(prompt="Really?"))
    for other in (as_agent_tool(_Holder(tool), name="other"), pickle.loads(pickle.dumps(tool))):
        assert other.approval == Approval(prompt="Really?")
    assert as_agent_tool(_Holder(tool), requires_approval=False).approval is None


class _Holder:
    def __init__(self, tool: AgentTool) -> None:
        self.__agent_tool__ = tool


# -- the terminal

PROGRAM = """
import asyncio
from flyteplugins.agents.core import request_approval

async def main():
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    decisions = await asyncio.gather(*(request_approval(name, {"n": name}, timeout=30) for name in "ab"))
    late = await request_approval("late", {}, timeout=0.3)
    ticking.cancel()
    print([one.decision for one in decisions], late.decision, ticks > 20)

asyncio.run(main())
"""


def test_the_terminal_asks_one_question_at_a_time_and_the_event_loop_goes_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(program)], stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    os.close(end)
    assert process.stderr is not None
    seen = ""
    try:
        for answer in ("perhaps", "yes", "no"):
            while not seen.endswith("[yes or no] > "):
                seen += process.stderr.read(1)
            if answer == "no":
                assert seen.count("Action: b") == 1
            else:
                assert "Action: b" not in seen  # it waits for its turn
            seen += " "
            time.sleep(0.1)
            os.write(terminal, f"{answer}\n".encode())
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(terminal)
    assert out == "['approved', 'denied'] expired True\n"
