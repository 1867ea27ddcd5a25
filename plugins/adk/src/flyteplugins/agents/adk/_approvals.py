"""Confirmations that the SDK asks for: a person decides, and the call goes on as the SDK has it go on.

The SDK would end the run, and go on in another one with the answer. That loses what a nested agent was about to do, and asks
again after a crash. So the person is asked where the SDK asks, in the middle of the call, and the answer is put where a tool
looks for it: `tool_context.tool_confirmation`. Calls beside it run meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from flyteplugins.agents.core import (
    JSON,
    AgentError,
    AgentRun,
    ApprovalDecision,
    ApprovalItem,
    ToolArgumentError,
    UnserializableError,
    ask_person,
    current_run,
    decide_call,
    jsonable,
    sdk_approval,
)

from ._loop import on_run_loop

__all__ = ["answer_requests", "confirm", "gate", "take_request", "would_run"]

CONFIRMATION = "adk_request_confirmation"
"""The call by which the SDK asks a person whether a tool may run."""

INPUT = "adk_request_input"
"""The call by which a workflow's node, or the SDK's tool for it, asks a person for something."""

_REJECTED = "This tool call is rejected."
"""What the SDK answers a call with that a person refused."""

_NODE_ASKS = "wf_tool_confirmation:"
"""How the id of a request begins in which a workflow's node asks whether it may run."""

_TO_A_CLIENT = "by responding with a FunctionResponse"
"""In the SDK's own hints, which are for programs."""


async def gate(wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The SDK's gate before a tool: a call that needs a confirmation waits for a person.

    Args:
        wrapped: The SDK's own gate.
        args: The tool, the call's arguments, and its context.
        kwargs: The same, where they are given by name.

    Returns:
        What the call is answered with in place of the tool's result; `None` if it may run.

    Raises:
        ApprovalPendingError: There is nobody to ask.
        AgentError: The arguments changed while somebody was asked.
    """
    answer = await wrapped(*args, **kwargs)
    run = current_run()
    given = inspect.signature(wrapped).bind(*args, **kwargs).arguments
    tool, arguments, context = given["tool"], given["function_args"], given["tool_context"]
    if run is None:
        return answer
    request = take_request(context)
    if request is None and not _was_asked(run, tool, arguments, context):
        return answer
    item = _item(tool.name, would_run(tool, arguments))
    runs = item.arguments if hasattr(tool, "__agent_tool__") else dict(arguments)  # what its leaf is known by
    if run.recorder.on_record("tool", {"tool": tool.name, "arguments": runs}) and not _decided(run, item):
        return None  # it has run without: nobody is asked about what is done
    decision = await _decide(item, request or ToolConfirmation(), context.agent_name)
    if _item(tool.name, would_run(tool, arguments)).digest != decision.digest:
        raise AgentError(
            f"The arguments of {tool.name} changed after they were approved (SHA-256 {decision.digest}). It was not done."
        )
    context.tool_confirmation = ToolConfirmation(confirmed=decision.approved)
    return None if decision.approved else {"error": _refusal(decision)}


def take_request(context: ToolContext) -> ToolConfirmation | None:
    """Take what a call asks to be confirmed out of its actions, so that the SDK does not end the run over it.

    Args:
        context: The call's context.
    """
    return context.actions.requested_tool_confirmations.pop(context.function_call_id or "", None)


async def confirm(
    tool: str, arguments: Mapping[str, Any], request: ToolConfirmation, context: ToolContext
) -> ToolConfirmation:
    """Have a person answer what a tool asked for in the middle of its call.

    Args:
        tool: The tool's name.
        arguments: The call's arguments, defaults included.
        request: The request. Where it has a payload, the person may give another one.
        context: The call's context.

    Returns:
        The answer, as the tool gets it. A refusal is one: what comes of it is the tool's to say.

    Raises:
        ApprovalPendingError: There is nobody to ask.
        UnserializableError: The payload is no JSON value.
    """
    return ToolConfirmation(hint=request.hint, **await _confirmed(tool, arguments, request, context.agent_name))


async def answer_requests(run: AgentRun, waiting: Sequence[tuple[str, types.FunctionCall]]) -> types.Content | None:
    """Have a person answer what a run ended over: a confirmation that a callback or a node asks for, or a node's question.

    Args:
        run: The agent run.
        waiting: The calls that wait, each with the agent that made it. Those of long-running tools are left.

    Returns:
        The message with which the SDK goes on; `None` if nothing waits for a person.

    Raises:
        ApprovalPendingError: There is nobody to ask.
    """
    asked = [(agent, call) for agent, call in waiting if call.name in (CONFIRMATION, INPUT)]
    if not asked:
        return None
    answers = await asyncio.gather(*(_answer(run, agent, call) for agent, call in asked))
    parts = [
        types.Part(function_response=types.FunctionResponse(id=call.id, name=call.name, response=answer))
        for (_, call), answer in zip(asked, answers, strict=True)
    ]
    return types.Content(role="user", parts=parts)


async def _answer(run: AgentRun, agent: str, call: types.FunctionCall) -> dict[str, Any]:
    given = call.args or {}
    if call.name == CONFIRMATION:
        original, asked = given["originalFunctionCall"], given.get("toolConfirmation") or {}
        return await _confirmed(original["name"], original.get("args") or {}, ToolConfirmation(**asked), agent)
    shown = given.get("payload")
    if str(call.id).startswith(_NODE_ASKS) and isinstance(shown, Mapping):
        request = ToolConfirmation(hint=given.get("message") or "", payload=shown.get("confirmation_payload"))
        return await _confirmed(str(shown["tool_name"]), shown.get("args") or {}, request, agent)
    question = {"message": given.get("message"), "payload": shown, "answer": given.get("response_schema")}
    said = await ask_person(
        f"question of {agent or run.name}",
        jsonable({key: value for key, value in question.items() if value is not None}),
    )
    try:
        value = json.loads(said)
    except ValueError:
        value = said
    return value if isinstance(value, dict) else {"result": value}


async def _confirmed(tool: str, arguments: Mapping[str, Any], request: ToolConfirmation, agent: str) -> dict[str, Any]:
    payload = _payload(request)
    decision = await _decide(_item(tool, arguments, payload), request, agent)
    answer: dict[str, Any] = {"confirmed": decision.approved}
    if payload is not None:
        answer["payload"] = cast("dict[str, JSON]", decision.arguments)["payload"]  # what it became, if it was changed
    return answer


async def _decide(item: ApprovalItem, request: ToolConfirmation, agent: str) -> ApprovalDecision:
    prompt = "" if _TO_A_CLIENT in request.hint else request.hint
    check: Callable[[JSON], JSON] | None = None
    if request.payload is not None:
        asked = cast("dict[str, JSON]", item.arguments)
        prompt = (
            f"{prompt or 'May this be done?'}\nA JSON object in place of `approve` is the payload that the tool gets."
        )

        def check(edited: JSON) -> JSON:
            return {**asked, "payload": edited}

    approval = sdk_approval(prompt=prompt, edit=check is not None)

    def ask() -> Any:
        return decide_call(item.action, item.arguments, approval, agent=agent, check=check)

    return cast(ApprovalDecision, await on_run_loop(ask))


def _item(tool: str, arguments: Mapping[str, Any], payload: JSON = None) -> ApprovalItem:
    return ApprovalItem.of(tool, dict(arguments) if payload is None else {"arguments": arguments, "payload": payload})


def would_run(tool: BaseTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a call would run with, as a person is shown it: defaults included.

    Args:
        tool: The tool.
        arguments: What the model said.
    """
    ours = getattr(tool, "__agent_tool__", None)
    if ours is not None:
        try:
            return dict(ours.schema.dump(ours.schema.validate(dict(arguments))))
        except ToolArgumentError:
            return dict(arguments)  # the model is told when it runs
    if not isinstance(tool, FunctionTool):
        return dict(arguments)
    defaults: dict[str, Any] = {}
    for name, parameter in inspect.signature(tool.func).parameters.items():
        if name in arguments or parameter.default is parameter.empty or name == tool._context_param_name:
            continue
        try:
            defaults[name] = jsonable(parameter.default)
        except UnserializableError:
            defaults[name] = repr(parameter.default)
    return {**defaults, **arguments}


def _payload(request: ToolConfirmation) -> JSON:
    return None if request.payload is None else jsonable(request.model_dump(mode="json")["payload"])


def _was_asked(run: AgentRun, tool: BaseTool, arguments: Mapping[str, Any], context: ToolContext) -> bool:
    """Whether a person was asked about this very call by an attempt in which it needed a confirmation.

    A tool's own rule may say something else now; what was refused does not run because of that.
    """
    may_ask = bool(getattr(tool, "_require_confirmation", False))  # the SDK's tools that have a rule, and ours
    if not may_ask or not run.recorder.resumed or context.tool_confirmation is not None:
        return False
    return _decided(run, _item(tool.name, would_run(tool, arguments)))


def _decided(run: AgentRun, item: ApprovalItem) -> bool:
    return run.recorder.on_record("approval", {"action": item.action, "arguments": item.arguments})


def _refusal(decision: ApprovalDecision) -> str:
    return f"{_REJECTED} {decision.told}"
