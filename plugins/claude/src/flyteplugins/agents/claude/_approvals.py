"""The SDK's own approvals: `can_use_tool`, and hooks that say `ask`, have a person decide, once over all attempts.

Claude Code asks before a call, and waits for as long as the answer takes. The decision is kept as core keeps it: a retry finds
it, and asks nobody. What was approved is then compared with what would run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from flyteplugins.agents.core import (
    JSON,
    AgentError,
    AgentRun,
    AgentTool,
    Approval,
    ApprovalDecision,
    ApprovalItem,
    RequiresApproval,
    ToolArgumentError,
    ToolCallFinished,
    ToolCallStarted,
    ToolSchema,
    approval_needed,
    as_approval,
    decide_call,
)

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, PermissionResult, ToolPermissionContext

    from ._agent import BuiltAgent
    from ._context import RunContext

__all__ = ["CanUseTool", "Permissions", "approve_with_flyte"]

CanUseTool = Callable[[str, dict[str, Any], "ToolPermissionContext"], Awaitable["PermissionResult"]]
"""What `ClaudeAgentOptions.can_use_tool` takes."""

_NO_LIMIT = 2_147_483.0
"""How long Claude Code waits for a hook of which nobody said so, in seconds: as long as it can. It goes on without one that takes
longer, and makes the call."""

_DECIDING_HOOKS = ("PreToolUse", "PermissionRequest")


def approve_with_flyte(requires_approval: RequiresApproval = True) -> CanUseTool:
    """Have a person decide about each call that Claude Code asks about: for `ClaudeAgentOptions(can_use_tool=...)`.

    On a cluster the request is a Flyte condition, on a laptop a question at the terminal. The decision is kept, and bound to the
    exact tool and arguments. It can also be called by a `can_use_tool` of your own, about the calls that a person is to see.

    Args:
        requires_approval: `True`, a function of the arguments that says whether a person has to see the call, or an `Approval`
            with a prompt, a deadline, and whether the arguments may be changed.

    Returns:
        What `can_use_tool` takes.

    Raises:
        TypeError: It is something else.
        ValueError: It is `False` or `None`: leave `can_use_tool` out, and list what may run in `allowed_tools`.
    """
    approval = as_approval(requires_approval)
    if approval is None:
        raise ValueError(
            f"approve_with_flyte was given {requires_approval!r}, by which nobody would be asked. Leave can_use_tool out instead."
        )
    return _ApproveWithFlyte(approval)


@dataclass(frozen=True)
class _ApproveWithFlyte:
    """Asks a person."""

    approval: Approval

    async def __call__(self, name: str, arguments: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        """Answer Claude Code's question about one call."""
        permissions = _PERMISSIONS.get()
        if permissions is not None:
            return await permissions.decide(self.approval, name, arguments, context)
        return _answer(await _decide(self.approval, _Call(name, arguments)))


class _Described(Protocol):
    """A call, as a person is shown it."""

    @property
    def action(self) -> str: ...

    @property
    def values(self) -> Mapping[str, Any]: ...

    @property
    def arguments(self) -> JSON: ...

    def check(self, edited: JSON) -> JSON: ...


@dataclass(frozen=True)
class _Call:
    """A call of a tool whose arguments nobody here knows more of.

    Attributes:
        action: The tool's name.
        arguments: Its arguments.
    """

    action: str
    arguments: Any

    @property
    def values(self) -> Mapping[str, Any]:
        """What a predicate is asked about."""
        return cast("Mapping[str, Any]", self.arguments)

    def check(self, edited: JSON) -> JSON:
        """Read edited arguments."""
        if not isinstance(edited, dict):
            raise ValueError("give the arguments as a JSON object")  # noqa: TRY004 - told to the person who typed it
        return edited


@dataclass(frozen=True)
class _CallOfOurs:
    """A call of a tool whose arguments are validated: it is shown, and covered by the digest, with defaults and coerced.

    Attributes:
        action: The tool's name.
        given: What the model said.
        schema: The tool's.
    """

    action: str
    given: dict[str, Any]
    schema: ToolSchema

    @property
    def values(self) -> Mapping[str, Any]:
        """What a predicate is asked about: the values that the tool would get."""
        return self.schema.validate(self.given)

    @property
    def arguments(self) -> JSON:
        """The arguments that it would run with."""
        return self.check(cast(JSON, self.given))

    def check(self, edited: JSON) -> JSON:
        """Read edited arguments."""
        return cast(JSON, self.schema.dump(self.schema.validate(cast("dict[str, Any]", edited))))


async def _decide(approval: Approval, call: _Described) -> ApprovalDecision | None:
    """Have a person decide about a call; `None` where nobody has to."""
    if not await approval_needed(approval, call.values, tool=call.action):
        return None
    return await decide_call(call.action, call.arguments, approval, check=call.check)


def _answer(decision: ApprovalDecision | None) -> PermissionResult:
    from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

    if decision is None:
        return PermissionResultAllow()
    if not decision.approved:
        return PermissionResultDeny(message=decision.told)
    return PermissionResultAllow(updated_input=cast("Any", decision.arguments) if decision.proposed else None)


class Permissions:
    """What one agent run answers when Claude Code asks whether a call may be made.

    Args:
        run: The agent run.
        built: What it is made of.
        context: Where the caller's functions run.
    """

    def __init__(self, run: AgentRun, built: BuiltAgent, context: RunContext) -> None:
        self._run = run
        self._built = built
        self._context = context
        self._asked_by_hooks: dict[str, str] = {}
        self._approved: dict[str, str] = {}

    def options(self, given: ClaudeAgentOptions) -> dict[str, Any]:
        """Say which options are to be others.

        Args:
            given: The caller's.
        """
        hooks = dict(given.hooks or {})
        decides = any(event in _DECIDING_HOOKS for event in hooks)
        if given.can_use_tool is None and not (decides and given.permission_prompt_tool_name is None):
            return {}
        for event in hooks.keys() & set(_DECIDING_HOOKS):
            hooks[event] = [self._wrapped(matcher) for matcher in hooks[event]]
        answer = given.can_use_tool if given.can_use_tool is not None else self._as_hooks_say
        changes: dict[str, Any] = {"hooks": hooks} if given.hooks else {}
        if given.can_use_tool is None:
            changes["allowed_tools"] = given.allowed_tools  # the run's own are allowed when Claude Code asks

        async def can_use_tool(
            name: str, arguments: dict[str, Any], context: ToolPermissionContext
        ) -> PermissionResult:
            decided: PermissionResult = await self._inside(answer(name, arguments, context))
            return decided

        return {"can_use_tool": can_use_tool, **changes}

    async def _inside(self, work: Awaitable[Any]) -> Any:
        async def named() -> Any:
            _PERMISSIONS.set(self)
            return await work

        # what is Flyte's ends the run; what is the caller's is the SDK's to tell Claude Code
        return await self._context.do(named(), passes=_is_the_callers)

    def _wrapped(self, matcher: HookMatcher) -> HookMatcher:
        def wrap(hook: Any) -> Any:
            async def wrapped(given: Any, call_id: str | None, context: Any) -> Any:
                said = await self._inside(hook(given, call_id, context))
                specific = said.get("hookSpecificOutput") if isinstance(said, Mapping) else None
                if isinstance(specific, Mapping) and specific.get("permissionDecision") == "ask" and call_id:
                    self._asked_by_hooks[call_id] = str(specific.get("permissionDecisionReason") or "")
                return said

            return wrapped

        timeout = matcher.timeout if matcher.timeout is not None else _NO_LIMIT
        return replace(matcher, hooks=[wrap(hook) for hook in matcher.hooks], timeout=timeout)

    async def _as_hooks_say(
        self, name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """Answer where the caller has hooks and no `can_use_tool`: a hook that says `ask` wants a person to be asked."""
        from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

        if context.tool_use_id in self._asked_by_hooks:
            return await self.decide(Approval(), name, arguments, context)
        if any(name.startswith(f"mcp__{server}__") for server in (self._built.server_name, *self._built.servers)):
            return PermissionResultAllow()
        return PermissionResultDeny(
            message=f"Claude requested permissions to use {name}, but you haven't granted it yet."
        )

    async def decide(
        self, approval: Approval, name: str, arguments: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResult:
        """Have a person decide about a call, or find the decision on record.

        Args:
            approval: How.
            name: The tool, as Claude Code names it.
            arguments: What the model said, or what a hook made of it.
            context: What Claude Code says besides.
        """
        from claude_agent_sdk import PermissionResultDeny

        call_id = context.tool_use_id or ""
        call, agent_tool = self._described(name, arguments)
        if agent_tool is not None and agent_tool.approval is not None:
            return _answer(None)  # the tool asks by itself, as it says
        if reason := self._asked_by_hooks.get(call_id):
            shown = "".join(one if one.isprintable() else " " for one in reason)
            approval = replace(approval, prompt=f"{approval.prompt or 'May this be done?'}\n{shown}")
        async with self._run.recorder.strand():
            try:
                decision = await _decide(approval, call)
            except ToolArgumentError as error:  # nothing could run with these
                return PermissionResultDeny(message=f"Error: {error}")
        if decision is not None and decision.approved:
            self._approved[call_id] = decision.digest
        elif decision is not None and name.startswith("mcp__"):  # of its own tools Claude Code tells
            await self._tell(call, call_id, decision)
        return _answer(decision)

    def check(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        """Compare a call with what was approved.

        Args:
            call_id: The model's id of the call.
            name: The tool, as Claude Code names it.
            arguments: What it would run with.

        Raises:
            AgentError: It is another call.
        """
        approved = self._approved.get(call_id)
        if approved is None:
            return
        call, _ = self._described(name, arguments)
        runs = ApprovalItem.of(call.action, call.arguments).digest
        if runs != approved:
            raise AgentError(
                f"The arguments of {call.action} changed after they were approved: SHA-256 {approved} was approved, and {runs} "
                "would run. It was not done."
            )

    def _described(self, name: str, arguments: dict[str, Any]) -> tuple[_Described, AgentTool | None]:
        """A call as a person is shown it, and the tool where its arguments are ours to validate."""
        if name.startswith(self._built.tool_prefix):
            own = name.removeprefix(self._built.tool_prefix)
            agent_tool = getattr(self._built.tools.get(own), "agent_tool", None)
            if agent_tool is not None:
                return _CallOfOurs(own, arguments, agent_tool.schema), agent_tool
            return _Call(own, arguments), None
        for server in sorted(self._built.servers, key=len, reverse=True):
            if name.startswith(prefix := f"mcp__{server}__"):
                return _Call(f"{server}/{name.removeprefix(prefix)}", arguments), None
        return _Call(name, arguments), None

    async def _tell(self, call: _Described, call_id: str, decision: ApprovalDecision) -> None:
        """Tell of a call that is not made."""
        arguments, refusal = call.arguments, decision.told
        event = self._run.call_event(call.action, call_id, "")
        self._run.meter.begin_call(call.action, arguments)
        await self._run.emit(ToolCallStarted(**event, arguments=arguments))
        problem = f"NotApproved: {refusal}"
        await self._run.emit(
            ToolCallFinished(
                **event, arguments=arguments, result=refusal, error=problem, seconds=0.0, replayed=decision.replayed
            )
        )
        self._run.meter.end_call(0.0, None)


def _is_the_callers(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, AgentError)


_PERMISSIONS: ContextVar[Permissions | None] = ContextVar("flyteplugins.agents.claude.permissions", default=None)
