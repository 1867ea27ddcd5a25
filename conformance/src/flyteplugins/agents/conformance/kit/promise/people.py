"""What a person sees."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from flyteplugins.agents.conformance.models import Fault, Reply, call
from flyteplugins.agents.core import Event

from .._capabilities import Capability
from .._checks import check, expect
from .._stage import Stage
from ._dialogue import ANSWER, QUESTION, note, options, script

TELL = "Tell of turns and tool calls through core's agent run, which tells the same on a replay, marked."


def _told(event: Event) -> tuple[Any, ...]:
    shown = ("name", "input", "model", "text", "tool_calls", "usage", "arguments", "result", "error", "call")
    return event.type, {name: value for name, value in event.as_dict().items() if name in shown}


def _sorted(events: list[Event]) -> list[Any]:
    """Turns in their order, and tool calls, which overlap, in another."""
    turns = [_told(event) for event in events if "tool" not in event.type and event.type != "text delta"]
    calls = sorted((_told(event) for event in events if "tool" in event.type), key=repr)
    return [*turns, *calls]


@check("people.events")
async def a_replay_tells_the_same_and_marks_it(stage: Stage) -> None:
    """Whoever listens is told the same events on a replay, marked; one who raises does not break the run."""
    script(stage.server)
    told: list[list[Event]] = []

    async def body() -> Any:
        events: list[Event] = []
        told.append(events)
        return await stage.adapter.run_agent(QUESTION, **options(stage, on_event=events.append))

    for _ in range(2):
        await stage.crash(body)
    live, replayed = told
    kinds = [event.type for event in live if event.type != "text delta"]
    wanted = {"run started": 1, "turn finished": 3, "tool call started": 3, "tool call finished": 3, "run finished": 1}
    expect({kind: kinds.count(kind) for kind in wanted}, wanted, "the events of a run", TELL)
    expect((kinds[0], kinds[-1]), ("run started", "run finished"), "the first and the last event", TELL)
    expect(_sorted(replayed), _sorted(live), "the events of a replay", TELL)
    marked = {event.replayed for event in replayed if event.type in ("turn finished", "tool call finished")}
    expect(marked, {True}, "the marks of replayed turns and tool calls", TELL)
    expect({event.replayed for event in live}, {False}, "the marks of what is fresh", TELL)

    def broken(event: Event) -> None:
        raise OSError(f"The display is gone, and shows no {event.type}.")

    answer = await stage.attempt(lambda: stage.adapter.run_agent(QUESTION, **options(stage, on_event=broken)), "broken")
    expect(answer, ANSWER, "the answer with a listener that raises", "Let core's agent run call the listener.")


@check("people.report")
async def a_failed_run_leaves_a_report(stage: Stage) -> None:
    """The report is written when the run fails, escapes what was said, and with `"structure"` holds none of it."""
    adapter = stage.adapter
    secret = "<b>mind the gap</b>"
    for mode in (True, "structure"):
        stage.server.clear()
        stage.server.script(None, Reply("See.", calls=(call("note", text=secret),)), "never")
        stage.server.fault(Fault.unauthorized(), turn=2)
        run = f"report-{mode}"

        async def body(mode: Any = mode) -> Any:
            return await adapter.run_agent(secret, model=adapter.model, tools=[note], observability=mode)

        try:
            await stage.attempt(body, run)
        except Exception as error:  # noqa: BLE001 - that it fails is what is wanted
            expect(bool(str(error)), True, "the error says something", TELL)
        files = list(stage.folder(run).parent.rglob("report.html"))
        expect(len(files), 1, "reports of a run that failed", "Let core's agent run write it.")
        page = files[0].read_text()
        expect(secret in page, False, "the page holds what was said unescaped", "Let core's report write it.")
        expect("note" in page, True, "the page names the tool that ran", TELL)
        expect("mind the gap" in page, mode is True, f"the page holds contents, observability={mode!r}", TELL)


@contextlib.contextmanager
def terminal(answer: str | None) -> Iterator[list[str]]:
    """Have somebody sit at the terminal, or nobody, and return what was asked there."""
    asked: list[str] = []

    async def ask(text: str, deadline: float | None, again: Callable[[str], str]) -> str | None:
        del deadline
        asked.append(text)
        assert answer is not None
        assert not again(answer), f"{answer!r} is no answer to: {text}"
        return answer

    asking = "flyteplugins.agents.core._approval_asking"
    there = mock.patch(f"{asking}.has_console", return_value=answer is not None)
    with there, mock.patch(f"{asking}.ask_console", ask):
        yield asked


@check("people.approval", Capability.APPROVALS)
async def a_person_decides_before_a_tool_runs(stage: Stage) -> None:
    """A tool that requires approval runs once somebody said yes, and never else; while nobody has, there is no answer."""
    adapter = stage.adapter
    todo = "Hand requires_approval to NativeTool.of, call the tool through core's AgentTool, and put @with_pending on run_agent."

    async def body() -> Any:
        gated = adapter.tool(note, requires_approval=True)
        return await adapter.run_agent("Go.", model=adapter.model, tools=[gated], full_result=True)

    def propose() -> None:
        stage.server.clear()
        stage.server.script(None, Reply(calls=(call("note", text="pay"),)), "done")

    propose()
    with terminal(None):
        waiting = await stage.attempt(body)
    expect(
        (waiting.output, len(waiting.pending)), (None, 1), "the answer and what is pending when nobody is there", todo
    )
    expect(stage.did(), [], "what the tool did before anybody said yes", todo)
    with terminal("yes") as asked:
        for _ in range(2):
            result = await stage.crash(body)
            expect((result.text, result.pending), ("done", ()), "the answer and what is pending after a yes", todo)
    expect((len(asked), stage.did()), (1, ["note pay"]), "how often a person was asked, and what the tool did", todo)
    expect(stage.asked(), 2, "requests of all attempts", todo)
    propose()
    with terminal("no: too much"):
        result = await stage.attempt(body, "denied")
    expect((result.text, stage.did()), ("done", []), "the answer and what the tool did after a no", todo)
    told = str(stage.server.journal.requests()[-1].body)
    expect("too much" in told, True, "the model is told why", todo)
