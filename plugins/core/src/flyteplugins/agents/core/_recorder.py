"""The recorder: each leaf is made once, and answered from its record ever after.

The rules, and why:

- A record's address is (task action, agent run, kind, key, ordinal). The key is the fingerprint of the whole request; the
  ordinal tells equal requests of one agent run apart, and is given back by a call that leaves no outcome, so that a
  failure does not shift the answers behind it.
- A record is created if absent, durably, before the leaf returns. A second writer adopts what the first one stored.
- Our own record is the authority, since a backend may serve no traces to a retry, and forgets children; the `flyte.trace`
  makes the leaf visible, and its output alone would suffice to rebuild the record.
- The body of a leaf runs in the context from before the trace, where tasks may be called; inside a trace Flyte forbids it.
- Leaves that are under way side by side are answered from their records in the order in which they were answered: an SDK may
  write parallel agents' messages down as they come, and the next request holds them.
- An error is never an answer. When the agent goes on past a failure to another request, the failure is recorded as
  passed over, and replays; when the failure ends the agent run after all, that record is withdrawn.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import contextvars
import hashlib
import importlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeVar, cast, get_args

import flyte

from ._canonical import JSON, SeenRequest, UnserializableError, canonical_json, digest, fingerprint, jsonable
from ._errors import ApprovalPendingError, RecordError, error_chain
from ._records import Kind, Record, RecordFolder, parse_record_name, record_name
from ._scope import TaskScope
from ._storage import Folder
from ._traces import BODY, TRACES
from ._waits import Stopwatch

__all__ = ["Codec", "DefaultErrorCodec", "ErrorCodec", "JsonCodec", "Recorded", "Recorder", "Slot", "current_slot"]

logger = logging.getLogger("flyteplugins.agents")

Keep = Literal["always", "durable", "never"]

_PATIENCE = 0.1
"""How long, in seconds, a leaf waits for another one to be asked for that was answered before it, while nothing moves."""

_STEP = 0.002
"""How long the event loop is left to what an answer leads to, in seconds, before the next one is given."""

_MAX_SEEN = 32
"""Of how many lines of work the latest request is kept, to make the key of the next one faster."""

T = TypeVar("T")


class Codec(Protocol[T]):
    """How an outcome becomes JSON values and comes back as the SDK would have seen it."""

    def encode(self, value: T) -> JSON:
        """Turn the outcome into JSON values, losing nothing."""
        ...

    def decode(self, payload: JSON) -> T:
        """Build the outcome from what `encode` gave."""
        ...


class JsonCodec:
    """For outcomes that are JSON values already."""

    def encode(self, value: JSON) -> JSON:
        """Return the value."""
        return value

    def decode(self, payload: JSON) -> JSON:
        """Return the payload."""
        return payload


class ErrorCodec(Protocol):
    """How a failure that was passed over is kept."""

    def encode(self, error: Exception) -> JSON:
        """Turn an exception into JSON values."""
        ...

    def decode(self, payload: JSON) -> Exception:
        """Build an equal exception."""
        ...


class DefaultErrorCodec:
    """Keeps an exception's class, arguments and attributes, as far as they are JSON values or bytes."""

    def encode(self, error: Exception) -> JSON:
        """Turn an exception into JSON values; what has no JSON form is kept as text."""
        state = {name: _shown(value) for name, value in vars(error).items() if not name.startswith("__")}
        members: JSON = None
        if isinstance(error, ExceptionGroup):
            members = [self.encode(member) for member in error.exceptions]
        return {
            "members": members,
            "module": type(error).__module__,
            "class": type(error).__qualname__,
            "message": str(error),
            "args": [_shown(item) for item in error.args],
            "state": cast(JSON, state),
        }

    def decode(self, payload: JSON) -> Exception:
        """Build an exception of the same class, without running its `__init__`."""
        kept = cast("dict[str, JSON]", payload)
        found: object = importlib.import_module(cast(str, kept["module"]))
        for part in cast(str, kept["class"]).split("."):
            found = getattr(found, part)
        if not (isinstance(found, type) and issubclass(found, Exception)):
            raise TypeError(f"{kept['module']}.{kept['class']} is not an exception class")
        args = [_unshown(item) for item in cast("list[JSON]", kept["args"])]
        if kept["members"] is not None:
            args = [args[0], [self.decode(member) for member in cast("list[JSON]", kept["members"])]]
        error = found(*args) if found.__module__ == "builtins" else found.__new__(found, *args)
        if not error.args:
            error.args = tuple(args)
        error.__dict__.update({name: _unshown(value) for name, value in cast("dict[str, JSON]", kept["state"]).items()})
        return error


def _shown(value: object) -> JSON:
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    try:
        return jsonable(value)
    except UnserializableError:
        return str(value)


def _unshown(value: JSON) -> object:
    if isinstance(value, dict) and value.keys() == {"$bytes"}:
        return base64.b64decode(cast(str, value["$bytes"]))
    return value


@dataclass(frozen=True)
class Slot:
    """The place of a leaf that is being made.

    Attributes:
        scope: The task that makes it.
        run: The agent run's number: its identity, and which of those it is.
        name: The record's name.
        unknown: Whether an earlier attempt started it and left no outcome, so that its effect may have happened.
    """

    scope: TaskScope
    run: str
    name: str
    unknown: bool = False

    @property
    def identity(self) -> str:
        """SHA-256 in hexadecimal, the same on every attempt of this call and different for every other call of any run."""
        return hashlib.sha256(canonical_json([*self.scope.identity, self.run, self.name])).hexdigest()


_SLOT: contextvars.ContextVar[Slot | None] = contextvars.ContextVar("flyteplugins.agents.slot", default=None)


def current_slot() -> Slot | None:
    """The inline leaf whose body runs now, if any."""
    return _SLOT.get()


@dataclass(frozen=True)
class Recorded(Generic[T]):
    """An outcome.

    Attributes:
        value: What the call returned, or what its record says it returned.
        replayed: Whether it came from a record.
        seconds: How long the call took when it was made.
        name: The record's name; empty where nothing is recorded.
        started: When the call began, in seconds since the epoch; 0 where nothing is recorded.
        info: The facts that the record holds about it.
    """

    value: T
    replayed: bool = False
    seconds: float = 0.0
    name: str = ""
    started: float = 0.0
    info: Mapping[str, JSON] = field(default_factory=dict)


@dataclass
class _Failure:
    """A call that failed, of which it is not known yet whether the agent goes on past it."""

    kind: Kind
    key: str
    fields: Mapping[str, str]
    error: Exception
    position: int
    started: float
    seconds: float


@dataclass
class _Strand:
    """A line of work in which one thing follows another: the agent run itself, or one tool call of it."""

    owner: Recorder
    within: str = ""
    """The tool call that this is the inside of: equal requests of two sub-agents are told apart by it."""
    is_call: bool = False
    """Whether it was opened for a tool call."""
    failures: list[_Failure] = field(default_factory=list)


@dataclass
class _PassedOver:
    """A failure that the agent went on past."""

    error: BaseException
    folder: str
    name: str
    strand: _Strand
    answered: bool = False
    """Whether something after it was answered, so that what comes later has another cause."""


_STRAND: contextvars.ContextVar[_Strand | None] = contextvars.ContextVar("flyteplugins.agents.strand", default=None)


async def ask(call: Callable[[], Awaitable[T]]) -> T:
    """Make the call of a leaf that has no record: the one place where something is paid for or done."""
    return await call()


class Recorder:
    """Makes and replays the leaves of one agent run.

    Args:
        scope: The task that runs, or `None` outside of one, where everything is passed through.
        path: The agent run's folder below the scope's.
        number: The agent run's number: its identity, and which of those it is. It stays when the configuration is edited.
        durable: Whether turns, inline tools and memory reads are recorded. Outcomes of task tools always are.
        errors: How failures that were passed over are kept.
        control_flow: Exceptions by which the SDK steers its loop: a call that raises one leaves no outcome, and has not failed.
    """

    def __init__(
        self,
        scope: TaskScope | None,
        path: str,
        *,
        number: str = "",
        durable: bool,
        errors: ErrorCodec,
        control_flow: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.scope = scope
        self.path = path
        self.number = number
        self.durable = durable and scope is not None
        self._errors = errors
        self._control_flow: tuple[type[BaseException], ...] = (
            asyncio.CancelledError,
            ApprovalPendingError,
            *control_flow,
        )
        self._recorded: set[tuple[Kind, str, int]] = set()
        self._known: list[tuple[Kind, str, int]] = []
        self._started: set[str] = set()
        self._predecessors: set[str] = set()
        self._asked_before: dict[tuple[Kind, int], tuple[str, int, Mapping[str, str]]] | None = None
        self._resumed = False
        self._edited = False
        self._left: dict[Kind, int] = {}
        self._broken: RecordError | None = None
        self._followed: set[str] = set()
        self._siblings: dict[str, dict[tuple[Kind, str], list[int]]] = {}
        self._taken: dict[tuple[Kind, str], set[int]] = {}
        self._positions: dict[Kind, int] = {}
        self._passed_over: list[_PassedOver] = []
        self._seen: dict[tuple[Kind, str], SeenRequest] = {}  # the latest at the end
        self._under_way = 0
        self._side_by_side = False
        self._answered: set[str] = set()
        self._order: list[str] | None = None
        self._root = _Strand(self)
        self._folder = RecordFolder(scope.folder, path) if scope else None

    @classmethod
    async def open(
        cls,
        scope: TaskScope | None,
        *,
        identity: Mapping[str, object],
        configuration: Mapping[str, object],
        durable: bool,
        errors: ErrorCodec | None = None,
        control_flow: tuple[type[BaseException], ...] = (),
    ) -> Recorder:
        """Find or begin the records of an agent run, with one listing.

        Args:
            scope: The task that runs, or `None` outside of one.
            identity: What the agent run is: its name, input and memory key.
            configuration: What it runs with, as far as it is known before its first request: the model, the tools' names.
                Runs of one identity that differ in it are told apart by it, so that two of them that start in another
                order on a retry still find their own records. A run whose configuration was edited finds the records of
                the folder that nobody else claims.
            durable: See the class.
            errors: How failures that were passed over are kept.
            control_flow: See the class.
        """
        errors = errors or DefaultErrorCodec()
        if scope is None:
            return cls(None, "", durable=durable, errors=errors)
        base = f"{scope.action}/{digest(identity)[:32]}"
        variant = digest(configuration)[:12]
        state = scope.state
        with (
            state.lock
        ):  # before anything is awaited: equal runs have their places in the order in which they were started
            running = state.started.setdefault(f"{base}/{variant}", set())
            ordinal = next(count for count in range(len(running) + 1) if count not in running)
            running.add(ordinal)
        tail = f"{variant}-{ordinal}"
        number: int | None = None
        try:
            names = await scope.folder.names(base)
            numbered = [_parse_number(name.removeprefix(f"{base}/")) for name in names]
            known = [entry for entry in numbered if entry is not None]
            with state.lock:
                taken = state.numbers.setdefault(base, {})
                number = _choose_number(known, taken, tail)
                taken[number] = tail
            if (number, tail) not in known:
                await scope.folder.create(f"{base}/run.{number}.{tail}", b"")
        except BaseException:  # it has not begun: the next one has its place
            with state.lock:
                running.discard(ordinal)
                if number is not None:
                    state.numbers[base].pop(number, None)
            raise
        recorder = cls(
            scope,
            f"{base}/{tail}",
            number=f"{base}/{number}",
            durable=durable,
            errors=errors,
            control_flow=control_flow,
        )
        # an edited run goes on under the number of the run that it was
        recorder._predecessors = {f"{base}/{other}" for known_number, other in known if known_number == number}
        for name in names:
            folder, _, file = name.rpartition("/")
            recorder._enter(folder, file)
        recorder._resumed = bool(recorder._recorded or recorder._started or recorder._siblings)
        recorder._edited = not recorder._recorded and any(recorder._predecessors_records())
        recorder._left = {kind: recorder._count(kind) for kind in get_args(Kind)}
        recorder._known = sorted(recorder._recorded)
        return recorder

    def _enter(self, folder: str, file: str) -> None:
        """Note one file of the listing."""
        if file.startswith("started."):
            if (
                self.scope is not None
                and f"{folder}/{file}" not in self.scope.state.made
                and (folder == self.path or folder in self._predecessors)
            ):
                self._started.add(file.removeprefix("started."))
            return
        address = parse_record_name(file)
        if address is None:
            return
        kind, key, ordinal = address
        assert self.scope is not None
        if folder == self.path:
            self._recorded.add(address)
        elif f"{folder}/{file}" not in self.scope.state.made:
            self._siblings.setdefault(folder, {}).setdefault((kind, key), []).append(ordinal)

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt left records."""
        return self._resumed

    def count(self, kind: Kind) -> int:
        """How many records of a kind an earlier attempt left."""
        return self._left.get(kind, 0)

    def _count(self, kind: Kind) -> int:
        own = sum(1 for recorded, _, _ in self._recorded if recorded == kind)
        if own:
            return own
        return sum(1 for _, recorded, _, _ in self._predecessors_records() if recorded == kind)

    @property
    def edited(self) -> bool:
        """Whether the run was edited since an earlier attempt, all of whose records are those of another configuration."""
        return self._edited

    def _predecessors_records(self) -> Iterator[tuple[str, Kind, str, int]]:
        """The records of what this run was before it was edited: folder, kind, key and ordinal."""
        for folder in sorted(self._predecessors - {self.path}):
            for (kind, key), ordinals in self._siblings.get(folder, {}).items():
                for ordinal in ordinals:
                    yield folder, kind, key, ordinal

    def release(self) -> None:
        """Give the agent run's ordinal back, since it ended without an outcome: the next equal one continues it."""
        if self.scope is not None:
            variant, _, ordinal = self.path.rpartition("-")
            base, _, number = self.number.rpartition("/")
            with self.scope.state.lock:
                self.scope.state.started[variant].discard(int(ordinal))
                self.scope.state.numbers[base].pop(int(number), None)

    @contextlib.asynccontextmanager
    async def strand(self, *, call: bool = True) -> AsyncIterator[None]:
        """Mark a tool call: failures inside it are passed over when the agent goes on after it, not when a sibling does.

        Args:
            call: Whether it is a tool call; else it is the agent run itself.
        """
        parent = self._current_strand()
        child = _Strand(self, within=parent.within, is_call=call)
        token = _STRAND.set(child)
        try:
            yield
        finally:
            _STRAND.reset(token)
            parent.failures += child.failures

    def group(self, label: str) -> str:
        """Name the Flyte group of the tool call that runs now: the same on every attempt, and no other call's.

        Args:
            label: What a person calls the agent run.
        """
        call = hashlib.sha256(f"{self.number}/{self._current_strand().within}".encode()).hexdigest()[:12]
        outer = flyte.ctx().group_data
        return f"{outer.name} / {label} {call}" if outer is not None else f"{label} {call}"

    def _current_strand(self) -> _Strand:
        strand = _STRAND.get()
        return strand if strand is not None and strand.owner is self else self._root

    async def record(
        self,
        kind: Kind,
        fields: Mapping[str, object],
        call: Callable[[], Awaitable[T]],
        *,
        codec: Codec[T],
        info: Callable[[T], Mapping[str, JSON]] | None = None,
        traced: bool = True,
        keep: Keep = "durable",
        on_unknown: Callable[[Slot], Awaitable[None]] | None = None,
    ) -> Recorded[T]:
        """Answer a leaf from its record, or make the call and record its outcome.

        Args:
            kind: What kind of leaf it is.
            fields: The whole request, by field.
            call: Makes the call; awaited at most once, in the context of the caller.
            codec: How the outcome is kept.
            info: A few facts about the outcome, for people and budgets.
            traced: Whether the leaf is a `flyte.trace` action. The outcome of a task tool is not: its child action shows.
            keep: When it is recorded: `always`, in a `durable` run, or `never`.
            on_unknown: Marks a leaf with an effect: a marker is stored before the call, and where an earlier attempt left
                one without an outcome, this is awaited before the call is made again.

        Returns:
            The outcome.

        Raises:
            UnserializableError: The request or the outcome has no JSON form; the message names the path.
            RecordError: A record cannot be read back.
            Exception: Whatever the call raised, or raised in an attempt that went on past it.
        """
        if self.scope is None:
            with Stopwatch().running() as watch:
                value = await call()
            return Recorded(value, seconds=watch.seconds)
        if self._broken is not None:
            raise self._broken  # whoever swallowed it: what comes after a record that cannot be read has no ground
        strand = self._current_strand()
        key, digests = self._fingerprint(kind, fields, strand.within)
        if keep == "never" or not (self.durable or keep == "always"):
            return await self._unrecorded(kind, key, call)
        await self._go_past_failures(kind, key)
        position = self._positions[kind] = self._positions.get(kind, -1) + 1
        ordinal = self._take(kind, key)
        blank = Record(kind, key, ordinal, None, fields=digests, position=position)
        if kind == "tool" and strand.is_call:
            strand.within = blank.name
        found: Record | None = None
        self._under_way += 1
        self._side_by_side = self._side_by_side or self._under_way > 1
        try:
            found = await self._find(kind, key, ordinal)
            if found is None:
                await self._explain_miss(kind, digests, position)
            elif self._side_by_side and not found.folder:
                await self._wait_for_those_before(found)
            recorded = await self._leaf(blank, found, call, codec, info, traced, on_unknown)
        except BaseException as error:
            if isinstance(error, RecordError):
                self._broken = error
            if found is None or found.status != "failed":  # one that was passed over is an outcome, and keeps it
                self._taken[kind, key].discard(ordinal)
            raise
        finally:
            self._under_way -= 1
            self._answered.add(blank.name)
        for passed in self._passed_over:
            passed.answered = passed.answered or passed.strand is strand
        return recorded

    async def _wait_for_those_before(self, found: Record) -> None:
        """Let the leaves be answered first that were answered before this one, as far as somebody asks for them."""
        if self._order is None:
            self._order = await self._read_order()
        before = set(self._order[: self._order.index(found.name)]) if found.name in self._order else set()
        answered, patience = len(self._answered), _PATIENCE
        while before - self._answered and patience > 0:
            await asyncio.sleep(_STEP)
            patience -= _STEP
            if len(self._answered) != answered:
                answered, patience = len(self._answered), _PATIENCE
        await asyncio.sleep(_STEP)

    async def _read_order(self) -> list[str]:
        """The turns and tool calls of the earlier attempts, in the order in which they were answered."""
        assert self._folder is not None
        names = [record_name(*address) for address in self._known if address[0] in ("turn", "tool")]
        found = await asyncio.gather(*(self._folder.read(name) for name in names), return_exceptions=True)
        records = [record for record in found if isinstance(record, Record)]  # whoever needs a damaged one says so
        return [record.name for record in sorted(records, key=lambda record: record.started + record.seconds)]

    def on_record(self, kind: Kind, fields: Mapping[str, object]) -> bool:
        """Whether the next request like this one would be answered from a record.

        Args:
            kind: What kind of leaf it is.
            fields: The whole request, by field.
        """
        if self.scope is None:
            return False
        key, _ = self._fingerprint(kind, fields, self._current_strand().within)
        taken = self._taken.setdefault((kind, key), set())
        own = any((kind, key, ordinal) in self._recorded for ordinal in range(len(taken) + 1) if ordinal not in taken)
        return own or any(
            f"{folder}/{record_name(kind, key, ordinal)}" not in self.scope.state.consumed
            for folder, records in self._siblings.items()
            if kind == "turn" or folder in self._followed or self._is_twin(folder)
            for ordinal in records.get((kind, key), ())
        )

    def _fingerprint(self, kind: Kind, fields: Mapping[str, object], within: str) -> tuple[str, dict[str, str]]:
        """Make the key of a request, looking only at what is new since the latest one of its line of work."""
        seen = self._seen.pop((kind, within), None) or SeenRequest()
        self._seen[kind, within] = seen
        if len(self._seen) > _MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        return fingerprint({**fields, "within": within} if within else fields, seen)

    async def _unrecorded(self, kind: Kind, key: str, call: Callable[[], Awaitable[T]]) -> Recorded[T]:
        """Make a call that is not kept. It has a place all the same, for its idempotency key and for what it calls."""
        assert self.scope is not None
        ordinal = self._take(kind, key)
        name = record_name(kind, key, ordinal)
        strand = self._current_strand()
        if kind == "tool" and strand.is_call:
            strand.within = name
        token = _SLOT.set(Slot(self.scope, self.number, name))
        watch = Stopwatch()
        try:
            with watch.running():
                value = await call()
        except BaseException:
            self._taken[kind, key].discard(ordinal)
            raise
        finally:
            _SLOT.reset(token)
        return Recorded(value, seconds=watch.seconds)

    def _take(self, kind: Kind, key: str) -> int:
        """Take the first ordinal that is free, and whose record did not answer somebody else."""
        taken = self._taken.setdefault((kind, key), set())
        consumed = self.scope.state.consumed if self.scope else {}
        ordinal = 0
        while ordinal in taken or (
            consumed.get(f"{self.path}/{record_name(kind, key, ordinal)}", self.path) != self.path
        ):
            ordinal += 1
        taken.add(ordinal)
        return ordinal

    async def _find(self, kind: Kind, key: str, ordinal: int) -> Record | None:
        """Look for the record: in our folder, then among what an earlier attempt left in those of equal agent runs.

        The others' records count when a run was edited since, or when equal runs start in another order than before.
        """
        assert self._folder is not None
        assert self.scope is not None
        state = self.scope.state
        if (kind, key, ordinal) in self._recorded:
            name = record_name(kind, key, ordinal)
            state.consumed[f"{self.path}/{name}"] = self.path
            return await self._folder.read(name)
        for folder, records in sorted(self._siblings.items()):
            if kind != "turn" and folder not in self._followed and self._is_twin(folder):
                continue
            for other in sorted(records.get((kind, key), ())):
                path = f"{folder}/{record_name(kind, key, other)}"
                if path in state.consumed:
                    continue
                if kind != "memory":  # any number of runs may start from one transcript
                    state.consumed[path] = self.path
                if kind == "turn":
                    self._followed.add(folder)
                found = await RecordFolder(self.scope.folder, folder).read(record_name(kind, key, other))
                return replace(found, folder=folder)
        return None

    def _is_twin(self, folder: str) -> bool:
        """Whether a folder is that of an equal agent run with an equal configuration, whose tool calls are its own."""
        return folder.rpartition("-")[0] == self.path.rpartition("-")[0]

    async def _leaf(
        self,
        blank: Record,
        found: Record | None,
        call: Callable[[], Awaitable[T]],
        codec: Codec[T],
        info: Callable[[T], Mapping[str, JSON]] | None,
        traced: bool,
        on_unknown: Callable[[Slot], Awaitable[None]] | None,
    ) -> Recorded[T]:
        assert self._folder is not None
        assert self.scope is not None
        folder = self._folder
        slot = Slot(self.scope, self.number, blank.name, unknown=blank.name in self._started)
        outcome: list[Recorded[T]] = []
        ran: list[bool] = []

        async def replay() -> str:
            assert found is not None
            outcome.append(self._replayed(found, codec))
            return await RecordFolder(folder.root, found.folder or folder.path).trace_output(found)

        async def make() -> str:
            if on_unknown is not None:
                if slot.unknown:
                    await on_unknown(slot)
                marker = f"{self.path}/started.{blank.name}"
                slot.scope.state.made.add(marker)
                await self.scope_folder.create(marker, b"")
            started, watch = time.time(), Stopwatch()
            try:
                with watch.running():
                    value = await ask(call)
            except self._control_flow:
                if on_unknown is not None:
                    self._started.add(blank.name)
                raise
            except Exception as error:
                seconds = watch.seconds
                if on_unknown is not None:  # it has ended, so it is not unknown how
                    await self.scope_folder.delete(f"{self.path}/started.{blank.name}")
                self._current_strand().failures.append(
                    _Failure(blank.kind, blank.key, blank.fields, error, blank.position, started, seconds)
                )
                raise
            record = replace(
                blank,
                payload=codec.encode(value),
                started=started,
                seconds=watch.seconds,
                info=info(value) if info else {},
            )
            output, stored = await folder.write(record)
            self._note_made(record)
            if stored is None:
                outcome.append(Recorded(value, seconds=record.seconds, name=record.name, started=started))
            else:
                logger.warning("Another worker recorded %s first; its outcome is used.", record.name)
                outcome.append(replace(self._replayed(stored, codec), replayed=False))  # this call was paid for too
            return output

        body = replay if found is not None else make
        context = contextvars.copy_context()
        if found is None and on_unknown is not None:
            context.run(_SLOT.set, slot)

        async def in_own_context() -> str:
            ran.append(True)
            return await asyncio.get_running_loop().create_task(body(), context=context)

        if not traced:
            await in_own_context()
            return outcome[0]
        token = BODY.set(in_own_context)
        output = ""
        try:
            output = await TRACES[blank.kind](f"{self.path}/{blank.name}")
        except Exception:
            if found is None or outcome or ran:
                raise  # else Flyte served an error of an earlier attempt, and our record knows better
        finally:
            BODY.reset(token)
        if not outcome:  # Flyte answered the trace itself
            kept = found or await folder.from_trace_output(output, blank)
            if found is None:
                _, stored = await folder.write(kept)
                kept = stored or kept
            outcome.append(self._replayed(kept, codec))
        return outcome[0]

    @property
    def scope_folder(self) -> Folder:
        """Our folder on the run's storage."""
        assert self.scope is not None
        return self.scope.folder

    def _replayed(self, record: Record, codec: Codec[T]) -> Recorded[T]:
        """Give a record's outcome back, or raise the failure that it holds."""
        if record.status == "failed":
            error = self._decode_failure(record)
            folder = record.folder or self.path
            self._passed_over.append(_PassedOver(error, folder, record.name, self._current_strand()))
            raise error
        try:
            value = codec.decode(record.payload)
        except RecordError:
            raise
        except Exception as error:
            raise RecordError(
                f"The record {self.scope_folder.location(f'{self.path}/{record.name}')} cannot be turned back into what the SDK "
                f"returned ({type(error).__name__}: {error}). Was the SDK changed while the run was in flight? Finish the run "
                "with the version that began it, or move the record away to have its request made again."
            ) from error
        return Recorded(
            value,
            replayed=True,
            seconds=record.seconds,
            name=record.name,
            started=record.started,
            info=record.info,
        )

    def _decode_failure(self, record: Record) -> Exception:
        try:
            return self._errors.decode(record.payload)
        except Exception as error:
            raise RecordError(
                f"The failure recorded in {self.scope_folder.location(f'{self.path}/{record.name}')} cannot be raised again "
                f"({type(error).__name__}: {error}). Move the record away to have its request made again."
            ) from error

    async def _go_past_failures(self, kind: Kind, key: str) -> None:
        """The agent makes another request: what failed before it in this line of work has been passed over."""
        assert self._folder is not None
        strand = self._current_strand()
        failures, strand.failures = strand.failures, []
        for failure in failures:
            if (failure.kind, failure.key) == (kind, key):
                continue  # the same request once more: a retry, not a way past it
            try:
                payload = self._errors.encode(failure.error)
                again = self._errors.decode(json.loads(json.dumps(payload)))
                rebuilt = type(again) is type(failure.error) and str(again) == str(failure.error)
            except Exception as error:  # noqa: BLE001 - an SDK's exception may hold anything
                logger.debug("A failure cannot be recorded: %r", error)
                rebuilt = False
            if not rebuilt:
                logger.warning(
                    "A %s that the agent went on past cannot be recorded, so a resume makes its request again.",
                    type(failure.error).__qualname__,
                )
                continue
            record = Record(
                failure.kind,
                failure.key,
                self._take(failure.kind, failure.key),
                payload,
                status="failed",
                fields=failure.fields,
                started=failure.started,
                seconds=failure.seconds,
                position=failure.position,
            )
            _, stored = await self._folder.write(record)
            if stored is None:  # else another worker has an outcome there, which is not ours to withdraw
                self._note_made(record)
                self._passed_over.append(_PassedOver(failure.error, self.path, record.name, strand))

    def _note_made(self, record: Record) -> None:
        assert self.scope is not None
        self.scope.state.made.add(f"{self.path}/{record.name}")
        self._recorded.add((record.kind, record.key, record.ordinal))

    async def withdraw_failures(self, error: BaseException) -> None:
        """A failure ended the agent run after all: have its request made again by the next attempt.

        Args:
            error: What ended the agent run.
        """
        if self.scope is None:
            return
        causes = {id(cause) for cause in error_chain(error)}
        perhaps = {id(cause) for cause in error_chain(error, context=True)}
        for passed in self._passed_over:
            if id(passed.error) in causes or (id(passed.error) in perhaps and not passed.answered):
                await RecordFolder(self.scope.folder, passed.folder).delete(passed.name)

    async def _explain_miss(self, kind: Kind, digests: Mapping[str, str], position: int) -> None:
        """Log which field of a request differs from what the interrupted attempt asked at this point."""
        if not self._resumed or kind == "memory":
            return
        if self._asked_before is None:
            self._asked_before = await self._read_requests()
        found = self._asked_before.get((kind, position))
        if found is None:
            return
        key, ordinal, fields = found
        if ordinal in self._taken.get((kind, key), ()):
            return  # that one was asked again, in another place
        changed = sorted(name for name in {*fields, *digests} if fields.get(name) != digests.get(name))
        logger.warning(
            "%s %d of %s is made again: it differs from the recorded one in %s.",
            kind.capitalize(), position + 1, self.path, ", ".join(changed),
        )  # fmt: skip

    async def _read_requests(self) -> dict[tuple[Kind, int], tuple[str, int, Mapping[str, str]]]:
        """What the interrupted attempt asked, by its place in the run. Read once, and only when something differs."""
        assert self._folder is not None
        found: dict[tuple[Kind, int], tuple[str, int, Mapping[str, str]]] = {}
        own = [(self.path, kind, key, ordinal) for kind, key, ordinal in sorted(self._recorded)]
        for folder, kind, key, ordinal in [*self._predecessors_records(), *own]:
            if kind == "memory":
                continue
            try:
                record = await RecordFolder(self._folder.root, folder).read(record_name(kind, key, ordinal))
            except RecordError as error:  # whoever needs that record says so; this only explains another
                logger.debug("%s", error)
                continue
            found[kind, record.position] = key, ordinal, record.fields
        return found


def _parse_number(name: str) -> tuple[int, str] | None:
    """Read the file that gives an agent run its number: `run.<number>.<variant>-<ordinal>`."""
    match name.split("."):
        case ["run", number, tail] if number.isdecimal():
            return int(number), tail
    return None


def _choose_number(known: Sequence[tuple[int, str]], taken: Mapping[int, str], tail: str) -> int:
    """Choose the number of an agent run: its own, else that of an edited one that nobody continues, else a new one."""
    own = [number for number, other in known if other == tail and number not in taken]
    if own:
        return min(own)
    left = {number for number, _ in known} - taken.keys()
    left -= {number for number, other in known if other in taken.values()}
    if left:
        return min(left)
    return max([-1, *taken, *(number for number, _ in known)]) + 1
