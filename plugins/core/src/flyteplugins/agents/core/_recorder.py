"""The recorder: each leaf is made once, and answered from its record ever after.

The rules, and why:

- A record's address is (task action, agent run, kind, key, ordinal). The key is the fingerprint of the whole request; the
  ordinal tells equal requests of one agent run apart, and is given back by a call that leaves no outcome, so that a
  failure does not shift the answers behind it.
- A record is created if absent, durably, before the leaf returns. A second writer adopts what the first one stored.
- Our own record is the authority, since a backend may serve no traces to a retry, and forgets children; the `flyte.trace`
  makes the leaf visible, and its output alone would suffice to rebuild the record.
- The body of a leaf runs in the context from before the trace, where tasks may be called; inside a trace Flyte forbids it.
- An error is never an answer. When the agent goes on past a failure to another request, the failure is recorded as
  passed over, and replays; when the failure ends the agent run after all, that record is withdrawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import importlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar, cast

from ._canonical import JSON, UnserializableError, canonical_json, digest, fingerprint, jsonable
from ._errors import RecordError, error_chain
from ._records import Kind, Record, RecordFolder, parse_record_name, record_name
from ._scope import TaskScope
from ._storage import Folder
from ._traces import BODY, TRACES

__all__ = ["Codec", "DefaultErrorCodec", "ErrorCodec", "JsonCodec", "Recorded", "Recorder", "Slot", "current_slot"]

logger = logging.getLogger("flyteplugins.agents")

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
    """Keeps an exception's class, arguments and attributes, as far as they are JSON values."""

    def encode(self, error: Exception) -> JSON:
        """Turn an exception into JSON values; what has no JSON form is kept as text."""
        state = {name: _shown(value) for name, value in vars(error).items() if not name.startswith("__")}
        return {
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
            raise RecordError(
                f"A recorded failure names {kept['module']}.{kept['class']}, which is not an exception class."
            )
        error = found.__new__(found)
        error.args = tuple(cast("list[JSON]", kept["args"]))
        error.__dict__.update(cast("dict[str, JSON]", kept["state"]))
        return error


def _shown(value: object) -> JSON:
    try:
        return jsonable(value)
    except UnserializableError:
        return str(value)


@dataclass(frozen=True)
class Slot:
    """The place of a leaf that is being made.

    Attributes:
        scope: The task that makes it.
        run: The agent run's path.
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
    """

    value: T
    replayed: bool = False
    seconds: float = 0.0
    name: str = ""


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
    failures: list[_Failure] = field(default_factory=list)


_STRAND: contextvars.ContextVar[_Strand | None] = contextvars.ContextVar("flyteplugins.agents.strand", default=None)


async def ask(call: Callable[[], Awaitable[T]]) -> T:
    """Make the call of a leaf that has no record: the one place where something is paid for or done."""
    return await call()


class Recorder:
    """Makes and replays the leaves of one agent run.

    Args:
        scope: The task that runs, or `None` outside of one, where everything is passed through.
        path: The agent run's folder below the scope's.
        durable: Whether turns, inline tools and memory reads are recorded. Outcomes of task tools always are.
        errors: How failures that were passed over are kept.
    """

    def __init__(self, scope: TaskScope | None, path: str, *, durable: bool, errors: ErrorCodec) -> None:
        self.scope = scope
        self.path = path
        self.durable = durable and scope is not None
        self._errors = errors
        self._recorded: set[tuple[Kind, str, int]] = set()
        self._started: set[str] = set()
        self._siblings: dict[str, dict[tuple[Kind, str], list[int]]] = {}
        self._taken: dict[tuple[Kind, str], set[int]] = {}
        self._positions: dict[Kind, int] = {}
        self._passed_over: dict[
            int, tuple[BaseException, str]
        ] = {}  # by id(), which lives as long as the exception does
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
        """
        errors = errors or DefaultErrorCodec()
        if scope is None:
            return cls(None, "", durable=durable, errors=errors)
        base = f"{scope.action}/{digest(identity)[:32]}"
        variant = digest(configuration)[:12]
        state = scope.state
        with state.lock:
            running = state.started.setdefault(f"{base}/{variant}", set())
            ordinal = next(number for number in range(len(running) + 1) if number not in running)
            running.add(ordinal)
            path = f"{base}/{variant}-{ordinal}"
            state.claimed.add(path)
        recorder = cls(scope, path, durable=durable, errors=errors)
        for name in await scope.folder.names(base):
            folder, _, file = name.rpartition("/")
            recorder._enter(folder, file)
        return recorder

    def _enter(self, folder: str, file: str) -> None:
        """Note one file of the listing."""
        if folder == self.path and file.startswith("started."):
            self._started.add(file.removeprefix("started."))
            return
        address = parse_record_name(file)
        if address is None:
            return
        kind, key, ordinal = address
        if folder == self.path:
            self._recorded.add(address)
        else:
            self._siblings.setdefault(folder, {}).setdefault((kind, key), []).append(ordinal)

    @property
    def resumed(self) -> bool:
        """Whether an earlier attempt left records."""
        return bool(self._recorded or self._started)

    def count(self, kind: Kind) -> int:
        """How many records of a kind an earlier attempt left."""
        return sum(1 for recorded, _, _ in self._recorded if recorded == kind)

    def release(self) -> None:
        """Give the agent run's ordinal back, since it ended without an outcome: the next equal one continues it."""
        if self.scope is not None:
            variant, _, ordinal = self.path.rpartition("-")
            with self.scope.state.lock:
                self.scope.state.started[variant].discard(int(ordinal))

    @contextlib.asynccontextmanager
    async def strand(self) -> AsyncIterator[None]:
        """Mark a tool call: failures inside it are passed over when the agent goes on after it, not when a sibling does."""
        parent = self._current_strand()
        child = _Strand(self)
        token = _STRAND.set(child)
        try:
            yield
        finally:
            _STRAND.reset(token)
            parent.failures += child.failures

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
        always: bool = False,
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
            always: Whether it is recorded even with `durable=False`.
            on_unknown: Marks a leaf with an effect: a marker is stored before the call, and where an earlier attempt left
                one without an outcome, this is awaited before the call is made again.

        Returns:
            The outcome.

        Raises:
            UnserializableError: The request or the outcome has no JSON form; the message names the path.
            RecordError: A record cannot be read back.
            Exception: Whatever the call raised, or raised in an attempt that went on past it.
        """
        if self._folder is None or not (self.durable or always):
            began = time.perf_counter()
            value = await call()
            return Recorded(value, seconds=time.perf_counter() - began)
        key, digests = fingerprint(fields)
        await self._go_past_failures(kind, key)
        position = self._positions[kind] = self._positions.get(kind, -1) + 1
        ordinal = self._take(kind, key)
        try:
            found = await self._find(kind, key, ordinal)
            if found is None:
                await self._explain_miss(kind, digests, position)
            return await self._leaf(
                Record(kind, key, ordinal, None, fields=digests, position=position),
                found,
                call,
                codec,
                info,
                traced,
                on_unknown,
            )
        except BaseException as error:
            if (
                id(error) not in self._passed_over
            ):  # a failure that was passed over is an outcome, and keeps its ordinal
                self._taken[kind, key].discard(ordinal)
            raise

    def _take(self, kind: Kind, key: str) -> int:
        taken = self._taken.setdefault((kind, key), set())
        ordinal = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(ordinal)
        return ordinal

    async def _find(self, kind: Kind, key: str, ordinal: int) -> Record | None:
        """Look for the record, in our folder and then in those that no agent run of this attempt has as its own."""
        assert self._folder is not None
        assert self.scope is not None
        state = self.scope.state
        name = record_name(kind, key, ordinal)
        if (kind, key, ordinal) in self._recorded and f"{self.path}/{name}" not in state.consumed:
            return await self._folder.read(name)
        for folder, records in self._siblings.items():
            if folder in state.claimed:
                continue
            for other in records.get((kind, key), ()):
                path = f"{folder}/{record_name(kind, key, other)}"
                if path in state.consumed:
                    continue
                if kind != "memory":  # any number of runs may start from one transcript
                    state.consumed.add(path)
                return await RecordFolder(self.scope.folder, folder).read(record_name(kind, key, other))
        return None

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
        slot = Slot(self.scope, self.path, blank.name, unknown=blank.name in self._started)
        outcome: list[Recorded[T]] = []

        async def replay() -> str:
            assert found is not None
            outcome.append(self._replayed(found, codec))
            return await folder.trace_output(found)

        async def make() -> str:
            if on_unknown is not None:
                if slot.unknown:
                    await on_unknown(slot)
                await self.scope_folder.create(f"{self.path}/started.{blank.name}", b"")
            started, began = time.time(), time.perf_counter()
            try:
                value = await ask(call)
            except Exception as error:
                seconds = time.perf_counter() - began
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
                seconds=time.perf_counter() - began,
                info=info(value) if info else {},
            )
            output, stored = await folder.write(record)
            if stored is None:
                outcome.append(Recorded(value, seconds=record.seconds, name=record.name))
            else:
                logger.warning("Another worker recorded %s first; its outcome is used.", record.name)
                outcome.append(replace(self._replayed(stored, codec), replayed=False))  # this call was paid for too
            return output

        body = replay if found is not None else make
        context = contextvars.copy_context()
        if found is None and on_unknown is not None:
            context.run(_SLOT.set, slot)

        async def in_own_context() -> str:
            return await asyncio.get_running_loop().create_task(body(), context=context)

        if not traced:
            await in_own_context()
            return outcome[0]
        token = BODY.set(in_own_context)
        try:
            output = await TRACES[blank.kind](f"{self.path}/{blank.name}")
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
            self._passed_over[id(error)] = (error, record.name)
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
        return Recorded(value, replayed=True, seconds=record.seconds, name=record.name)

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
            except Exception as error:  # noqa: BLE001 - an SDK's exception may hold anything; the cost is one more request
                logger.warning("A failure cannot be recorded, so a resume will make its request again: %s", error)
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
            await self._folder.write(record)
            self._passed_over[id(failure.error)] = (failure.error, record.name)

    async def withdraw_failures(self, error: BaseException) -> None:
        """A failure ended the agent run after all: have its request made again by the next attempt.

        Args:
            error: What ended the agent run.
        """
        if self._folder is None:
            return
        for cause in error_chain(error):
            passed = self._passed_over.pop(id(cause), None)
            if passed is not None:
                await self._folder.delete(passed[1])

    async def _explain_miss(self, kind: Kind, digests: Mapping[str, str], position: int) -> None:
        """Log which field of a request differs from what the interrupted attempt asked at this point."""
        if not self._recorded or kind == "memory":
            return
        assert self._folder is not None
        asked = {(other, key) for other, key in self._taken}
        for other, key, ordinal in sorted(self._recorded):
            if other != kind or ((other, key) in asked and ordinal in self._taken[other, key]):
                continue
            record = await self._folder.read(record_name(other, key, ordinal))
            if record.position == position:
                changed = sorted(
                    name for name in {*record.fields, *digests} if record.fields.get(name) != digests.get(name)
                )
                logger.warning(
                    "%s %d of %s is made again: it differs from the recorded one in %s.",
                    kind.capitalize(), position + 1, self.path, ", ".join(changed),
                )  # fmt: skip
                return
