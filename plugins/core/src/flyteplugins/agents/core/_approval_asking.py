"""How a person is asked: by a Flyte condition in a worker, at the terminal on a laptop.

A condition's name carries the digest and the place of the request in its run, so that it is the same on every attempt and
nobody else's. Before it is created again on a resume, the run's actions are read: they hold an answer that was given while the
worker was down, also where the backend has forgotten the condition itself. What a wait returns is never trusted alone: in Flyte
2.12 it is `None` for a condition that was paused when its worker was restarted, and `None` is neither a yes nor a no.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import hashlib
import inspect
import json
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import flyte
import flyte.errors

from ._canonical import JSON
from ._console import ConsoleClosedError, ask_console, has_console
from ._errors import AgentError, ApprovalPendingError
from ._recorder import Slot
from ._scope import TaskScope

if TYPE_CHECKING:
    from ._approval import ApprovalRequest

__all__ = ["Answer", "Asked", "ask", "place_of"]

logger = logging.getLogger("flyteplugins.agents")

_GRACE = 10.0
"""How long after a deadline Flyte has to say that it is over, in seconds."""

_READS = 5
"""How often an answer that Flyte does not show yet is looked for, a second apart and more."""


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        verdict: The decision.
        at: When, in seconds since the epoch.
        by: Who; empty where nobody says.
        reason: Why not.
        edited: Changed arguments.
        condition: The condition that took it.
    """

    verdict: Literal["approved", "denied", "expired"]
    at: float
    by: str = ""
    reason: str = ""
    edited: JSON = None
    condition: str = ""


def place_of(action: str, digest: str, run: str, leaf: str) -> str:
    """Name a request: unique in its Flyte run, and the same on every attempt.

    Args:
        action: What is asked about.
        digest: SHA-256 of its arguments.
        run: The agent run's number.
        leaf: The name of the decision's record.
    """
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", action)[:40]
    return f"approve-{plain}-{digest}-{hashlib.sha256(f'{run}/{leaf}'.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Asked:
    """A request that is on record as asked.

    Attributes:
        place: Its name.
        at: When it was asked first, in seconds since the epoch.
        deadline: When it expires, in seconds since the epoch.
        before: Whether an earlier attempt may have asked.
        scope: The task that asks.
        file: Where it is on record, below our folder of the run.
    """

    place: str
    at: float
    deadline: float | None
    before: bool = False
    scope: TaskScope | None = None
    file: str = ""

    @classmethod
    async def open(
        cls, scope: TaskScope | None, slot: Slot | None, action: str, digest: str, canonical: str, timeout: float | None
    ) -> Asked:
        """Put it on record, or find it: the time to answer counts from the first attempt."""
        now = time.time()
        if scope is None or slot is None:
            return cls(place_of(action, digest, "", ""), now, None if timeout is None else now + timeout)
        place = place_of(action, digest, slot.run, slot.name)
        file = f"{slot.run}/asked.{slot.name}"
        kept = {
            "action": action,
            "sha256": digest,
            "arguments": canonical,
            "condition": place,
            "asked": now,
            "deadline": None if timeout is None else now + timeout,
        }
        before = not await scope.folder.create(file, json.dumps(kept, ensure_ascii=False).encode())
        if before:
            kept = json.loads(await scope.folder.read(file))
        return cls(place, float(str(kept["asked"])), _number(kept["deadline"]), before, scope, file)

    @property
    def location(self) -> str:
        """Where the whole of it can be read."""
        return self.scope.folder.location(self.file) if self.scope is not None else "the run that asks"

    @property
    def mode(self) -> str:
        """Where the person is: `remote` for a Flyte condition."""
        return self.scope.mode if self.scope is not None else "local"

    async def reminded(self) -> bool:
        """Whether somebody was reminded."""
        if self.scope is None:
            return False
        try:
            await self.scope.folder.read(f"{self.file}.reminded")
        except FileNotFoundError:
            return False
        return True

    async def note_reminded(self) -> None:
        """Note that somebody was reminded."""
        if self.scope is not None:
            await self.scope.folder.create(f"{self.file}.reminded", b"")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


Check: TypeAlias = Callable[[JSON], JSON]
Parse: TypeAlias = Callable[[object], "Answer | str"]
"""Reads an answer: what it means, or what is wrong with it."""


async def ask(
    request: ApprovalRequest,
    asked: Asked,
    *,
    edit: bool,
    free: bool,
    check: Check | None,
    remind: Callable[[ApprovalRequest], Awaitable[None] | None] | None,
    after: float | None,
) -> Answer:
    """Ask, and wait for the answer or the deadline.

    Args:
        request: What is asked.
        asked: Where it is on record.
        edit: Whether arguments may be changed.
        free: Whether any text is an answer.
        check: Validates changed arguments, or with `free` the answer.
        remind: Called when nobody has answered.
        after: How many seconds after the asking.
    """

    def parse(value: object) -> Answer | str:
        return _read_text(str(value), check) if free else _read_answer(value, edit, check)

    reminder = None
    if remind is not None and after is not None:
        reminder = asyncio.ensure_future(_remind(request, asked, remind, after))
    try:
        if asked.mode == "remote":
            return await _Condition(request, asked, str if edit or free else bool, parse).answer()
        choices = "approve, deny, deny: <reason>, or JSON" if edit else "your answer" if free else "yes or no"
        return await _at_console(request, asked, choices, parse)
    finally:
        if reminder is not None:
            reminder.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reminder


async def _remind(
    request: ApprovalRequest,
    asked: Asked,
    remind: Callable[[ApprovalRequest], Awaitable[None] | None],
    after: float,
) -> None:
    await asyncio.sleep(max(asked.at + after - time.time(), 0.0))
    if await asked.reminded():
        return
    if asked.mode == "remote" and asked.scope is not None:
        found = await _condition(asked.scope, asked.place)
        request = replace(
            request, condition=asked.place, condition_action=found.action_name if found is not None else ""
        )
    try:
        told = remind(request)
        if inspect.isawaitable(told):
            await told
    except Exception:  # the request goes on: a broken messenger decides nothing
        logger.exception("The reminder of the approval of %s raised", request.action)
        return
    await asked.note_reminded()


def _read_text(text: str, check: Check | None) -> Answer | str:
    """Take any text that fits for an answer, or say why it does not."""
    try:
        if check is not None:
            check(text)
    except ValueError as error:
        return f"This answer does not fit: {error}"
    return Answer("approved", time.time(), reason=text)


def _read_answer(value: object, edit: bool, check: Check | None) -> Answer | str:
    """Read an answer, or say what is wrong with it. What is not plainly a yes is none."""
    now = time.time()
    if isinstance(value, bool):
        return Answer("approved" if value else "denied", now)
    text = str(value).strip()
    word, _, reason = text.partition(":")
    match word.strip().lower():
        case "approve" | "approved" | "yes" | "y" | "true" if not reason:
            return Answer("approved", now)
        case "deny" | "denied" | "reject" | "no" | "n" | "false":
            return Answer("denied", now, reason=reason.strip())
    if edit and text.startswith("{"):
        try:
            edited = json.loads(text)
            return Answer("approved", now, edited=edited if check is None else check(edited))
        except ValueError as error:  # a ToolArgumentError is one
            return f"These arguments do not fit: {error}"
    choices = "`approve`, `deny`, `deny: <reason>` or a JSON object" if edit else "`yes` or `no`"
    return f"{text[:100]!r} is no answer: write {choices}."


async def _at_console(request: ApprovalRequest, asked: Asked, choices: str, parse: Parse) -> Answer:
    name = f"{request.action} sha256:{request.digest}"
    pending = ApprovalPendingError(
        f"The approval of {request.action} (SHA-256 {request.digest}) is pending: there is no terminal to ask at. Nothing was "
        "done. Run it again under the same name at a terminal to decide.",
        (name,),
    )
    late = Answer("expired", asked.deadline or 0.0)
    if asked.deadline is not None and time.time() >= asked.deadline:
        return late
    if not has_console():
        raise pending
    answers: list[Answer] = []

    def again(line: str) -> str:
        answer = parse(line)
        if isinstance(answer, str):
            return f"{answer}\n[{choices}] > "
        answers.append(answer)
        return ""

    text = f"\n{'-' * 72}\n{request.prompt}\n\n[{choices}] > "
    try:
        line = await ask_console(text, asked.deadline, again)
    except ConsoleClosedError as error:
        raise pending from error
    return late if line is None else replace(answers[-1], by=_user())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name
        return ""


@dataclass(frozen=True)
class _Found:
    """What the run's actions say about a condition.

    Attributes:
        value: What it was signalled with; `None` where it was not.
        by: Who signalled it.
        at: When.
        ended: Whether it is over.
        timed_out: Whether it is over because of its deadline.
    """

    value: object = None
    by: str = ""
    at: float = 0.0
    ended: bool = False
    timed_out: bool = False


async def _condition(scope: TaskScope, name: str) -> Any:
    from flyte.remote import Condition

    return await Condition.get.aio(name, run_name=scope.run, action_name=scope.action)


async def _find(scope: TaskScope, name: str) -> _Found | None:
    """Look a condition up among the run's actions; `None` where there is none."""
    from flyte.remote import ActionDetails
    from flyteidl2.common import phase_pb2

    condition = await _condition(scope, name)
    if condition is None:
        return None
    details = (await ActionDetails.get.aio(run_name=scope.run, name=condition.action_name)).pb2
    at = details.status.end_time.ToDatetime().timestamp() if details.status.HasField("end_time") else time.time()
    phase = details.status.phase
    live = (phase_pb2.ACTION_PHASE_QUEUED, phase_pb2.ACTION_PHASE_RUNNING, phase_pb2.ACTION_PHASE_PAUSED)
    found = _Found(at=at, ended=phase not in live, timed_out=phase == phase_pb2.ACTION_PHASE_TIMED_OUT)
    if details.HasField("signal_info"):
        primitive = details.signal_info.output.scalar.primitive
        kind = primitive.WhichOneof("value")
        if kind is not None:
            found = replace(
                found, value=getattr(primitive, kind), by=_who(details.signal_info.signalled_by), ended=True
            )
    return found


def _who(identity: Any) -> str:
    """The name of whoever signalled: a person's mail address or subject, or an application's."""
    match identity.WhichOneof("principal"):
        case "user":
            return str(identity.user.spec.email or identity.user.id.subject)
        case "application":
            return str(identity.application.id.subject)
    return ""


class _Condition:
    """A request as a Flyte condition.

    Args:
        request: What is asked.
        asked: Where it is on record.
        kind: What answers are.
        parse: Reads an answer.
    """

    def __init__(self, request: ApprovalRequest, asked: Asked, kind: type[bool] | type[str], parse: Parse) -> None:
        assert asked.scope is not None
        self.scope = asked.scope
        self.request = request
        self.asked = asked
        self.kind = kind
        self.parse = parse

    async def answer(self) -> Answer:
        """Ask until there is an answer that can be read. An answer that cannot be is asked for again, by another name."""
        name, problem, number = self.asked.place, "", 0
        while True:
            found = await self._round(name, problem)
            if found.value is None:
                assert self.asked.deadline is not None
                return Answer("expired", self.asked.deadline, condition=name)
            answer = self.parse(found.value)
            if isinstance(answer, Answer):
                return replace(answer, by=found.by, at=found.at, condition=name)
            number += 1
            name, problem = f"{self.asked.place}-{number}", f"{answer}\n\n"

    async def _round(self, name: str, problem: str) -> _Found:
        if self.asked.before:
            found = await _find(self.scope, name)
            if found is not None and found.ended:
                return self._settled(name, found)
        rest = None if self.asked.deadline is None else self.asked.deadline - time.time()
        if rest is not None and rest <= 0:
            return _Found(ended=True, timed_out=True)
        value: object = None
        try:
            async with asyncio.timeout(None if rest is None else rest + _GRACE):
                value = await self._wait(name, problem, rest)
        except (TimeoutError, flyte.errors.ConditionTimedoutError):
            logger.debug("Nobody answered %s in time", name)
        except (flyte.errors.ConditionFailedError, flyte.errors.ActionAbortedError) as error:
            raise self._aborted(name) from error
        return await self._read(name, value)

    async def _wait(self, name: str, problem: str, rest: float | None) -> object:
        condition = await flyte.new_condition.aio(
            name,
            prompt=f"{problem}{self.request.prompt}",
            data_type=self.kind,
            description=f"Approval of {self.request.action}, SHA-256 {self.request.digest}",
            timeout=rest,
        )
        print(
            f"[flyte-agents] {self.request.action} waits for approval (SHA-256 {self.request.digest}). `flyte get condition "
            f"{self.scope.run}` shows it; answer with `flyte signal condition {self.scope.run} ACTION VALUE`.",
            file=sys.stderr,
            flush=True,
        )
        return await condition.wait.aio()

    async def _read(self, name: str, value: object) -> _Found:
        """Read who answered a condition whose wait is over, and what, where the wait did not tell."""
        for number in range(_READS):
            found = await _find(self.scope, name)
            if found is not None and found.ended:
                if value is not None and found.value is None:  # this backend does not show answers
                    return replace(found, value=value)
                return self._settled(name, found)
            if value is not None:
                return _Found(value=value, at=time.time(), ended=True)
            if self.asked.deadline is not None and time.time() >= self.asked.deadline:
                return _Found(ended=True, timed_out=True)
            await asyncio.sleep(number + 1)
        raise AgentError(
            f"Flyte ended the wait for the condition {name} without a value, and its actions show no answer: whether "
            f"{self.request.action} was approved is not known, and it was not done. Run the task again to ask anew."
        )

    def _settled(self, name: str, found: _Found) -> _Found:
        if found.value is None and not found.timed_out and not self._is_over():
            raise self._aborted(name)
        return found

    def _is_over(self) -> bool:
        return self.asked.deadline is not None and time.time() >= self.asked.deadline

    def _aborted(self, name: str) -> AgentError:
        return AgentError(
            f"The condition {name} was aborted, so nobody decided about {self.request.action} (SHA-256 "
            f"{self.request.digest}), and it was not done."
        )
