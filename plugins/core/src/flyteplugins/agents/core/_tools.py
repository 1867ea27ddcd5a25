"""Tools: a Flyte task or a plain callable that a model may call.

A tool on a task runs as a child action, with its own resources, retries and cache, and never inside a trace. A plain callable
runs in the agent's own process, as a leaf. Either way the outcome that the model was given is recorded, and a call that has
ended is not made again on a resume.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import flyte
import flyte.errors

from ._approval import Approval, ApprovalDecision, ApprovalItem, RequiresApproval, approval_needed, as_approval, decide
from ._budget import Meter, Spent, spent_inside
from ._canonical import JSON, UnserializableError, canonical_json, jsonable
from ._control_flow import control_flow_of, guarded
from ._errors import AgentError, ApprovalPendingError, RecordError
from ._events import ToolCallFinished, ToolCallRepeated, ToolCallStarted
from ._flyte import AsyncFunctionTaskTemplate, TaskTemplate
from ._recorder import JsonCodec, Recorded, Slot, current_slot
from ._resolver import attach_tool_resolver
from ._run import AgentRun, current_run
from ._schema import ToolArgumentError, ToolSchema, tool_schema
from ._schema_docstring import DocstringUse
from ._scope import current_scope

if TYPE_CHECKING:
    AnyTask = TaskTemplate[Any, Any, Any]

__all__ = [
    "AgentTool",
    "OnUnknown",
    "ToolOutcome",
    "ToolTimeoutError",
    "as_agent_tool",
    "describe_error",
    "idempotency_key",
]

OnUnknown = Literal["retry", "ask", "fail"]
"""What a resume does with a call that an earlier attempt started and that left no outcome; `ask` has a person decide."""


class ToolTimeoutError(TimeoutError):
    """A tool call took longer than it may.

    Attributes:
        tool: The tool's name.
        seconds: How long it may take.
    """

    def __init__(self, tool: str, seconds: float) -> None:
        super().__init__(f"The tool {tool} took longer than {seconds:g} seconds.")
        self.tool = tool
        self.seconds = seconds


@dataclass(frozen=True)
class ToolOutcome:
    """How a tool call ended.

    Attributes:
        text: What the model is given.
        error: The exception, as `Class: message`, where there was one.
        replayed: Whether it was answered from a record.
        seconds: How long the call took when it was made.
        inside: What agent runs inside of it used, where it was answered from a record.
    """

    text: str
    error: str | None = None
    replayed: bool = False
    seconds: float = 0.0
    inside: Spent | None = None


class _NotRepeated(Exception):
    def __init__(self, decision: ApprovalDecision) -> None:
        super().__init__(decision.told)
        self.decision = decision


class AgentTool:
    """A tool, in no SDK's terms.

    Immutable: copies and deep copies are the same object.

    Attributes:
        name: Its name, as the model knows it.
        task: The Flyte task that it runs, or `None` for a plain callable.
        function: The function that it runs; the task's own for a task.
        durable: Whether a plain callable's calls are recorded.
        on_unknown: What a resume does with a call that was started and left no outcome.
        documented: Whether the docstring is read, or in which style.
        approval: How a person approves its calls; `None` where nobody is asked.
    """

    def __init__(
        self,
        target: AnyTask | Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        hidden: Collection[str] = (),
        durable: bool = True,
        on_unknown: OnUnknown = "retry",
        documented: DocstringUse = True,
        requires_approval: RequiresApproval = None,
    ) -> None:
        if isinstance(target, TaskTemplate):
            if not isinstance(target, AsyncFunctionTaskTemplate):
                raise TypeError(
                    f"{target.name} is a {type(target).__qualname__}, which has no Python signature to describe to a model. "
                    "Call it from an `@env.task` function, and make a tool of that."
                )
            self.task: AnyTask | None = target
            self.function: Callable[..., Any] = target.func
            attach_tool_resolver(target)
        elif isinstance(target, type):
            raise TypeError(
                f"A tool is made of a Flyte task or a callable, and {target.__qualname__} is a class. Give a function, or a "
                "method of an instance."
            )
        elif callable(target):
            self.task = None
            self.function = target
        else:
            raise TypeError(
                f"A tool is made of a Flyte task or a callable; {target!r} is a {type(target).__qualname__}."
            )
        if on_unknown not in ("retry", "ask", "fail"):
            raise ValueError(f"on_unknown is {on_unknown!r}; give 'retry', 'ask' or 'fail'.")
        if self.task is not None and hidden:
            raise TypeError(
                f"The task {self.task.name} takes the SDK's context in {', '.join(sorted(hidden))}, which no worker has. "
                "Pass the values that the task needs as arguments, or make the tool of a plain function."
            )
        if self.task is not None and "self" in inspect.signature(self.function).parameters:
            raise TypeError(
                f"The task {self.task.name} has a parameter named 'self', which Flyte cannot pass. Give it another "
                "name, or make the tool of a plain function."
            )
        self.hidden = frozenset(hidden)
        # A tool that cannot be described is an error here, but reading its docstring costs an import that the worker of its
        # task need not pay: the whole schema is made when an agent asks for it.
        checked = tool_schema(self.function, name=name, description=description, hidden=hidden, documented=False)
        self.name = checked.name
        self._description = description
        self.durable = durable
        self.on_unknown: OnUnknown = on_unknown
        self.documented: DocstringUse = documented
        self.approval = as_approval(requires_approval)

    @functools.cached_property
    def schema(self) -> ToolSchema:
        """Its parameters, and how arguments are read."""
        return tool_schema(
            self.function,
            name=self.name,
            description=self._description,
            hidden=self.hidden,
            documented=self.documented,
        )

    @property
    def description(self) -> str:
        """What the model is told of it."""
        return self.schema.description

    def __repr__(self) -> str:
        return f"<tool {self.name} of {'task ' + self.task.name if self.task else 'a function'}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A function whose name in its module is taken by a tool cannot be pickled by reference, and the tool can.
        module, name = getattr(self.function, "__module__", ""), getattr(self.function, "__qualname__", "")
        found: object = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        existing = getattr(found, "__agent_tool__", None)
        named = existing.function if isinstance(existing, AgentTool) else getattr(found, "func", None)
        if found is self.function or named is not self.function:
            return super().__reduce_ex__(protocol)
        options: dict[str, Any] = {"name": self.name, "description": self._description, "hidden": self.hidden}
        options |= {"durable": self.durable, "on_unknown": self.on_unknown, "documented": self.documented}
        options["requires_approval"] = self.approval
        return _of_module, (module, name, options)

    def __copy__(self) -> AgentTool:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentTool:
        return self

    async def call(
        self,
        arguments: str | bytes | Mapping[str, Any] | None,
        *,
        call_id: str = "",
        agent: str = "",
        injected: Mapping[str, Any] | None = None,
        on_error: Callable[[Exception], Awaitable[str]] | None = None,
        timeout: float | None = None,
    ) -> ToolOutcome:
        """Run the tool for a model.

        Args:
            arguments: What the model said: JSON text, or a mapping.
            call_id: The SDK's id of the call.
            agent: The agent that calls.
            injected: Values for hidden parameters.
            on_error: Says what the model is told of an exception; what it raises fails the run.
            timeout: How long the call may take, in seconds; one that takes longer ends with a `ToolTimeoutError`.

        Returns:
            What the model is given. A bad argument, and by default an exception of the tool, are told to it.

        Raises:
            AgentError: The tool raised, and the run is to fail on that.
            BaseException: The SDK's own control flow.
        """
        run = current_run()
        if run is None:
            return await self._attempt(None, arguments, injected or {}, {}, on_error, timeout, None)
        shown = _shown_arguments(arguments)
        event = run.call_event(self.name, call_id, agent)
        run.meter.begin_call(self.name, shown)
        async with contextlib.AsyncExitStack() as place, run.recorder.strand():
            if self.approval is None:  # a call that waits for a person takes its place when it may run
                await place.enter_async_context(run.tool_slot())
            await run.emit(ToolCallStarted(**event, arguments=shown))
            began = time.perf_counter()
            try:
                with run.inside(event["call"]), run.meter.inside_call() as inner:
                    outcome = await self._attempt(
                        run, arguments, injected or {}, event, on_error, timeout, inner, place
                    )
            except BaseException as error:
                seconds = time.perf_counter() - began
                problem = f"{type(error).__name__}: {error}"
                await run.emit(ToolCallFinished(**event, arguments=shown, error=problem, seconds=seconds))
                raise
            await run.emit(
                ToolCallFinished(
                    **event,
                    arguments=shown,
                    result=outcome.text,
                    error=outcome.error,
                    seconds=outcome.seconds,
                    replayed=outcome.replayed,
                )
            )
            run.meter.end_call(outcome.seconds, outcome.inside)
            return outcome

    async def _attempt(
        self,
        run: AgentRun | None,
        arguments: str | bytes | Mapping[str, Any] | None,
        injected: Mapping[str, Any],
        event: Mapping[str, Any],
        on_error: Callable[[Exception], Awaitable[str]] | None,
        timeout: float | None,
        inner: Meter | None,
        place: contextlib.AsyncExitStack | None = None,
    ) -> ToolOutcome:
        try:
            kwargs = self.schema.validate(arguments)
        except ToolArgumentError as error:
            text = f"Error: {error}" if on_error is None else await on_error(error)
            return ToolOutcome(text=text, error=f"ToolArgumentError: {error}")
        if self.approval is not None:
            kwargs, refused = await self._approve(self.approval, kwargs, run, event)
            if refused is not None:
                return refused
            if run is not None and place is not None:
                await place.enter_async_context(run.tool_slot())
        if run is None:
            payload = await self._run(
                kwargs | dict(injected), on_tool_error="model", control_flow=(), on_error=on_error, timeout=timeout
            )
            return ToolOutcome(text=cast(str, payload["text"]), error=cast("str | None", payload["error"]))

        async def make() -> JSON:
            return await self._run(
                kwargs | dict(injected),
                on_tool_error=run.on_tool_error,
                control_flow=run.control_flow,
                on_error=on_error,
                timeout=timeout,
            )

        fields = self._fields(kwargs)
        try:
            recorded = await self._record(run, fields, make, inner, event)
        except _NotRepeated as error:
            text = (
                f"An earlier attempt started {self.name}, whose effect may have happened: its outcome is unknown. A person "
                "decided that it is not run again."
            )
            return ToolOutcome(text=text, error=f"NotRepeated: {text}", replayed=error.decision.replayed)
        payload = cast("dict[str, JSON]", recorded.value)
        return ToolOutcome(
            text=cast(str, payload["text"]),
            error=cast("str | None", payload["error"]),
            replayed=recorded.replayed,
            seconds=recorded.seconds,
            inside=spent_inside(recorded),
        )

    async def _record(
        self,
        run: AgentRun,
        fields: Mapping[str, Any],
        make: Callable[[], Awaitable[JSON]],
        inner: Meter | None,
        event: Mapping[str, Any],
    ) -> Recorded[JSON]:
        return await run.recorder.record(
            "tool",
            fields,
            make,
            codec=JsonCodec(),
            info=lambda payload: {
                "tool": self.name,
                "error": cast("dict[str, JSON]", payload)["error"],
                **({"inside": inner.spent.as_dict()} if inner is not None and self.task is None else {}),
            },
            traced=self.task is None,
            keep="always" if self.task is not None else "durable" if self.durable else "never",
            on_unknown=None
            if self.task is not None
            else lambda slot: self._started_before(slot, run, event, fields["arguments"]),
        )

    def _fields(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {"tool": self.name, "arguments": self.schema.dump(kwargs)}

    async def _approve(
        self, approval: Approval, kwargs: dict[str, Any], run: AgentRun | None, event: Mapping[str, Any]
    ) -> tuple[dict[str, Any], ToolOutcome | None]:
        """Have a person decide about a call.

        Returns:
            The arguments to run with, and what the model is told instead where it may not run.
        """
        item = ApprovalItem.of(self.name, self.schema.dump(kwargs))
        if run is not None and run.recorder.on_record("tool", self._fields(kwargs)):
            # it has run: where it was approved the decision is on record too, and nobody is asked about what is done
            asked = {"action": item.action, "arguments": item.arguments}
            if not run.recorder.on_record("approval", asked):
                return kwargs, None
        elif not await approval_needed(approval, kwargs, tool=self.name):
            return kwargs, None
        decision = await decide(
            [item],
            approval,
            agent=event.get("agent", ""),
            check=lambda edited: self.schema.dump(self.schema.validate(cast("dict[str, Any]", edited))),
        )
        if not decision.approved:
            text = decision.told
            return kwargs, ToolOutcome(text=text, error=f"NotApproved: {text}", replayed=decision.replayed)
        if decision.proposed:
            kwargs = self.schema.validate(cast("dict[str, Any]", decision.arguments))
        runs = ApprovalItem.of(self.name, self.schema.dump(kwargs))
        if runs.digest != decision.digest:
            raise AgentError(
                f"The arguments of {self.name} changed after they were approved: SHA-256 {decision.digest} was approved, and "
                f"{runs.digest} would run. It was not done."
            )
        return kwargs, None

    async def _started_before(
        self, slot: Slot, run: AgentRun, event: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> None:
        if self.on_unknown == "fail":
            raise AgentError(
                f"An earlier attempt started {self.name} and ended before it had an outcome, so its effect may have happened "
                f"(call {slot.identity[:16]}). The tool's on_unknown='fail' stops the run here."
            )
        if self.on_unknown == "ask":
            what = {"tool": self.name, "call": slot.identity[:16], "arguments": arguments}
            decision = await decide(
                [ApprovalItem.of(f"repeat {self.name}", what)],
                Approval(
                    prompt=f"An earlier attempt started {self.name} and ended before it had an outcome, so its effect may have "
                    "happened. May it be run again?"
                ),
                agent=event.get("agent", ""),
            )
            if not decision.approved:
                raise _NotRepeated(decision)
        await run.emit(ToolCallRepeated(**event))

    async def _run(
        self,
        kwargs: dict[str, Any],
        *,
        on_tool_error: Literal["model", "raise"],
        control_flow: tuple[type[BaseException], ...],
        on_error: Callable[[Exception], Awaitable[str]] | None,
        timeout: float | None,
    ) -> dict[str, JSON]:
        try:
            run = current_run()
            if run is None or run.scope is None:
                value = await self._within(timeout, kwargs)
            else:
                # Flyte tells equal children apart by counting them, and a call that is answered from its record is not
                # counted. A group of their own gives a call's children the same identity on every attempt.
                with flyte.group(run.recorder.group(run.name)):
                    value = await self._within(timeout, kwargs)
        except control_flow:
            raise
        except (RecordError, ApprovalPendingError):  # nothing that a model could act on
            raise
        except Exception as error:
            problem = describe_error(error)
            if on_tool_error == "raise":
                raise AgentError(f"The tool {self.name} failed: {problem}") from error
            if on_error is not None:
                return {"text": await on_error(error), "error": problem}
            return {"text": f"Error: the tool {self.name} failed. {problem}", "error": problem}
        from ._render import render_result

        return {"text": render_result(value), "error": None}

    async def _within(self, timeout: float | None, kwargs: dict[str, Any]) -> object:
        try:
            async with asyncio.timeout(timeout) as limit:
                return await (self._run_task(self.task, kwargs) if self.task else self.run_function(kwargs))
        except TimeoutError as error:
            if timeout is None or not limit.expired():  # the tool's own
                raise
            raise ToolTimeoutError(self.name, timeout) from error

    async def _run_task(self, task: AnyTask, kwargs: dict[str, Any]) -> object:
        scope = current_scope()
        if scope is not None:
            runs = guarded(task) if scope.mode == "local" else task  # a worker guards its own
            try:
                return await _with_its_abort(runs.aio(**kwargs))
            except flyte.errors.BaseRuntimeError as error:
                if error.code == ApprovalPendingError.CODE:
                    waits = ApprovalPendingError(str(error), (f"{self.name}: an approval inside of it",))
                    if (run := current_run()) is not None:
                        run.suspend(waits)
                    raise waits from error
                steering = control_flow_of(error)
                if steering is None:
                    raise
                raise steering from error
        result = await asyncio.to_thread(
            functools.partial(task.forward, **kwargs)
        )  # a coroutine function returns at once
        return await result if inspect.isawaitable(result) else result

    async def run_function(self, kwargs: dict[str, Any]) -> object:
        positional, named = self.schema.bind(kwargs)
        if inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(type(self.function).__call__):
            return await self.function(*positional, **named)
        result = await asyncio.to_thread(self.function, *positional, **named)
        return await result if inspect.isawaitable(result) else result


async def _with_its_abort(child: Coroutine[Any, Any, object]) -> object:
    """Wait for a child action; when the wait is cancelled, for its abort as well.

    Flyte aborts a child whose wait is cancelled, and a second cancellation, which SDKs are quick with, would cancel the abort.
    """
    call = asyncio.ensure_future(child)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        call.cancel()
        while not call.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([call])
        raise


def _of_module(module: str, name: str, options: dict[str, Any]) -> AgentTool:
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return as_agent_tool(found, **options)


def describe_error(error: Exception) -> str:
    """Say what went wrong as `Class: message`; for a task's error, the class that its worker raised."""
    if isinstance(error, flyte.errors.BaseRuntimeError):
        return f"{error.code}: {error}"
    return f"{type(error).__name__}: {error}"


def _shown_arguments(arguments: str | bytes | Mapping[str, Any] | None) -> JSON:
    if isinstance(arguments, bytes):
        arguments = arguments.decode("utf-8", "replace")
    if isinstance(arguments, str):
        try:
            return cast(JSON, json.loads(arguments or "{}"))
        except ValueError:
            return arguments
    return _json_values(dict(arguments or {}))


def _json_values(arguments: dict[str, Any]) -> JSON:
    try:
        return jsonable(arguments)
    except UnserializableError:
        return str(arguments)


def as_agent_tool(target: object, **options: Any) -> AgentTool:
    """Make a tool of a Flyte task or a callable, or rename one that exists.

    Args:
        target: A task, a callable, or a tool of any adapter.
        options: Keywords of `AgentTool`.

    Raises:
        TypeError: It is neither.
    """
    existing = getattr(target, "__agent_tool__", None)
    if isinstance(existing, AgentTool):
        if not options:
            return existing
        given: dict[str, Any] = {
            "durable": existing.durable,
            "on_unknown": existing.on_unknown,
            "hidden": existing.hidden,
            "documented": existing.documented,
            "requires_approval": existing.approval,
        }
        given |= {"name": existing.name, "description": existing._description}
        return AgentTool(existing.task or existing.function, **(given | options))
    return AgentTool(cast("Callable[..., Any]", target), **options)


def idempotency_key() -> str:
    """A key for the effect that the running tool call has, to hand to a service that takes one.

    Returns:
        64 hexadecimal digits: the same on every attempt of this logical call, and different for every other call of any
        run. It is made of the organization, project, domain, run and the call's own address, since on a cluster equal
        actions have equal names in different runs.

    Raises:
        RuntimeError: Called outside of a tool call and outside of a Flyte task.
    """
    scope = current_scope()
    slot = current_slot()
    if slot is not None and scope is not None and slot.scope.identity == scope.identity:
        return slot.identity
    if scope is None:
        raise RuntimeError(
            "idempotency_key() was called outside of a Flyte task, where nothing is retried and there is no key."
        )
    return hashlib.sha256(canonical_json(scope.identity)).hexdigest()
