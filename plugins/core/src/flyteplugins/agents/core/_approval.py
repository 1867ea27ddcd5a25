"""A person's decision about one exact action: asked once, kept, and bound to the bytes of the arguments.

The decision is a leaf. Its key is the action and its canonical arguments, so arguments that change find no decision and need a
new one. What the person is shown, the SHA-256 of what is shown and what runs are one thing: a tool's arguments are compared with
the digest once more when the wait, which may have taken days, is over.
"""

from __future__ import annotations

import datetime
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from ._approval_asking import Answer, Asked, ask, place_of
from ._canonical import JSON, canonical_json, jsonable
from ._errors import AgentError, ApprovalExpiredError, ApprovalPendingError, RecordError
from ._events import ApprovalAnswered, ApprovalAsked
from ._recorder import Recorder, Slot, current_slot
from ._run import current_run
from ._scope import current_scope
from ._waits import waiting_for_a_person

__all__ = [
    "Approval",
    "ApprovalDecision",
    "ApprovalItem",
    "ApprovalRequest",
    "OnTimeout",
    "Reminder",
    "RequiresApproval",
    "approval_needed",
    "as_approval",
    "ask_person",
    "check_sdk_approval",
    "decide",
    "decide_call",
    "request_approval",
    "sdk_approval",
    "request_approvals",
]

OnTimeout = Literal["deny", "raise"]
"""What becomes of an action about which nobody decided in time: `deny` refuses it, `raise` fails the run."""

Verdict = Literal["approved", "denied", "expired"]

Predicate: TypeAlias = Callable[[Mapping[str, Any]], "bool | Awaitable[bool]"]
"""Says of a call's validated arguments, defaults included, whether a person has to approve it."""


@dataclass(frozen=True)
class ApprovalItem:
    """One action that is asked about.

    Attributes:
        action: What is done: a tool's name.
        arguments: Its arguments, as JSON values.
        canonical: The arguments' canonical JSON, by RFC 8785 where it applies.
        digest: SHA-256 of that text's UTF-8 bytes, in hexadecimal.
    """

    action: str
    arguments: JSON
    canonical: str
    digest: str

    @classmethod
    def of(cls, action: str, arguments: object) -> ApprovalItem:
        """Describe an action.

        Raises:
            UnserializableError: The arguments have no canonical JSON; the message names the path.
            ValueError: The action has no name.
        """
        if not action:
            raise ValueError("The action is ''; give it a name, such as 'send_email'.")
        data = canonical_json(arguments, path="arguments")
        return cls(action, jsonable(arguments), data.decode(), hashlib.sha256(data).hexdigest())


@dataclass(frozen=True)
class ApprovalRequest:
    """What a person is asked.

    Attributes:
        action: What is to be done.
        digest: SHA-256 that covers all of it, in hexadecimal.
        items: The actions, in order; one unless several are asked about at once.
        prompt: The text that the person sees.
        asked: When it was asked first, in seconds since the epoch.
        deadline: When it expires, in seconds since the epoch; `None` for never.
        run: The Flyte run; empty outside of one.
        condition: The name of the Flyte condition that takes the answer; empty on a laptop.
        condition_action: The condition's action, for `flyte signal condition <run> <condition_action> true`; empty where it is
            not known.
    """

    action: str
    digest: str
    items: tuple[ApprovalItem, ...]
    prompt: str
    asked: float
    deadline: float | None
    run: str = ""
    condition: str = ""
    condition_action: str = ""


Reminder: TypeAlias = Callable[[ApprovalRequest], "Awaitable[None] | None"]
"""Called before the deadline of a request that nobody has answered: it may write to whoever can."""


@dataclass(frozen=True, kw_only=True)
class Approval:
    """How a tool's calls are approved, for `tool(..., requires_approval=Approval(...))`.

    Attributes:
        when: Says of the validated arguments whether a call needs approval; each does by default. It may be a coroutine
            function. What it raises fails the run: no call goes through because nobody knew.
        prompt: What to ask, above the action and its arguments.
        timeout: How long there is to answer, in seconds or as a `timedelta`, counted from the first asking; a retry does not
            extend it. For ever by default.
        on_timeout: `"deny"` tells the model that nobody answered, `"raise"` fails the run.
        edit: Whether the person may change the arguments. The answer is text then: `approve`, `deny`, `deny: <reason>`, or the
            arguments as a JSON object, which are validated, run as they are, and what the digest covers.
        remind: Called when nobody has answered, at least once, also where the worker was down meanwhile.
        remind_before: How long before the deadline, in seconds or as a `timedelta`; half of `timeout` by default.
    """

    when: Predicate | None = None
    prompt: str = ""
    timeout: float | datetime.timedelta | None = None
    on_timeout: OnTimeout = "deny"
    edit: bool = False
    remind: Reminder | None = None
    remind_before: float | datetime.timedelta | None = None

    def __post_init__(self) -> None:
        for name in ("when", "remind"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"Approval {name} is {value!r}; give a function.")
        if self.on_timeout not in ("deny", "raise"):
            raise ValueError(f"Approval on_timeout is {self.on_timeout!r}; give 'deny' or 'raise'.")
        if not isinstance(self.edit, bool):
            raise TypeError(f"Approval edit is {self.edit!r}; give True or False.")
        if not isinstance(self.prompt, str):
            raise TypeError(f"Approval prompt is {self.prompt!r}; give text.")
        timeout, before = self.seconds, _seconds("remind_before", self.remind_before)
        if before is not None and (timeout is None or before >= timeout):
            raise ValueError(
                f"Approval remind_before is {before:g} s and timeout is {'none' if timeout is None else f'{timeout:g} s'}; "
                "give a timeout that is longer."
            )
        if self.remind is not None and timeout is None:
            raise ValueError("Approval has remind and no timeout: there is no deadline to remind of. Give both.")

    @property
    def seconds(self) -> float | None:
        """The timeout in seconds."""
        return _seconds("timeout", self.timeout)

    @property
    def reminded_after(self) -> float | None:
        """How many seconds after the asking `remind` is called."""
        if self.remind is None or self.seconds is None:
            return None
        before = _seconds("remind_before", self.remind_before)
        return self.seconds - (self.seconds / 2 if before is None else before)


def _seconds(name: str, value: float | datetime.timedelta | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"Approval {name} is {value!r}; give seconds or a timedelta.")
    if not 0 < value < float("inf"):
        raise ValueError(f"Approval {name} is {value!r}; give more than 0 seconds, or None for no limit.")
    return float(value)


def as_approval(value: object) -> Approval | None:
    """Read what `requires_approval` was given.

    Args:
        value: `True`, a predicate, or an `Approval`; `False` and `None` for none.

    Raises:
        TypeError: It is something else.
    """
    if value is None or value is False:
        return None
    if value is True:
        return Approval()
    if isinstance(value, Approval):
        return value
    if callable(value) and not isinstance(value, type):
        return Approval(when=cast(Predicate, value))
    raise TypeError(
        f"requires_approval is {value!r}; give True, a function of the arguments, or an Approval(...) instance."
    )


RequiresApproval: TypeAlias = "bool | Predicate | Approval | None"
"""What `tool(..., requires_approval=...)` takes."""


async def approval_needed(approval: Approval, arguments: Mapping[str, Any], *, tool: str) -> bool:
    """Ask the predicate whether a person has to approve a call.

    Args:
        approval: How the tool's calls are approved.
        arguments: The call's arguments, defaults included.
        tool: The tool's name.

    Raises:
        AgentError: It raised, or answered something else than yes or no.
    """
    if approval.when is None:
        return True
    try:
        answer = approval.when(dict(arguments))
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:
        raise AgentError(
            f"Whether a call of {tool} needs approval is not known: its predicate raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(answer, bool):
        raise AgentError(f"The predicate of {tool} returned {answer!r}; it has to return True or False.")
    return answer


@dataclass(frozen=True)
class ApprovalDecision:
    """What was decided. It is true exactly where the action was approved.

    Attributes:
        action: What was asked about.
        arguments: The arguments that the decision is about: the edited ones where the person changed them.
        canonical: Their canonical JSON.
        digest: SHA-256 of that, in hexadecimal.
        decision: `approved`, `denied`, or `expired`: nobody answered in time.
        asked: When it was asked first, in seconds since the epoch.
        decided: When it was decided, in seconds since the epoch.
        by: Who decided, where Flyte or the terminal says so.
        reason: Why it was denied, where the person said so.
        proposed: The digest of what was asked, where the person changed it; else empty.
        condition: The name of the Flyte condition that took the answer; empty on a laptop.
        items: The actions, in order.
        replayed: Whether it was answered from its record.
    """

    action: str
    arguments: JSON
    canonical: str
    digest: str
    decision: Verdict
    asked: float
    decided: float
    by: str = ""
    reason: str = ""
    proposed: str = ""
    condition: str = ""
    items: tuple[ApprovalItem, ...] = ()
    replayed: bool = False

    @property
    def approved(self) -> bool:
        """Whether the action may be done."""
        return self.decision == "approved"

    def __bool__(self) -> bool:
        return self.approved

    @property
    def told(self) -> str:
        """The decision as a sentence for a model."""
        if self.approved:
            return f"{self.action} was approved."
        if self.decision == "expired":
            return f"{self.action} was not approved: nobody answered in time. It was not done."
        reason = f" They said: {self.reason}" if self.reason else ""
        return f"{self.action} was not approved: a person denied it. It was not done.{reason}"


class _DecisionCodec:
    """Keeps a decision. A record whose digest is not that of its arguments is refused."""

    def encode(self, value: ApprovalDecision) -> JSON:
        """Turn a decision into JSON values."""
        kept: dict[str, JSON] = {
            name: getattr(value, name)
            for name in ("action", "canonical", "digest", "decision", "asked", "decided", "by", "reason")
        }
        kept |= {"proposed": value.proposed, "condition": value.condition}
        kept["items"] = [
            {"action": item.action, "canonical": item.canonical, "digest": item.digest} for item in value.items
        ]
        return kept

    def decode(self, payload: JSON) -> ApprovalDecision:
        """Build the decision, and check its digests."""
        kept = dict(cast("dict[str, Any]", payload))
        _check(kept)
        items = []
        for item in kept.pop("items"):
            _check(item)
            items.append(ApprovalItem(arguments=json.loads(item["canonical"]), **item))
        return ApprovalDecision(**kept, arguments=json.loads(kept["canonical"]), items=tuple(items), replayed=True)


def _check(kept: Mapping[str, Any]) -> None:
    found = hashlib.sha256(kept["canonical"].encode()).hexdigest()
    if found != kept["digest"]:
        raise RecordError(
            f"The recorded approval of {kept['action']} is for arguments with SHA-256 {kept['digest']}, and holds others "
            f"(SHA-256 {found}): it was changed. Nothing was done by it. Move the record away to have it asked again."
        )


Check: TypeAlias = Callable[[JSON], JSON]
"""Validates edited arguments, and returns them as they will run; raises `ValueError` where they do not fit."""


async def decide(
    items: Sequence[ApprovalItem],
    approval: Approval,
    *,
    agent: str = "",
    check: Check | None = None,
    batch: bool = False,
    free: bool = False,
) -> ApprovalDecision:
    """Have a person decide, or find the decision on record, and tell of it.

    Args:
        items: What is asked about.
        approval: How.
        agent: The agent that asks; the agent run's by default.
        check: Validates edited arguments.
        batch: Whether one digest covers a list, be it of one item.
        free: Whether any text is an answer: the decision's `reason`.

    Raises:
        ApprovalExpiredError: Nobody answered in time, and `on_timeout` is `"raise"`.
        ApprovalPendingError: On a laptop: there is no terminal to ask at.
        AgentError: The request was aborted, or what was recorded of it was changed.
    """
    subject = items[0]
    if batch:
        names = list(dict.fromkeys(item.action for item in items))
        listed = [{"action": item.action, "arguments": item.arguments} for item in items]
        subject = ApprovalItem.of(f"{len(items)} actions: {', '.join(names)}"[:100], listed)
    run, scope = current_run(), current_scope()
    recorder = run.recorder if run is not None else None
    if recorder is None:
        recorder = await Recorder.open(
            scope, identity={"approval": subject.action, "sha256": subject.digest}, configuration={}, durable=True
        )
    event: dict[str, Any] = {"action": subject.action, "digest": subject.digest}
    if run is not None:
        event |= {"run": run.id, "agent": agent or run.name}

    async def make() -> ApprovalDecision:
        slot = current_slot()
        asked = await Asked.open(scope, slot, subject.action, subject.digest, subject.canonical, approval.seconds)
        request = ApprovalRequest(
            action=subject.action,
            digest=subject.digest,
            items=tuple(items),
            prompt=_prompt(subject, items if batch else (), approval, asked, free),
            asked=asked.at,
            deadline=asked.deadline,
            run=scope.run if scope is not None and scope.mode == "remote" else "",
        )
        if run is not None:
            await run.emit(_asked_event(event, subject, asked.place, asked.deadline))
        with waiting_for_a_person():
            answer = await ask(
                request,
                asked,
                edit=approval.edit,
                free=free,
                check=check,
                remind=approval.remind,
                after=approval.reminded_after,
            )
        return _decision(subject, items, asked, answer)

    try:
        recorded = await recorder.record(
            "approval",
            {"action": subject.action, "arguments": subject.arguments},
            make,
            codec=_DecisionCodec(),
            info=lambda decision: {
                "action": decision.action,
                "sha256": decision.digest,
                "decision": decision.decision,
                "by": decision.by,
            },
            keep="always",
            on_unknown=_known,
        )
    except BaseException as error:
        if run is None:
            recorder.release()  # it has no outcome: the next one like it goes on with it
        elif isinstance(error, ApprovalPendingError):
            run.suspend(error)
        raise
    decision = recorded.value
    place = place_of(subject.action, subject.digest, recorder.number, recorded.name)
    if run is not None:
        if decision.replayed:
            await run.emit(_asked_event(event | {"replayed": True}, subject, place, None))
        await run.emit(
            ApprovalAnswered(
                **event,
                request=place,
                decision=decision.decision,
                by=decision.by,
                reason=decision.reason,
                at=decision.decided,
                replayed=decision.replayed,
            )
        )
    if (decision.proposed or decision.digest) != subject.digest:
        raise AgentError(
            f"The decision on record about {subject.action} is for arguments with SHA-256 {decision.digest}, and "
            f"{subject.digest} was asked about. Nothing was done by it."
        )
    if decision.decision == "expired" and approval.on_timeout == "raise":
        raise ApprovalExpiredError(subject.action, subject.digest)
    return decision


async def decide_call(
    action: str,
    arguments: object,
    approval: Approval | None = None,
    *,
    agent: str = "",
    check: Check | None = None,
) -> ApprovalDecision:
    """Have a person decide about a call that an SDK suspended, or find the decision on record.

    Args:
        action: The tool's name.
        arguments: What the call would run with.
        approval: How; as the agent run says by default, and without a deadline where it does not.
        agent: The agent that calls; the agent run's by default.
        check: Validates edited arguments, and returns them as they will run; raises `ValueError` where they do not fit.

    Returns:
        The decision. Where it has `proposed`, run the call with its `arguments`.

    Raises:
        ApprovalExpiredError: Nobody answered in time, and `on_timeout` is `"raise"`.
        ApprovalPendingError: On a laptop: there is no terminal to ask at.
        UnserializableError: The arguments have no canonical JSON.
    """
    item = ApprovalItem.of(action, arguments)
    return await decide([item], approval if approval is not None else sdk_approval(), agent=agent, check=check)


def sdk_approval(*, prompt: str = "", edit: bool | None = None) -> Approval:
    """How a person is asked about what the SDK itself suspends: as the caller of `run_agent` said.

    Args:
        prompt: What to ask, where the SDK says it: it is about this call.
        edit: Whether the person may change the arguments, where the SDK says that.
    """
    run = current_run()
    policy = run.approval if run is not None and run.approval is not None else Approval()
    return replace(policy, prompt=prompt or policy.prompt, edit=policy.edit if edit is None else edit)


def check_sdk_approval(value: object, *, edits: bool = False) -> Approval | None:
    """Check the keyword `approval` of an adapter's `run_agent`.

    Args:
        value: What was given.
        edits: Whether the SDK takes changed arguments with an approval, and leaves it to the caller whether there may be any.

    Raises:
        TypeError: It is no `Approval`.
        ValueError: It says what the SDK says by itself: which calls are asked about, and whether arguments may be changed.
    """
    if value is None:
        return None
    if not isinstance(value, Approval):
        raise TypeError(f"approval is {value!r}; give an Approval, such as Approval(timeout=3600).")
    for name in ("when",) if edits else ("when", "edit"):
        if getattr(value, name):
            raise ValueError(
                f"approval has {name}, and it is the SDK that says so of the calls that it suspends. Leave it out, or give it "
                "to a tool: tool(fn, requires_approval=Approval(...))."
            )
    return value


async def ask_person(
    action: str, question: JSON, *, prompt: str = "", check: Callable[[str], object] | None = None
) -> str:
    """Have a person answer a question of an SDK's that is no yes or no, or find the answer on record.

    Args:
        action: What the question is about.
        question: What is asked.
        prompt: What to show above it.
        check: Raises `ValueError` where an answer does not fit; the person is asked once more then.

    Returns:
        The text that the person gave. The deadline is the agent run's; where it passes, there is no answer, whatever it says.

    Raises:
        ApprovalExpiredError: Nobody answered in time: there is no answer to go on with.
        ApprovalPendingError: On a laptop: there is no terminal to ask at.
    """
    approval = replace(sdk_approval(prompt=prompt), on_timeout="raise")
    return (
        await decide([ApprovalItem.of(action, question)], approval, check=cast("Check | None", check), free=True)
    ).reason


async def _known(_: Slot) -> None:
    """An earlier attempt asked: the request is found again by its name, and nobody is asked twice."""


def _asked_event(
    event: Mapping[str, Any], subject: ApprovalItem, request: str, deadline: float | None
) -> ApprovalAsked:
    return ApprovalAsked(**event, request=request, arguments=subject.arguments, deadline=deadline)


def _decision(subject: ApprovalItem, items: Sequence[ApprovalItem], asked: Asked, answer: Answer) -> ApprovalDecision:
    proposed = ""
    if answer.edited is not None:
        edited = ApprovalItem.of(subject.action, answer.edited)
        if edited.digest != subject.digest:
            subject, items, proposed = edited, (edited,), subject.digest
    return ApprovalDecision(
        action=subject.action,
        # in the order that they have on a replay: an SDK may write them into a request
        arguments=json.loads(subject.canonical),
        canonical=subject.canonical,
        digest=subject.digest,
        decision=answer.verdict,
        asked=asked.at,
        decided=answer.at,
        by=answer.by,
        reason=answer.reason,
        proposed=proposed,
        condition=answer.condition,
        items=tuple(items),
    )


MAX_SHOWN = 20_000
"""How many characters of the arguments a prompt shows; the rest is where the prompt says."""


def shown(arguments: JSON) -> str:
    """Arguments as a person reads them: JSON of the same meaning, without characters that a terminal or a font would hide."""
    text = json.dumps(arguments, ensure_ascii=False, indent=2)
    return "".join(
        one
        if one.isprintable() or one == "\n"
        else json.dumps(one)[1:-1]
        if not 0x7F <= ord(one) <= 0x9F
        else f"\\u{ord(one):04x}"
        for one in text
    )


def _prompt(subject: ApprovalItem, batch: Sequence[ApprovalItem], approval: Approval, asked: Asked, free: bool) -> str:
    lines = [approval.prompt or ("What is the answer?" if free else "May this be done?"), ""]
    if batch:
        lines += [f"{len(batch)} actions, in this order, SHA-256 of all {subject.digest}:"]
        for number, item in enumerate(batch, 1):
            lines += ["", f"{number}. {item.action}, SHA-256 {item.digest}", shown(item.arguments)]
    else:
        lines += [
            f"{'Question' if free else 'Action'}: {subject.action}",
            f"Arguments, SHA-256 {subject.digest}:",
            shown(subject.arguments),
        ]
    text = "\n".join(lines)
    if len(text) > MAX_SHOWN:
        text = f"{text[:MAX_SHOWN]}\n[This is not all of it. Read the whole before you decide: {asked.location}]"
    ends = []
    if asked.deadline is not None:
        when = datetime.datetime.fromtimestamp(asked.deadline, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        outcome = "it is denied" if approval.on_timeout == "deny" else "the run fails"
        ends.append(f"Without an answer by {when} {outcome}.")
    if approval.edit:
        ends.append("Answer with `approve`, `deny`, `deny: <reason>`, or changed arguments as a JSON object.")
    return "\n\n".join([text, *ends])


async def request_approval(
    action: str,
    args: object,
    *,
    prompt: str = "",
    timeout: float | datetime.timedelta | None = None,
    on_timeout: OnTimeout = "deny",
    edit: bool = False,
    remind: Reminder | None = None,
    remind_before: float | datetime.timedelta | None = None,
) -> ApprovalDecision:
    """Ask a person whether one exact action may be done, inside a task or a tool, and wait.

    On a cluster the request is a Flyte condition, answered in the console or with `flyte signal condition`; with `flyte run
    --local` and outside of a task it is a question at the terminal. The decision is kept: after a crash nobody is asked again.

    Args:
        action: What is to be done, such as `send_email`.
        args: What with: anything that has canonical JSON.
        prompt: What to ask, above the action and its arguments.
        timeout: How long there is to answer, in seconds or as a `timedelta`, counted from the first asking.
        on_timeout: `"deny"` returns a decision that is false, `"raise"` raises.
        edit: Whether the person may change the arguments: do what the decision's `arguments` say.
        remind: Called when nobody has answered.
        remind_before: How long before the deadline; half of `timeout` by default.

    Returns:
        The decision, which is true exactly where the action was approved.

    Raises:
        ApprovalExpiredError: Nobody answered in time, and `on_timeout` is `"raise"`.
        ApprovalPendingError: On a laptop: there is no terminal to ask at.
        UnserializableError: `args` has no canonical JSON.
    """
    approval = Approval(
        prompt=prompt, timeout=timeout, on_timeout=on_timeout, edit=edit, remind=remind, remind_before=remind_before
    )
    return await decide([ApprovalItem.of(action, args)], approval)


async def request_approvals(
    actions: Sequence[tuple[str, object]],
    *,
    prompt: str = "",
    timeout: float | datetime.timedelta | None = None,
    on_timeout: OnTimeout = "deny",
    remind: Reminder | None = None,
    remind_before: float | datetime.timedelta | None = None,
) -> ApprovalDecision:
    """Ask a person once about a list of actions, in this order and under one digest: all of them may be done, or none.

    Args:
        actions: `(action, args)` pairs.
        prompt: As for `request_approval`, and so is the rest.
        timeout: See there.
        on_timeout: See there.
        remind: See there.
        remind_before: See there.

    Returns:
        The decision. Its `items` are the actions, each with its own digest; its own digest is that of the canonical list of
        `{"action": ..., "arguments": ...}`.

    Raises:
        ApprovalExpiredError: Nobody answered in time, and `on_timeout` is `"raise"`.
        ApprovalPendingError: On a laptop: there is no terminal to ask at.
        UnserializableError: An action's arguments have no canonical JSON.
        ValueError: The list is empty.
    """
    if not actions:
        raise ValueError("request_approvals was given no actions: there is nothing to approve.")
    approval = Approval(
        prompt=prompt, timeout=timeout, on_timeout=on_timeout, remind=remind, remind_before=remind_before
    )
    return await decide([ApprovalItem.of(action, args) for action, args in actions], approval, batch=True)
