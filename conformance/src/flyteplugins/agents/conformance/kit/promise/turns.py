"""Turns: paid once, and answered from their records ever after."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import flyte.errors

from flyteplugins.agents.conformance.models import Conversation, Fault, Reply, call
from flyteplugins.agents.core import AgentResult, Event

from .._capabilities import Capability
from .._checks import NotConformingError, check, expect
from .._stage import Stage
from ._dialogue import (
    ANSWER,
    INSTRUCTIONS,
    QUESTION,
    agent_options,
    options,
    script,
)

SEAM = "Have every model that the SDK can resolve pass the seam that records turns."


@check("turns.replayed", Capability.MODELS)
async def a_turn_on_record_is_not_asked_again(stage: Stage) -> None:
    """A string, a model object and a pre-built agent: what is on record is not asked, and what is not is."""
    run_agent, adapter = stage.adapter.run_agent, stage.adapter
    ways: dict[str, Any] = {
        "a model's name": lambda: options(stage),
        "a model object": lambda: options(stage, **adapter.model_object(adapter.model_name)),
        "a pre-built agent": lambda: agent_options(stage),
    }
    for name, way in ways.items():
        script(stage.server)

        async def body(way: Any = way) -> Any:
            return await run_agent(QUESTION, **way())

        run = name.replace(" ", "-").replace("'", "")
        expect(await stage.crash(body, run), ANSWER, f"the answer with {name}", SEAM)
        expect(stage.asked(), 3, f"requests of a first attempt with {name}", SEAM)
        stage.did()
        expect(await stage.attempt(body, run), ANSWER, f"the answer on a replay with {name}", SEAM)
        expect(stage.asked(), 0, f"requests of a replay with {name}", SEAM)
        expect(stage.did(), [], f"tools run on a replay with {name}", "Record what each tool call came to.")
        if name == "a model's name":  # where the request comes from makes no difference to what is not on record
            last = max(stage.records(run, "turn"), key=lambda path: path.stat().st_mtime_ns)
            last.unlink()
            expect(await stage.attempt(body, run), ANSWER, "the answer of an attempt that goes on", SEAM)
            expect(stage.asked(), 1, "requests of an attempt that lacks the last turn", SEAM)
            expect(stage.did(), [], "tools run by an attempt that lacks the last turn", SEAM)
        stage.server.clear()


@check("turns.alike", Capability.AGENTS)
async def bare_durable_and_replayed_come_to_the_same(stage: Stage) -> None:
    """The SDK alone, a durable run and its replay have equal output, messages, usage and requests."""
    adapter = stage.adapter
    stage.server.script(
        QUESTION,
        Reply("Let me see.", calls=(call("look", city="Oslo"), call("look", city="Rome"))),
        Reply(calls=(call("look", city="Bergen"),)),
        Reply(ANSWER),
    )

    def look(city: str) -> str:
        """Look a city up."""
        return f"{city} is {5 * len(city)} degrees warm"

    results: list[AgentResult[Any]] = []

    async def body() -> str:
        result = await adapter.run_agent(QUESTION, **adapter.agent(INSTRUCTIONS, [look]), full_result=True)
        results.append(result)
        return str(result.output)

    native = await adapter.bare(adapter.agent(INSTRUCTIONS, [look]), QUESTION)
    sent = stage.server.journal.usage()
    bare_requests = [entry.identity for entry in stage.server.journal.requests()]
    stage.asked()
    expect(await stage.crash(body), ANSWER, "the output of a durable run", "Return the SDK's own.")
    requests = [entry.identity for entry in stage.server.journal.requests()]
    expect(requests, bare_requests, "what the model is asked in a durable run", "Change no request of the SDK's.")
    stage.asked()
    expect(await stage.attempt(body), ANSWER, "the output of a replay", SEAM)
    expect(stage.asked(), 0, "requests of a replay", SEAM)
    live, replayed = results
    exact = "Have the codec keep every field of the response, unknown ones included."
    wanted = list(adapter.messages(native))
    expect(list(adapter.messages(live.native)), wanted, "the messages of a durable run", exact)
    expect(list(adapter.messages(replayed.native)), wanted, "the messages of a replay", exact)
    for which, result in (("durable run", live), ("replay", replayed)):
        total = result.usage.total
        found = (total.input_tokens, total.output_tokens)
        expect(found, (sent.input, sent.output), f"the usage of a {which}", "Map every token count.")
    expect((live.usage.fresh.requests, live.usage.replayed.requests), (3, 0), "turns paid for", "See core's TurnFacts.")
    expect((replayed.usage.fresh.requests, replayed.usage.replayed.requests), (0, 3), "turns of a replay", SEAM)


@check("turns.streamed", Capability.STREAMS)
async def text_arrives_as_it_is_made(stage: Stage) -> None:
    """Whoever listens gets the text in pieces, live and on a replay, and a streamed turn is the same leaf."""
    script(stage.server)
    told: list[Event] = []

    async def listening() -> Any:
        told.clear()
        return await stage.adapter.run_agent(
            QUESTION, **options(stage, on_event=told.append, **stage.adapter.streaming)
        )

    async def silent() -> Any:
        return await stage.adapter.run_agent(QUESTION, **options(stage))

    todo = "Make streamed turns with `run.stream_turn`, with the same fields as the others."
    expect(await stage.crash(listening), ANSWER, "the answer of a streamed run", todo)
    pieces = [event.text for event in told if event.type == "text delta"]  # type: ignore[attr-defined]
    expect("".join(pieces), ANSWER, "the pieces of the text", todo)
    expect(len(pieces) > 1, True, "the text comes in more than one piece", todo)
    expect(stage.asked(), 3, "requests of a streamed run", todo)
    expect(await stage.crash(listening), ANSWER, "the answer of a streamed replay", todo)
    again = [event for event in told if event.type == "text delta"]
    expect("".join(event.text for event in again), ANSWER, "the pieces on a replay", todo)  # type: ignore[attr-defined]
    expect({event.replayed for event in again}, {True}, "the marks of pieces on a replay", "Mark them as replayed.")
    expect(await stage.attempt(silent), ANSWER, "the answer of a replay that nobody listens to", todo)
    expect(stage.asked(), 0, "requests of replays", "Whether a turn is streamed is no part of its key.")


@check("turns.concurrent")
async def agents_side_by_side_keep_their_own_answers(stage: Stage) -> None:
    """Agents with one question, started and answered in any order, never swap answers."""

    def who(conversation: Conversation) -> Reply:  # an SDK may say more than its instructions
        found = re.search(r"You are <(\w+)>", conversation.system)
        return Reply(f"I am {found[1]}" if found else "I do not know who I am.")

    stage.server.script(None, who, repeat_last=True)
    names = ["a", "b", "c", "d"]

    async def one(name: str) -> str:
        given = {"model": stage.adapter.model, "name": f"agent_{name}", "instructions": f"You are <{name}>."}
        return str(await stage.adapter.run_agent("Who?", **given))

    async def body(order: list[str]) -> Mapping[str, str]:
        return dict(zip(order, await asyncio.gather(*(one(name) for name in order)), strict=True))

    await stage.crash(lambda: body(names))
    expect(stage.asked(), 4, "requests of four agents", SEAM)
    for order in (names[::-1], [names[2], names[0], names[3], names[1]]):
        found = await stage.crash(lambda order=order: body(order))  # type: ignore[misc]
        wanted = {name: f"I am {name}" for name in order}
        expect(found, wanted, f"answers when they start as {order}", "Give core's agent run the name and the model.")
    expect(stage.asked(), 0, "requests when they start in another order", SEAM)


@check("turns.two_writers")
async def a_second_writer_adopts_what_is_stored(stage: Stage) -> None:
    """Two workers of one run come to one answer, whoever records first."""
    said = iter(["first", "second"])
    stage.server.script(None, lambda _: Reply(next(said)), repeat_last=True)
    stage.server.fault(Fault.slow(0.6 + stage.adapter.startup), turn=1)

    async def body() -> Any:
        return await stage.adapter.run_agent("Hi", model=stage.adapter.model)

    async def later() -> Any:
        while stage.server.journal.count() < 1:  # noqa: ASYNC110 - the server is in a thread
            await asyncio.sleep(0.01)
        return await stage.attempt(body)

    # one body in two attempts at once: each has a worker's context of its own
    found = await asyncio.gather(stage.attempt(body), later())
    expect(len(set(found)), 1, f"different answers of two workers ({found})", "Use what `run.turn` returns.")
    expect(len(stage.records(kind="turn")), 1, "records of one turn", "Make turns with `run.turn`.")
    expect(stage.asked(), 2, "requests of two workers at once", "Ask inside of the call that `run.turn` is given.")


@check("turns.errors")
async def an_error_is_never_an_answer(stage: Stage) -> None:
    """What the provider fails at is asked again: in place where it is busy, by the next attempt otherwise."""
    run_agent, model = stage.adapter.run_agent, stage.adapter.model
    attempts: list[int] = []

    async def body() -> Any:
        attempts.append(1)
        return await run_agent("Hi", model=model)

    for name, fault in (("busy", Fault.rate_limit(retry_after=0)), ("failing", Fault.error(500))):
        stage.server.clear()
        stage.server.script(None, "Hello.", repeat_last=True)
        stage.server.fault(fault)
        expect(await stage.attempt(body, name, retried=True), "Hello.", f"the answer of a {name} provider", SEAM)
        found = stage.asked()
        expect(found, 2, f"requests to a {name} provider", "Leave repeating a request to the SDK's client.")
        expect(await stage.attempt(body, name), "Hello.", f"the answer on a replay after a {name} provider", SEAM)
        expect(stage.asked(), 0, f"requests on a replay after a {name} provider", "Record answers only.")
        expect(len(stage.records(name, "turn")), 1, f"records of one turn of a {name} provider", "Record answers only.")
    attempts.clear()
    stage.server.clear()
    stage.server.script(None, "never", repeat_last=True)
    stage.server.fault(Fault.unauthorized())
    todo = "Declare in `_errors.py` that this is FAIL_NOW."
    try:
        await stage.attempt(body, "wrong-key", retried=True)
    except flyte.errors.NonRecoverableError:
        pass
    except Exception as error:
        raise NotConformingError(f"A wrong key raised {type(error).__name__}: {error}. {todo}") from error
    else:
        expect("an answer", "an error", "a wrong key", todo)
    expect(len(attempts), 1, "attempts with a wrong key", todo)
    expect(stage.asked(), 1, "requests with a wrong key", todo)


@check("turns.broken_stream", Capability.STREAMS)
async def a_stream_that_breaks_is_no_answer(stage: Stage) -> None:
    """What arrived of a stream before it broke is not recorded, and the turn is asked again."""
    stage.server.script(None, Reply(ANSWER * 20, pieces=20), repeat_last=True)
    stage.server.fault(Fault.cut(after=4))

    async def body() -> Any:
        return await stage.adapter.run_agent(
            "Hi", model=stage.adapter.model, on_event=lambda _: None, **stage.adapter.streaming
        )

    todo = "Say with `is_last` which piece completes an answer, and raise where the stream ends before it."
    expect(await stage.attempt(body, retried=True), ANSWER * 20, "the answer behind a stream that broke", todo)
    expect(stage.asked(), 2, "requests for it", todo)
    # an SDK that asks otherwise after a failure has that on record, too
    answers = [record for record in stage.records(kind="turn") if b'"status": "completed"' in record.read_bytes()]
    expect(len(answers), 1, "recorded answers", todo)


@check("turns.damaged")
async def a_record_that_cannot_be_read_is_an_error(stage: Stage) -> None:
    """A damaged record is an error that names it, and no second call."""
    stage.server.script(None, "Hello.", repeat_last=True)
    attempts: list[int] = []

    async def body() -> Any:
        attempts.append(1)
        return await stage.adapter.run_agent("Hi", model=stage.adapter.model)

    await stage.crash(body)
    (record,) = stage.records(kind="turn")
    record.write_bytes(record.read_bytes().replace(b"Hello.", b"Jello."))
    stage.asked()
    attempts.clear()
    todo = "Let core's RecordError pass."
    try:
        answer = await stage.attempt(body, retried=True)
    except Exception as error:  # noqa: BLE001 - which one it is is what is looked at
        expect(record.name in str(error), True, f"the error names the record ({error})", todo)
    else:
        expect(answer, "an error", "a damaged record", todo)
    expect((stage.asked(), len(attempts)), (0, 1), "requests and attempts with a damaged record", todo)


@check("turns.large")
async def a_large_answer_is_kept_whole(stage: Stage) -> None:
    """An answer of 2 MiB is recorded, by reference, and comes back."""
    stage.server.script(None, Reply("x" * 2**21), repeat_last=True)

    async def body() -> Any:
        return len(await stage.adapter.run_agent("Hi", model=stage.adapter.model))

    await stage.crash(body)
    expect(await stage.attempt(body), 2**21, "the length of a large answer on a replay", SEAM)
    expect(stage.asked(), 1, "requests for a large answer", SEAM)
    (record,) = stage.records(kind="turn")
    expect(record.stat().st_size < 100_000, True, "its record holds a reference", "Make turns with `run.turn`.")
