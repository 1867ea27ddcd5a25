"""For each paragraph of the promise, an adapter that does not keep it: the reference adapter with one thing changed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from flyteplugins.agents.conformance import reference
from flyteplugins.agents.conformance.kit import Adapter
from flyteplugins.agents.conformance.reference import _errors, _model, _tool, sdk
from flyteplugins.agents.conformance.reference.declaration import PARROT
from flyteplugins.agents.core import (
    AgentError,
    AgentTool,
    ApprovalDecision,
    ErrorClass,
    JsonCodec,
    NativeTool,
    RecordError,
    RunMemory,
    Usage,
    current_run,
    render_result,
)
from flyteplugins.agents.core._approval import decide

Broken = Callable[[], contextlib.AbstractContextManager[Adapter]]

BROKEN: dict[str, tuple[str, Broken]] = {}
"""What is wrong, and a context in which the adapter is so, by paragraph."""

FURTHER: list[tuple[str, str, Broken]] = []
"""Further ones, of paragraphs that can be broken in more than one way: the paragraph, what is wrong, and the context."""

REAL = reference.run_agent


def broken(paragraph: str, what: str) -> Callable[[Callable[[], Iterator[Any]]], None]:
    """Enter a broken adapter into its list: a generator that yields while it is broken."""

    def enter(function: Callable[[], Iterator[Any]]) -> None:
        @contextlib.contextmanager
        def context() -> Iterator[Adapter]:
            with contextlib.contextmanager(function)() as adapter:
                yield adapter or PARROT

        if paragraph in BROKEN:
            FURTHER.append((paragraph, what, context))
        else:
            BROKEN[paragraph] = what, context

    return enter


def run_agent_is(wrong: Callable[..., Any], name: str = "run_agent") -> Any:
    return mock.patch.object(reference, name, functools.wraps(REAL)(wrong) if name == "run_agent" else wrong)


def with_options(paragraph: str, what: str, change: Callable[[dict[str, Any]], None]) -> None:
    """An adapter that changes what `run_agent` was given."""

    async def wrong(input: Any, **options: Any) -> Any:
        change(options)
        return await REAL(input, **options)

    @broken(paragraph, what)
    def _() -> Iterator[Any]:
        with run_agent_is(wrong):
            yield


def with_fields(paragraph: str, what: str, change: Callable[[dict[str, Any]], object]) -> None:
    """An adapter that makes another key."""
    real = _model.request_fields

    def wrong(*args: Any) -> dict[str, Any]:
        fields: dict[str, Any] = real(*args)
        change(fields)
        return fields

    @broken(paragraph, what)
    def _() -> Iterator[Any]:
        with mock.patch.object(_model, "request_fields", wrong):
            yield


def with_tools(paragraph: str, what: str, call: Callable[[AgentTool, str, str], Any], **parameters: Any) -> None:
    """An adapter whose tools are called in another way."""

    def wrong(agent_tool: AgentTool, options: Any = None) -> sdk.Tool:
        async def function(arguments: str, call_id: str) -> str:
            return str(await call(agent_tool, arguments, call_id))

        function.__agent_tool__ = agent_tool  # type: ignore[attr-defined]
        schema = parameters or agent_tool.schema.parameters
        return sdk.Tool(agent_tool.name, agent_tool.description, schema, function)

    @broken(paragraph, what)
    def _() -> Iterator[Any]:
        with mock.patch.object(_tool, "native_tool", wrong):
            yield


def forced(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda options: options.update(values)


# -- surface


@broken("surface.names", "run_agent lacks most keywords")
def _() -> Iterator[Any]:
    async def wrong(input: Any, *, model: Any = None) -> Any:
        return await REAL(input, model=model)

    with mock.patch.object(reference, "run_agent", wrong):
        yield


@broken("surface.light", "importing the adapter imports the SDK")
def _() -> Iterator[Any]:
    apps = str(Path(__file__).parent / "apps")
    with mock.patch.dict(os.environ, {"PYTHONPATH": apps}), mock.patch.object(sys, "path", [apps, *sys.path]):
        yield dataclasses.replace(PARROT, module="eager_parrot")


@broken("surface.sync", "run_agent_sync blocks an event loop")
def _() -> Iterator[Any]:
    def wrong(input: Any, **options: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(asyncio.run(REAL(input, **options))))
        thread.start()
        thread.join()
        return found[0]

    with run_agent_is(wrong, "run_agent_sync"):
        yield


with_options("surface.result", "output_type is ignored", forced(output_type=None))


def _touch(options: dict[str, Any]) -> None:
    if options.get("agent") is not None:
        options["agent"].tools = [*options["agent"].tools]


with_options("surface.caller", "the caller's agent is changed", _touch)


def _drop(options: dict[str, Any]) -> None:
    if options.get("agent") is not None:
        options.pop("model", None)
        options.pop("output_type", None)


with_options("surface.excludes", "what an agent has itself is ignored", _drop)


@broken("surface.outside", "the SDK's exceptions are wrapped outside of a task")
def _() -> Iterator[Any]:
    async def wrong(input: Any, **options: Any) -> Any:
        try:
            return await REAL(input, **options)
        except sdk.ParrotError as error:
            raise AgentError(str(error)) from error

    with run_agent_is(wrong):
        yield


with_options("surface.not_durable", "durable=False is ignored", forced(durable=True))

# -- turns


def _forget_agents(options: dict[str, Any]) -> None:
    options["durable"] = options.get("agent") is None


with_options("turns.replayed", "the turns of pre-built agents are not recorded", _forget_agents)


@broken("turns.alike", "tokens are counted twice")
def _() -> Iterator[Any]:
    real = _model._facts

    def wrong(answer: Any) -> Any:
        facts = real(answer)
        twice = Usage(1, 2 * facts.usage.input_tokens, facts.usage.output_tokens)
        return dataclasses.replace(facts, usage=twice)

    with mock.patch.object(_model, "_facts", wrong):
        yield


def _no_pieces(options: dict[str, Any]) -> None:
    listener = options.get("on_event")
    if listener is not None:
        options["on_event"] = lambda event: None if event.type == "text delta" else listener(event)


with_options("turns.streamed", "nobody is told of pieces", _no_pieces)


@broken("turns.concurrent", "neither name nor instructions tell agents apart")
def _() -> Iterator[Any]:
    real = _model.request_fields

    async def nameless(input: Any, **options: Any) -> Any:
        return await REAL(input, **(options | {"name": None}))

    def wrong(*args: Any) -> dict[str, Any]:
        return {name: value for name, value in real(*args).items() if name != "instructions"}

    with run_agent_is(nameless), mock.patch.object(_model, "request_fields", wrong):
        yield


@broken("turns.two_writers", "a worker uses its own answer, whatever is stored")
def _() -> Iterator[Any]:
    async def wrong(self: Any, request: Any) -> Any:
        mine: list[Any] = []

        async def ask() -> Any:
            mine.append(await self._model.respond(request))
            return mine[0]

        fields = _model.request_fields(self._model, request)
        recorded = await self._run.turn(fields, ask, codec=JsonCodec(), facts=_model._facts, model=self.name)
        return mine[0] if mine else recorded.value

    with mock.patch.object(_model.DurableModel, "respond", wrong):
        yield


@broken("turns.errors", "a wrong key is tried again")
def _() -> Iterator[Any]:
    with mock.patch.dict(_errors.ERROR_CLASSES, {sdk.AuthenticationError: ErrorClass.RETRY_ATTEMPT}):
        yield


@broken("turns.broken_stream", "a stream that breaks is taken for a whole one")
def _() -> Iterator[Any]:
    real = sdk.Model.stream

    async def wrong(self: Any, request: Any) -> Any:
        with contextlib.suppress(sdk.ProviderError):
            async for piece in real(self, request):
                yield piece

    with mock.patch.object(sdk.Model, "stream", wrong):
        yield


@broken("turns.damaged", "a damaged record is asked again silently")
def _() -> Iterator[Any]:
    async def wrong(input: Any, **options: Any) -> Any:
        try:
            return await REAL(input, **options)
        except RecordError:
            return await REAL(input, **(options | {"durable": False}))

    with run_agent_is(wrong):
        yield


@broken("turns.large", "large answers are kept inside of records")
def _() -> Iterator[Any]:
    with mock.patch("flyteplugins.agents.core._records.MAX_INLINE_BYTES", 2**30):
        yield


# -- keys

with_fields("keys.changes", "settings are no part of the key", lambda fields: fields.pop("settings"))


def _blank(fields: dict[str, Any]) -> None:
    fields["messages"] = re.sub("[0-9a-f]{8}-[-0-9a-f]{27}", "", str(fields["messages"]))


with_fields("keys.same", "whatever looks like an identifier is blanked", _blank)


@broken("keys.secrets", "the key is kept beside the answer")
def _() -> Iterator[Any]:
    real = sdk.Model.respond

    async def wrong(self: Any, request: Any) -> Any:
        return {**await real(self, request), "key": os.environ["OPENAI_API_KEY"]}

    with mock.patch.object(sdk.Model, "respond", wrong):
        yield


with_fields("keys.processes", "the process is part of the key", lambda fields: fields.update(process=os.getpid()))

# -- tools


async def _as_it_is(tool: AgentTool, arguments: str, call_id: str) -> str:
    return (await tool.call(arguments, call_id=call_id)).text


with_tools("tools.schema", "the schema says nothing", _as_it_is, type="object", properties={})


async def _unchecked(tool: AgentTool, arguments: str, call_id: str) -> str:
    del call_id
    function: Any = getattr(tool.task, "func", None) or tool.function
    return render_result(await function(**json.loads(arguments)))


with_tools("tools.arguments", "arguments are not validated", _unchecked)


async def _quiet(tool: AgentTool, arguments: str, call_id: str) -> str:
    with contextlib.suppress(AgentError):
        return "Error." if "failed" in (text := await _as_it_is(tool, arguments, call_id)) else text
    return "Error."


with_tools("tools.failures", "the model is not told why", _quiet)


@broken("tools.overlap", "tools run one after the other")
def _() -> Iterator[Any]:
    real = sdk._call
    lock = asyncio.Lock()

    async def wrong(*args: Any) -> Any:
        async with lock:
            return await real(*args)

    with mock.patch.object(sdk, "_call", wrong):
        yield


async def _unrecorded(tool: AgentTool, arguments: str, call_id: str) -> str:
    if tool.task is not None:
        return await _as_it_is(tool, arguments, call_id)
    return render_result(await tool.run_function(tool.schema.validate(arguments)))


with_tools("tools.once", "plain functions are not recorded", _unrecorded)


@broken("tools.keys_of_effects", "every call has one idempotency key")
def _() -> Iterator[Any]:
    with mock.patch.object(reference, "idempotency_key", return_value="key"):
        yield


def _inner_forgets(options: dict[str, Any]) -> None:
    options["durable"] = current_run() is None


with_options("tools.nested", "agents inside of tools are not recorded", _inner_forgets)


async def _retries(tool: AgentTool, arguments: str, call_id: str) -> str:
    tool.on_unknown = "retry"
    return await _as_it_is(tool, arguments, call_id)


with_tools("tools.unknown", "on_unknown is ignored", _retries)


@broken("tools.copies", "a tool cannot be copied deeply")
def _() -> Iterator[Any]:
    def wrong(self: Any, memo: Any) -> Any:
        raise NotImplementedError("A tool cannot be copied.")

    with mock.patch.object(NativeTool, "__deepcopy__", wrong):
        yield


# -- memory

with_options("memory.continues", "the memory key is ignored", forced(memory_key=None))


def with_commit(paragraph: str, what: str, keep: Callable[[list[Any]], list[Any]]) -> None:
    """An adapter that remembers something else."""
    real = RunMemory.commit

    async def wrong(self: Any, messages: Any, **options: Any) -> None:
        await real(self, keep(list(messages)), **options)

    @broken(paragraph, what)
    def _() -> Iterator[Any]:
        with mock.patch.object(RunMemory, "commit", wrong):
            yield


with_commit(
    "memory.tools", "results of tools are forgotten", lambda kept: [one for one in kept if one["role"] != "tool"]
)
with_commit("memory.writers", "one of two writers is lost", lambda kept: [] if kept[0]["content"] == "right" else kept)


def _mend_key(options: dict[str, Any]) -> None:
    options["memory_key"] = re.sub(r"\W", "-", options["memory_key"] or "none")


with_options("memory.failed", "a key that is none is mended silently", _mend_key)

# -- limits

with_options("limits.budget", "the budget is ignored", forced(budget=None))


def _no_loops(options: dict[str, Any]) -> None:
    options["budget"] = dataclasses.replace(options["budget"], same_call=None)


with_options("limits.loops", "equal calls are not counted", _no_loops)


@broken("limits.errors", "an exception of the SDK has no meaning")
def _() -> Iterator[Any]:
    with mock.patch.dict(_errors.ERROR_CLASSES):
        del _errors.ERROR_CLASSES[sdk.TooManyTurnsError]
        yield


# -- people


def _unmarked(options: dict[str, Any]) -> None:
    listener = options.get("on_event")
    if listener is not None:
        options["on_event"] = lambda event: listener(dataclasses.replace(event, replayed=False))


with_options("people.events", "what is replayed is not marked", _unmarked)
with_options("people.report", "observability is ignored", forced(observability=True))

# -- records

with_fields("records.golden", "the key has one more field", lambda fields: fields.update(more="field"))


@broken("records.format", "the payload has one more entry")
def _() -> Iterator[Any]:
    real = sdk.Model.respond

    async def wrong(self: Any, request: Any) -> Any:
        return {**await real(self, request), "more": "entry"}

    with mock.patch.object(sdk.Model, "respond", wrong):
        yield


@broken("people.approval", "nobody is asked before a tool runs")
def _nobody_is_asked() -> Iterator[None]:
    real = reference.tool

    def tool(target: Callable[..., Any], /, **options: Any) -> Any:
        options.pop("requires_approval", None)
        return real(target, **options)

    with mock.patch.object(reference, "tool", tool):
        yield


@broken("people.approval", "what waits for a person is returned as the answer")
def _pending_is_an_answer() -> Iterator[None]:
    async def wrong(input: Any, **options: Any) -> Any:
        result = await REAL(input, **options)
        return dataclasses.replace(result, output="It waits.", text="It waits.") if result.pending else result

    with run_agent_is(wrong):
        yield


@broken("people.approval", "a person is asked twice")
def _asked_twice() -> Iterator[None]:
    real = decide

    async def twice(*arguments: Any, **options: Any) -> Any:
        await real(*arguments, **options)
        return await real(*arguments, **options)

    with mock.patch("flyteplugins.agents.core._tools.decide", twice):
        yield


@broken("people.approval", "the model is not told why a call was refused")
def _no_reason() -> Iterator[None]:
    with mock.patch.object(ApprovalDecision, "told", property(lambda decision: f"{decision.action} was refused.")):
        yield


@broken("people.approval", "a call runs although it was refused")
def _runs_all_the_same() -> Iterator[None]:
    with mock.patch.object(ApprovalDecision, "approved", property(lambda decision: bool(decision.decision))):
        yield
