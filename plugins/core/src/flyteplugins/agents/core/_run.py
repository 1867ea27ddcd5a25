"""The agent run: what one call of `run_agent` shares between its turns, tools, memory, events and report."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import shlex
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._budget import Budget, BudgetExceededError, Meter, current_meter, spent_inside
from ._canonical import JSON, UnserializableError, jsonable
from ._errors import AgentError, ApprovalPendingError, ErrorClass, error_chain
from ._events import (
    DrainedSink,
    Event,
    EventSink,
    RunFinished,
    RunStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallRepeated,
    ToolCallStarted,
    TurnFinished,
    deliver,
)
from ._instrumentation import apply_call_wrapper, apply_instrumentation, listeners
from ._prices import read_prices, turn_cost
from ._progress import Progress
from ._recorder import Codec, ErrorCodec, Recorded, Recorder, current_slot
from ._result import AgentResult, ToolCallRecord, TurnRecord
from ._scope import TaskScope, current_scope
from ._stream import StreamEnd, record_stream
from ._telemetry import Telemetry
from ._usage import RunUsage, Usage

if TYPE_CHECKING:
    from ._approval import Approval
    from ._report import RunReport

__all__ = ["AgentRun", "OnToolError", "TurnFacts", "agent_run", "current_run"]

logger = logging.getLogger("flyteplugins.agents")

OutputT = TypeVar("OutputT")
T = TypeVar("T")

_PATIENCE = 30.0
"""How long a cancelled tool call may take to end, in seconds."""

OnToolError = Literal["model", "raise"]
"""`model`: a tool's exception is told to the model; `raise`: it fails the run."""


@dataclass(frozen=True)
class TurnFacts:
    """What people and budgets want to know of a response.

    Attributes:
        text: The text of the answer, without reasoning.
        tool_calls: Names of the tools that it calls, in order.
        usage: Its tokens.
        messages: The answer as messages, in the SDK's terms, as the next turn would be asked about them. The error of a budget
            that is used up carries them.
        provider: Who sells the model, where its name does not say it; for its price.
    """

    text: str = ""
    tool_calls: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    messages: Sequence[object] = ()
    provider: str = ""

    def as_dict(self) -> dict[str, JSON]:
        """What the record shows beside the response: it holds the text already."""
        return {"tool_calls": list(self.tool_calls), "usage": dict(self.usage.as_dict())}


_CURRENT: ContextVar[AgentRun | None] = ContextVar("flyteplugins.agents.run", default=None)


_PLACE: ContextVar[AgentRun | None] = ContextVar("flyteplugins.agents.place", default=None)
"""The agent run of whose `max_concurrent_tools` places this code holds one."""


_INSIDE: ContextVar[_Inside | None] = ContextVar("flyteplugins.agents.inside", default=None)


@dataclass(frozen=True)
class _Inside:
    """The tool call that this code runs inside of."""

    run: AgentRun
    call: str
    outer: _Inside | None


def current_run() -> AgentRun | None:
    """The agent run that this code belongs to, if any.

    A child task does not belong to its parent's: on a laptop it runs in the parent's context, on a cluster it does not.
    """
    run = _CURRENT.get()
    if run is None or run.scope is None:
        return run
    scope = current_scope()
    return run if scope is not None and scope.identity == run.scope.identity else None


class AgentRun:
    """One call of `run_agent`.

    Attributes:
        framework: The SDK's short name.
        name: The agent run's name.
        scope: The Flyte task that runs, or `None` outside of one.
        recorder: Makes and replays its leaves.
        on_tool_error: What becomes of a tool's exception.
        control_flow: Exceptions by which the SDK steers its loop; a tool's always pass, and are never told to the model.
        observability: Whether it is reported and traced, and whether with contents.
        usage: What it has cost so far.
        turns: The turns so far, in the order in which they finished.
        tool_calls: The tool calls so far, in the order in which they finished.
        pending: Approvals that nobody is there to give: the run ends without an answer.
        approval: How a person is asked about what the SDK itself suspends.
    """

    def __init__(
        self,
        *,
        framework: str,
        name: str,
        scope: TaskScope | None,
        recorder: Recorder,
        sinks: list[EventSink],
        on_tool_error: OnToolError,
        control_flow: tuple[type[BaseException], ...],
        max_concurrent_tools: int | None,
        meter: Meter,
        observability: bool | Literal["structure"] = True,
        telemetry: Telemetry | None = None,
        approval: Approval | None = None,
    ) -> None:
        self.framework = framework
        self.name = name
        self.scope = scope
        self.recorder = recorder
        self.on_tool_error: OnToolError = on_tool_error
        self.control_flow = control_flow
        self._meter = meter
        self.observability: bool | Literal["structure"] = observability
        self.usage = RunUsage()
        self.turns: list[TurnRecord] = []
        self.tool_calls: list[ToolCallRecord] = []
        self.pending: list[str] = []
        self.approval = approval
        self._began = time.perf_counter()
        self._calls = 0
        self._calling: Counter[asyncio.Task[Any] | None] = Counter()
        self._ended = False
        self._sinks = sinks
        self._telemetry = telemetry
        self._broken_sinks: set[int] = set()
        self._tools = asyncio.Semaphore(max_concurrent_tools) if max_concurrent_tools else None

    @property
    def meter(self) -> Meter:
        """What counts against its budget: inside of a tool call, what counts for that call, whose record has to tell."""
        inner = current_meter()
        return inner if inner is not None and inner.owner is self._meter else self._meter

    def suspend(self, error: ApprovalPendingError) -> None:
        """Have the run end because a person has to be asked and nobody is there, whatever the SDK makes of the error.

        Args:
            error: What waits.
        """
        self.pending += [name for name in error.pending if name not in self.pending]
        self.meter.stop(error)

    @property
    def id(self) -> str:
        """The agent run's id, unique within the Flyte run; its name outside of a task."""
        return self.recorder.path or self.name

    @contextlib.asynccontextmanager
    async def tool_slot(self) -> AsyncIterator[None]:
        """Wait for one of the `max_concurrent_tools` places, and hold it; a tool that calls a tool has one already."""
        if self._tools is None or _PLACE.get() is self:
            yield
            return
        async with self._tools:
            token = _PLACE.set(self)
            try:
                yield
            finally:
                _PLACE.reset(token)

    async def turn(
        self,
        fields: Mapping[str, object],
        call: Callable[[], Awaitable[T]],
        *,
        codec: Codec[T],
        facts: Callable[[T], TurnFacts],
        model: str,
        agent: str = "",
        pieces: Sequence[str] = (),
    ) -> Recorded[T]:
        """Make a turn, or answer it from its record, and tell of it.

        Args:
            fields: The whole semantic request, by field.
            call: Asks the model; awaited at most once.
            codec: How the response is kept.
            facts: What people and budgets want to know of a response.
            model: The model's name.
            agent: The agent that asks; the agent run's by default.
            pieces: In what pieces the text arrived, for an SDK whose `call` streams by itself and tells of them. The codec may
                fill it: it is read when the response is there, and told again where that is from the record.

        Returns:
            The response.

        Raises:
            Exception: What `Recorder.record` raises.
        """
        async with self._turn_events(model, agent, fields.get("messages")) as finished:
            known = _once(facts)
            recorded = await self.recorder.record(
                "turn", fields, call, codec=codec, info=lambda value: known(value).as_dict()
            )
            if recorded.replayed:
                for text in pieces:
                    await self.emit(TextDelta(run=self.id, agent=agent or self.name, text=text, replayed=True))
            await finished(known(recorded.value), recorded)
        return recorded

    async def stream_turn(
        self,
        fields: Mapping[str, object],
        stream: Callable[[], AsyncIterator[T]],
        *,
        codec: Codec[list[T]],
        facts: Callable[[list[T]], TurnFacts],
        delta: Callable[[T], str],
        is_last: Callable[[T], bool],
        model: str,
        agent: str = "",
    ) -> AsyncGenerator[T, None]:
        """Make a streamed turn, or answer it from its record, and tell of it and of each piece of its text.

        Args:
            fields: The whole semantic request, by field; the same as for a turn that is not streamed.
            stream: Opens the stream; called at most once.
            codec: How the pieces are kept. Where a record may be read by `turn` as well, both codecs read either's payload.
            facts: What people and budgets want to know of the response.
            delta: The text that a piece adds to the answer, without reasoning; empty for most pieces.
            is_last: Whether a piece completes the answer, so that it waits for the record.
            model: The model's name.
            agent: The agent that asks; the agent run's by default.

        Yields:
            The pieces.

        Raises:
            Exception: What `Recorder.record` raises.
        """
        async with self._turn_events(model, agent, fields.get("messages")) as finished:
            known = _once(facts)
            pieces = record_stream(
                self.recorder,
                "turn",
                fields,
                stream,
                codec=codec,
                is_last=is_last,
                info=lambda value: known(value).as_dict(),
            )
            async with contextlib.aclosing(pieces):
                async for item in pieces:
                    if isinstance(item, StreamEnd):
                        await finished(known(item.recorded.value), item.recorded)
                        return
                    piece, replayed = item
                    if text := delta(piece):
                        await self.emit(TextDelta(run=self.id, agent=agent or self.name, text=text, replayed=replayed))
                    yield piece

    @contextlib.asynccontextmanager
    async def _turn_events(
        self, model: str, agent: str, messages: object
    ) -> AsyncIterator[Callable[[TurnFacts, Recorded[Any]], Awaitable[None]]]:
        event: dict[str, Any] = {"run": self.id, "agent": agent or self.name, "model": model}
        read_prices()
        self.meter.begin_turn(messages)

        async def finished(facts: TurnFacts, recorded: Recorded[Any]) -> None:
            cost = await turn_cost(model, facts.usage, provider=facts.provider, started=recorded.started)
            await self.emit(
                TurnFinished(
                    **event,
                    text=facts.text,
                    tool_calls=facts.tool_calls,
                    usage=facts.usage,
                    seconds=recorded.seconds,
                    replayed=recorded.replayed,
                    cost=cost,
                )
            )
            self.meter.end_turn(facts.usage, cost, recorded.seconds, facts.messages)

        try:
            yield finished
        except BudgetExceededError:
            raise  # the turn was told of, and did not fail
        except Exception as error:
            await self.emit(TurnFinished(**event, error=f"{type(error).__name__}: {error}"))
            raise

    async def inline_tool(
        self,
        name: str,
        arguments: JSON,
        call: Callable[[], Awaitable[T]],
        *,
        codec: Codec[T],
        shown: Callable[[T], str],
        error: Callable[[T], str | None] = lambda value: None,  # noqa: ARG005
        call_id: str = "",
        agent: str = "",
        durable: bool = True,
        is_agent: bool = False,
    ) -> Recorded[T]:
        """Run a tool of the SDK's own in this process as a recorded leaf, and tell of it.

        Args:
            name: The tool's name, as the model knows it.
            arguments: Its arguments, as JSON values; the model's own text where it is not JSON.
            call: Runs it; awaited at most once, in a context from which tasks may be called.
            codec: How the outcome is kept.
            shown: The outcome as the text that the model is given.
            error: Why it failed, where the outcome says that it did.
            call_id: The SDK's id of the call.
            agent: The agent that calls; the agent run's by default.
            durable: Whether the call is recorded.
            is_agent: Whether it is an agent used as a tool: never a leaf, since its own turns and tools are, and it takes none
                of the `max_concurrent_tools` places, which its tools need.

        Returns:
            The outcome.

        Raises:
            Exception: What the tool raised, or what `Recorder.record` raises.
        """
        event = self.call_event(name, call_id, agent)
        self.meter.begin_call(name, arguments)
        async with self.recorder.strand():
            await self.emit(ToolCallStarted(**event, arguments=arguments))
            began = time.perf_counter()
            try:
                # the turns of an agent used as a tool are told of on a replay as well, so they count by themselves
                apart = contextlib.nullcontext(self.meter) if is_agent else self.meter.inside_call()
                with self.inside(event["call"]), apart as inner:
                    async with contextlib.nullcontext() if is_agent else self.tool_slot():
                        recorded = await self.recorder.record(
                            "tool",
                            {"tool": name, "arguments": arguments},
                            call,
                            codec=codec,
                            info=lambda value: {
                                "tool": name,
                                "error": error(value),
                                "inside": inner.spent.as_dict(),
                            },
                            keep="durable" if durable and not is_agent else "never",
                            on_unknown=lambda _: self.emit(ToolCallRepeated(**event)),
                        )
            except BaseException as problem:
                seconds = time.perf_counter() - began
                said = f"{type(problem).__name__}: {problem}"
                await self.emit(ToolCallFinished(**event, arguments=arguments, error=said, seconds=seconds))
                raise
            await self.emit(
                ToolCallFinished(
                    **event,
                    arguments=arguments,
                    result=shown(recorded.value),
                    error=error(recorded.value),
                    seconds=recorded.seconds,
                    replayed=recorded.replayed,
                )
            )
            self.meter.end_call(0.0 if is_agent else recorded.seconds, spent_inside(recorded))
            return recorded

    def call_event(self, name: str, call_id: str, agent: str) -> dict[str, Any]:
        """What the events of one tool call have in common. A call to which the SDK gives no id is numbered."""
        self._calls += not call_id
        call = call_id or f"call {self._calls}"
        return {"run": self.id, "agent": agent or self.name, "parent": self._inside(), "call": call, "name": name}

    @contextlib.contextmanager
    def inside(self, call: str) -> Iterator[None]:
        """Have what happens in the body happen inside of a tool call: see `Event.parent`.

        Args:
            call: The call's id in its events.
        """
        token = _INSIDE.set(_Inside(self, call, _INSIDE.get()))
        task = asyncio.current_task()
        self._calling[task] += 1
        try:
            with self._telemetry.within(call) if self._telemetry is not None else contextlib.nullcontext():
                yield
        finally:
            self._calling[task] -= 1
            _INSIDE.reset(token)

    async def end_calls(self) -> None:
        """Cancel the tool calls that still run: the agent has ended, and nobody would see how they do.

        A cancelled call of a task tool aborts its child action.
        """
        left = [task for task, calls in self._calling.items() if calls and task and task is not asyncio.current_task()]
        for task in left:
            task.cancel("The agent run has ended.")
        if left:
            _, stuck = await asyncio.wait(left, timeout=_PATIENCE)
            if stuck:
                logger.warning("%d tool calls of %s go on although they were cancelled.", len(stuck), self.name)

    def instrumented(self, payload: T, framework: str = "") -> T:
        """Offer the SDK's native payload to what third parties registered: see `register_instrumentor`.

        Args:
            payload: What the SDK's own run takes, `None` where the caller gave nothing.
            framework: Its name, where the adapter speaks to more than one; the agent run's by default.

        Returns:
            The payload to use.
        """
        return apply_instrumentation(framework or self.framework, payload) if self.observability is True else payload

    def wrapped_call(self, call: T, framework: str = "") -> T:
        """Offer the SDK's own callable to what third parties registered: see `register_call_wrapper`.

        Args:
            call: What the adapter is about to call.
            framework: As for `instrumented`.

        Returns:
            What to call.
        """
        return apply_call_wrapper(framework or self.framework, call) if self.observability is True else call

    def _inside(self) -> str:
        """The call of this agent run that this code runs inside of; empty if none."""
        inside = _INSIDE.get()
        while inside is not None and inside.run is not self:
            inside = inside.outer
        return inside.call if inside is not None else ""

    async def list_tools(
        self, server: str, call: Callable[[], Awaitable[T]], *, codec: Codec[T], agent: str = ""
    ) -> Recorded[T]:
        """Ask a server for its tools as a recorded leaf: a resume offers the model what the first attempt did.

        Args:
            server: The server's name.
            call: Asks it; awaited at most once.
            codec: How the list is kept.
            agent: The agent that asks, since a server may offer each other tools; the agent run's by default.

        Returns:
            The list.

        Raises:
            Exception: What the server raised, or what `Recorder.record` raises.
        """
        return await self.recorder.record("tools", {"server": server, "agent": agent or self.name}, call, codec=codec)

    async def emit(self, event: Event) -> None:
        """Tell everybody who listens about an event.

        An event that does not say what it happened inside of gets the tool call that this code runs inside of.

        A listener that raises is told nothing more, and the agent goes on: nobody loses a paid turn to a broken display.
        """
        if not event.parent and event.run in ("", self.id):
            parent = self._inside()
            if parent not in ("", getattr(event, "call", "")):  # what is said of a call does not happen inside of it
                event = dataclasses.replace(event, parent=parent)
        self._count(event)
        for sink in self._sinks:
            if id(sink) in self._broken_sinks:
                continue
            try:
                await deliver(sink, event)
            except Exception:  # see above
                self._broken_sinks.add(id(sink))
                logger.exception("A listener of agent events raised, and is told nothing more: %r", sink)

    async def finish(self, text: str) -> None:
        """Say that the run has its answer. Called when the memory is committed.

        Args:
            text: The final text.
        """
        seconds = time.perf_counter() - self._began
        await self.emit(RunFinished(run=self.id, agent=self.name, text=text, seconds=seconds))

    def result(self, output: OutputT, text: str, native: object) -> AgentResult[OutputT]:
        """Put the full result together.

        Args:
            output: The answer: text, or an instance of the output type.
            text: The answer as text.
            native: The SDK's own result.
        """
        return AgentResult(
            output=output,
            text=text,
            usage=self.usage,
            turns=tuple(self.turns),
            tool_calls=tuple(self.tool_calls),
            pending=tuple(self.pending),
            native=native,
        )

    def _count(self, event: Event) -> None:
        match event:
            case TurnFinished():
                self.usage = self.usage.adding(event.usage, replayed=event.replayed, cost=event.cost)
                self.turns.append(
                    TurnRecord(
                        agent=event.agent,
                        model=event.model,
                        text=event.text,
                        tool_calls=event.tool_calls,
                        input_tokens=event.usage.input_tokens,
                        output_tokens=event.usage.output_tokens,
                        seconds=event.seconds,
                        replayed=event.replayed,
                        error=event.error,
                        cost=event.cost,
                    )
                )
            case ToolCallFinished():
                self.tool_calls.append(
                    ToolCallRecord(
                        name=event.name,
                        arguments=event.arguments,
                        result=event.result,
                        seconds=event.seconds,
                        replayed=event.replayed,
                        error=event.error,
                    )
                )
            case RunFinished():
                self._ended = True


@contextlib.asynccontextmanager
async def agent_run(
    *,
    framework: str,
    name: str,
    input: object,
    memory_key: str | None,
    configuration: Mapping[str, object],
    classify: Callable[[BaseException], ErrorClass],
    durable: bool = True,
    observability: bool | Literal["structure"] = True,
    on_event: EventSink | None = None,
    on_tool_error: OnToolError = "model",
    control_flow: tuple[type[BaseException], ...] = (),
    outcomes: tuple[type[BaseException], ...] = (),
    max_concurrent_tools: int | None = None,
    errors: ErrorCodec | None = None,
    budget: Budget | None = None,
    approval: Approval | None = None,
) -> AsyncIterator[AgentRun]:
    """Run the body as one agent run.

    Args:
        framework: The SDK's short name.
        name: The agent run's name.
        input: What the user said: a string, or the SDK's own input.
        memory_key: The conversation that it continues, if any.
        configuration: What it runs with, as far as it is known before its first request.
        classify: What is to be done about an exception of the SDK.
        durable: Whether turns, inline tools and memory reads are recorded.
        observability: Whether there is a report, telemetry and console output; `"structure"` keeps contents out of them.
        on_event: Called with each event.
        on_tool_error: What becomes of a tool's exception.
        control_flow: Exceptions by which the SDK steers its loop.
        outcomes: Those of them that answer the call that raises them: they are kept, and raised again on a replay. A call that
            raises another leaves no outcome, and is made again.
        max_concurrent_tools: How many tool calls may run at once; `None` for no limit.
        errors: How failures that were passed over are kept.
        budget: What it may use; no limit by default.
        approval: How a person is asked about what the SDK itself suspends: for ever by default.

    Raises:
        BudgetExceededError: It went over a limit of its budget, inside or outside of a task.
        ApprovalPendingError: A person has to be asked, and nobody is there; it has the result so far.
        AgentError: The run failed in a way that another attempt would not change. Inside a task only; outside of one the
            SDK's own exception passes.
        ValueError: An argument is out of range.
    """
    if max_concurrent_tools is not None and max_concurrent_tools < 1:
        raise ValueError(f"max_concurrent_tools is {max_concurrent_tools}; give 1 or more, or None for no limit.")
    if on_tool_error not in ("model", "raise"):
        raise ValueError(f"on_tool_error is {on_tool_error!r}; give 'model' or 'raise'.")
    if on_event is not None and not callable(on_event):
        raise TypeError(f"on_event is {on_event!r}; give a function of one event, or a coroutine function.")
    if observability not in (True, False, "structure"):
        raise ValueError(f"observability is {observability!r}; give True, False or 'structure'.")
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget is a {type(budget).__qualname__}; give a Budget, such as Budget(turns=20, cost=0.5).")
    scope = current_scope()
    if scope is not None:
        await scope.check_origin()
    outer = current_run()
    identity = {"name": name, "input": input, "memory_key": memory_key, "parent": _parent()}
    try:
        recorder = await Recorder.open(
            scope,
            identity=identity,
            configuration=configuration,
            durable=durable,
            errors=errors,
            control_flow=tuple(kind for kind in control_flow if not issubclass(kind, outcomes)),
        )
    except UnserializableError as error:
        raise AgentError(f"{type(error).__name__}: {error}") from error
    report: RunReport | None = None
    if scope is not None and observability:
        from ._report import RunReport  # templates and styles, which the worker of a tool never shows

        report = RunReport.begin(name, contents=observability is True)
    telemetry = Telemetry.begin(framework, name, scope, observability)
    others = listeners(framework, contents=observability is True) if observability else []
    progress: Progress | None = None
    if scope is not None and observability:
        progress = Progress.begin(
            contents=observability is True, watched=on_event is not None and not isinstance(on_event, DrainedSink)
        )
    sinks: list[EventSink] = [sink for sink in (report, telemetry, *others, progress, on_event) if sink is not None]
    run = AgentRun(
        framework=framework,
        name=name,
        scope=scope,
        recorder=recorder,
        sinks=sinks,
        on_tool_error=on_tool_error,
        control_flow=control_flow,
        max_concurrent_tools=max_concurrent_tools,
        meter=Meter(name, budget, outer=current_meter() if outer is not None else None),
        observability=observability,
        telemetry=telemetry,
        approval=approval,
    )
    if scope is not None and durable and observability:
        _say_how_to_resume(scope, recorder)
    token = _CURRENT.set(run)
    try:
        async with recorder.strand(call=False):
            with run.inside(""):
                await run.emit(
                    RunStarted(
                        run=run.id,
                        agent=name,
                        name=name,
                        input=_shown(input),
                        resumed=recorder.resumed,
                        parent_run=outer.id if outer is not None else "",
                        parent=outer._inside() if outer is not None else "",
                    )
                )
                yield run
        await run.end_calls()
        run.meter.check()
    except BaseException as error:
        await run.end_calls()
        cause, exceeded = error.__cause__, run.meter.exceeded
        if exceeded is not None and exceeded is not error and isinstance(error, Exception):
            # whatever the SDK made of it, this is why the run ended
            cause, error = error if exceeded not in error_chain(error, context=True) else None, exceeded
        if isinstance(error, ApprovalPendingError):
            if outer is not None:
                outer.suspend(error)
            error.pending = tuple(run.pending) or error.pending
            error.result = run.result(None, "", None)
        seconds = time.perf_counter() - run._began
        await run.emit(RunFinished(run=run.id, agent=name, error=f"{type(error).__name__}: {error}", seconds=seconds))
        if report is not None:
            await report.flush()
        if isinstance(error, Exception):
            await recorder.withdraw_failures(error)
        recorder.release()
        if exceeded is not None and error is exceeded:
            raise exceeded from cause
        if scope is None or isinstance(error, AgentError) or not isinstance(error, Exception):
            raise
        for cause in error_chain(error):
            if isinstance(cause, AgentError):  # the SDK wrapped it: which tool raised is in its message
                raise AgentError(str(cause)) from error
        if isinstance(error, UnserializableError) or classify(error) is ErrorClass.FAIL_NOW:
            raise AgentError(f"{type(error).__name__}: {error}") from error
        raise
    else:
        if not run._ended:  # its answer was not text, or nobody said what it was; it is over all the same
            await run.finish("")
        if report is not None:
            await report.flush()
    finally:
        if telemetry is not None:
            telemetry.close()
        _CURRENT.reset(token)
        if isinstance(on_event, DrainedSink):
            await on_event.drain()


def _once(facts: Callable[[T], TurnFacts]) -> Callable[[T], TurnFacts]:
    """Look at one response once, whoever asks; a response that another worker recorded is another one."""
    seen: list[tuple[T, TurnFacts]] = []

    def known(value: T) -> TurnFacts:
        if not seen or seen[-1][0] is not value:
            seen.append((value, facts(value)))
        return seen[-1][1]

    return known


def _parent() -> str | None:
    """What this agent run is part of: an inline tool's call, or another agent run."""
    parent = current_run()
    if parent is None:
        return None
    slot = current_slot()
    number = parent.recorder.number or parent.name
    return f"{number}/{slot.name}" if slot is not None and slot.run == number else number


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return str(jsonable(value))
    except UnserializableError:
        return str(value)


def _say_how_to_resume(scope: TaskScope, recorder: Recorder) -> None:
    """Say once per attempt how a run goes on after a crash: on a laptop, and where one run goes on from another."""
    if scope.state.hinted or (scope.mode != "local" and not scope.origin):
        return
    scope.state.hinted = True
    on_record = f"{_count(recorder.count('turn'), 'turn')}, {_count(recorder.count('tool'), 'tool call')}"
    if scope.origin:
        message = f"Run {scope.run} goes on from run {scope.origin}. On record, and not made again: {on_record}."
    elif recorder.edited:
        message = (
            f"Run {scope.run} goes on, and was changed since. On record: {on_record}. "
            "What is asked as before is not made again."
        )
    elif recorder.resumed:
        message = f"Run {scope.run} goes on. On record, and not made again: {on_record}."
    else:
        message = f"Run {scope.run} is durable. After a crash, go on with:  {_resume_command(scope.run)}"
    print(f"[flyte-agents] {message}", file=sys.stderr, flush=True)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _resume_command(run: str) -> str:
    program, *arguments = sys.argv
    if program.rpartition("/")[2] != "flyte" or "run" not in arguments:
        return f"flyte.with_runcontext(mode='local', name={run!r}).run(...), with the same inputs"
    if not any(argument == "--name" or argument.startswith("--name=") for argument in arguments):
        place = arguments.index("run") + 1
        arguments[place:place] = ["--name", run]
    return shlex.join(["flyte", *arguments])
