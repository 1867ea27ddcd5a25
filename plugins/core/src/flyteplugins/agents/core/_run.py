"""The agent run: what one call of `run_agent` shares between its turns, tools, memory, events and report."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Literal, TypeVar

from ._canonical import UnserializableError, jsonable
from ._errors import AgentError, ErrorClass, error_chain
from ._events import (
    Event,
    EventSink,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    TurnFinished,
    deliver,
)
from ._recorder import ErrorCodec, Recorder, current_slot
from ._report import RunReport
from ._result import AgentResult, ToolCallRecord, TurnRecord
from ._scope import TaskScope, current_scope
from ._usage import RunUsage

__all__ = ["AgentRun", "OnToolError", "agent_run", "current_run"]

logger = logging.getLogger("flyteplugins.agents")

OutputT = TypeVar("OutputT")

OnToolError = Literal["model", "raise"]
"""`model`: a tool's exception is told to the model; `raise`: it fails the run."""

_CURRENT: ContextVar[AgentRun | None] = ContextVar("flyteplugins.agents.run", default=None)


_PLACE: ContextVar[AgentRun | None] = ContextVar("flyteplugins.agents.place", default=None)
"""The agent run of whose `max_concurrent_tools` places this code holds one."""


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
        usage: What it has cost so far.
        turns: The turns so far, in the order in which they finished.
        tool_calls: The tool calls so far, in the order in which they finished.
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
    ) -> None:
        self.framework = framework
        self.name = name
        self.scope = scope
        self.recorder = recorder
        self.on_tool_error: OnToolError = on_tool_error
        self.control_flow = control_flow
        self.usage = RunUsage()
        self.turns: list[TurnRecord] = []
        self.tool_calls: list[ToolCallRecord] = []
        self._began = time.perf_counter()
        self._sinks = sinks
        self._broken_sinks: set[int] = set()
        self._tools = asyncio.Semaphore(max_concurrent_tools) if max_concurrent_tools else None

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

    async def emit(self, event: Event) -> None:
        """Tell everybody who listens about an event.

        A listener that raises is told nothing more, and the agent goes on: nobody loses a paid turn to a broken display.
        """
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
            native=native,
        )

    def _count(self, event: Event) -> None:
        match event:
            case TurnFinished():
                self.usage = self.usage.adding(event.usage, replayed=event.replayed)
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
    max_concurrent_tools: int | None = None,
    errors: ErrorCodec | None = None,
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
        observability: Whether there is a report and console output; `"structure"` keeps contents out of the report.
        on_event: Called with each event.
        on_tool_error: What becomes of a tool's exception.
        control_flow: Exceptions by which the SDK steers its loop.
        max_concurrent_tools: How many tool calls may run at once; `None` for no limit.
        errors: How failures that were passed over are kept.

    Raises:
        AgentError: The run failed in a way that another attempt would not change. Inside a task only; outside of one the
            SDK's own exception passes.
        ValueError: An argument is out of range.
    """
    if max_concurrent_tools is not None and max_concurrent_tools < 1:
        raise ValueError(f"max_concurrent_tools is {max_concurrent_tools}; give 1 or more, or None for no limit.")
    if on_tool_error not in ("model", "raise"):
        raise ValueError(f"on_tool_error is {on_tool_error!r}; give 'model' or 'raise'.")
    if observability not in (True, False, "structure"):
        raise ValueError(f"observability is {observability!r}; give True, False or 'structure'.")
    scope = current_scope()
    identity = {"name": name, "input": input, "memory_key": memory_key, "parent": _parent()}
    try:
        recorder = await Recorder.open(
            scope, identity=identity, configuration=configuration, durable=durable, errors=errors
        )
    except UnserializableError as error:
        raise AgentError(f"{type(error).__name__}: {error}") from error
    report = RunReport.begin(name, contents=observability is True) if scope is not None and observability else None
    sinks: list[EventSink] = [sink for sink in (report, on_event) if sink is not None]
    run = AgentRun(
        framework=framework,
        name=name,
        scope=scope,
        recorder=recorder,
        sinks=sinks,
        on_tool_error=on_tool_error,
        control_flow=control_flow,
        max_concurrent_tools=max_concurrent_tools,
    )
    if scope is not None and durable and observability:
        _say_how_to_resume(scope, recorder)
    token = _CURRENT.set(run)
    try:
        async with recorder.strand(call=False):
            await run.emit(RunStarted(run=run.id, agent=name, name=name, input=_shown(input), resumed=recorder.resumed))
            yield run
    except BaseException as error:
        seconds = time.perf_counter() - run._began
        await run.emit(RunFinished(run=run.id, agent=name, error=f"{type(error).__name__}: {error}", seconds=seconds))
        if report is not None:
            await report.flush()
        if isinstance(error, Exception):
            await recorder.withdraw_failures(error)
        recorder.release()
        if scope is None or isinstance(error, AgentError) or not isinstance(error, Exception):
            raise
        for cause in error_chain(error):
            if isinstance(cause, AgentError):  # the SDK wrapped it: which tool raised is in its message
                raise AgentError(str(cause)) from error
        if isinstance(error, UnserializableError) or classify(error) is ErrorClass.FAIL_NOW:
            raise AgentError(f"{type(error).__name__}: {error}") from error
        raise
    else:
        if report is not None:
            await report.flush()
    finally:
        _CURRENT.reset(token)


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
    """On a laptop, say once per attempt how a run goes on after a crash."""
    if scope.mode != "local" or scope.state.hinted:
        return
    scope.state.hinted = True
    if recorder.resumed:
        message = (
            f"Run {scope.run} goes on. On record, and not made again: {_count(recorder.count('turn'), 'turn')}, "
            f"{_count(recorder.count('tool'), 'tool call')}."
        )
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
