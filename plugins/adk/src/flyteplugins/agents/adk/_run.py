"""`run_agent`: the SDK's own runner, inside an agent run."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from flyteplugins.agents.core import (
    AgentError,
    AgentResult,
    AgentRun,
    Approval,
    Budget,
    EventSink,
    OnToolError,
    Retention,
    RunMemory,
    agent_run,
    check_arguments,
    check_sdk_approval,
    run_coro_sync,
    with_pending,
)

from ._options import AgentOptions, RunOptions

if TYPE_CHECKING:
    from google.adk.agents.llm_agent import InstructionProvider
    from google.adk.agents.run_config import RunConfig
    from google.adk.artifacts import BaseArtifactService
    from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
    from google.adk.memory import BaseMemoryService
    from google.adk.models import BaseLlm
    from google.adk.plugins import BasePlugin
    from google.adk.sessions import BaseSessionService
    from google.genai import types

    from ._agent import Built
    from ._outcome import Outcome

    Input = str | types.Content | Sequence[str | types.Part]

__all__ = ["run_agent", "run_agent_sync"]

OutputT = TypeVar("OutputT")

APP_NAME = "flyte-agent"
USER_ID = "flyte-user"


@overload
async def run_agent(input: Input, *, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]) -> str: ...
@overload
async def run_agent(
    input: Input, *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
async def run_agent(
    input: Input, *, output_type: type[OutputT], full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> OutputT: ...
@overload
async def run_agent(
    input: Input, *, output_type: type[OutputT], full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[OutputT]: ...
@overload
async def run_agent(
    input: Input, *, output_type: Any, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> Any: ...
@overload
async def run_agent(
    input: Input, *, output_type: Any, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[Any]: ...
@overload
async def run_agent(
    input: Input, *, agent: Any, full_result: Literal[False] = ..., **options: Unpack[RunOptions]
) -> Any: ...
@overload
async def run_agent(
    input: Input, *, agent: Any, full_result: Literal[True], **options: Unpack[RunOptions]
) -> AgentResult[Any]: ...
@with_pending
async def run_agent(
    input: Input,
    *,
    agent: Any = None,
    tools: Sequence[Any] = (),
    model: str | BaseLlm | None = None,
    instructions: str | InstructionProvider | None = None,
    name: str | None = None,
    output_type: Any = None,
    durable: bool = True,
    observability: bool | Literal["structure"] = True,
    memory_key: str | None = None,
    memory_required: bool = False,
    memory_retention: Retention | None = None,
    budget: Budget | None = None,
    on_event: EventSink | None = None,
    on_tool_error: OnToolError = "model",
    max_concurrent_tools: int | None = None,
    approval: Approval | None = None,
    full_result: bool = False,
    run_config: RunConfig | None = None,
    max_llm_calls: int | None = None,
    streaming: bool | None = None,
    state: Mapping[str, Any] | None = None,
    plugins: Sequence[BasePlugin] = (),
    session_service: BaseSessionService | None = None,
    session_id: str | None = None,
    artifact_service: BaseArtifactService | None = None,
    memory_service: BaseMemoryService | None = None,
    credential_service: BaseCredentialService | None = None,
    app_name: str = APP_NAME,
    user_id: str = USER_ID,
    **agent_options: Any,
) -> Any:
    """Run an agent of the Agent Development Kit, durably where a Flyte task runs.

    Inside an `@env.task` every model turn and every tool call is recorded, of whatever agent in the tree. On a retry, after a
    crash and in another process, what is on record is not asked or run again. Outside of a task the SDK runs as it would by
    itself.

    Args:
        input: What the user says: text, a message of the SDK's, or a list of texts and parts.
        agent: An agent of the SDK's with its tree, a workflow, or an `App` with its plugins. It is not changed. Excludes what an
            agent is built from.
        tools: `tool`s, `@env.task` functions, plain callables, the SDK's own tools, toolsets and agents.
        model: A model's name, or a model of the SDK's; `gemini-3.5-flash` by default.
        instructions: The system text, or a function of the SDK's context that gives it. `{name}` in the text is the state's.
        name: The agent's name, which is part of the agent run's identity; `assistant` by default.
        output_type: The type of the answer; text by default. It becomes the agent's `output_schema`.
        durable: Whether turns, inline tools and memory reads are recorded. Task tools are, in any case.
        observability: Whether there is a report; with `"structure"`, without contents.
        memory_key: One path segment; continues the session of that key, with its state, and adds this run's events to it.
        memory_required: Whether it is an error if there is no place for the memory; else the run goes on without.
        memory_retention: What the memory does not keep: runs over a number or an age. It is removed for good.
        budget: What the run may use: turns, tool calls, tokens, seconds, cost, equal calls. No limit by default.
        on_event: Called with each event as it happens; a plain or a coroutine function.
        on_tool_error: `"model"` tells a tool's exception to the model, unless a callback of the agent's or of a plugin's answers
            it; `"raise"` fails the run.
        max_concurrent_tools: How many tool calls may run at once; no limit by default.
        approval: How a person is asked by the SDK's `require_confirmation`, `request_confirmation` and `RequestInput`: prompt,
            deadline and its outcome, reminder. For ever by default. A tool's `requires_approval` has its own.
        full_result: Whether to return an `AgentResult` with usage, turns, tool calls, pending calls and the SDK's events.
        run_config: The SDK's run configuration.
        max_llm_calls: How many turns the SDK allows; the run configuration's by default.
        streaming: Whether turns are streamed (`StreamingMode.SSE`), so that `on_event` gets the text as it arrives; what
            `run_config` says if there is one, else if there is an `on_event`, by default.
        state: Changes to the session's state before the run.
        plugins: Plugins of the SDK's for this run, beside those of an app.
        session_service: Whose session is gone on with, in place of a memory: a `FlyteSessionService`, or any of the SDK's. It is
            read once, and gets the run's events when the run has its answer.
        session_id: Which session of that service; it is made if there is none. One by a name of ours by default.
        artifact_service: Where artifacts are kept. What is saved in memory is kept with the run, for its next attempt.
        memory_service: The SDK's long-term memory.
        credential_service: The SDK's credentials.
        app_name: The app's name for services, where `agent` is no app.
        user_id: The user's id for services.
        agent_options: Further fields of `LlmAgent`: `sub_agents`, `planner`, `code_executor`, `generate_content_config`, ...

    Returns:
        The final text without thoughts, an instance of `output_type` or of the answering agent's `output_schema`, or an
        `AgentResult`.

    Raises:
        AgentError: In a task: the run failed in a way that no retry would change (a `flyte.errors.NonRecoverableError`).
            The SDK's exception is its `__cause__`. Other exceptions of the SDK pass, and Flyte's retries apply. Also,
            anywhere: the model's name resolves to no model, a tool waits for an answer and `full_result` is not given.
        BudgetExceededError: The run went over its budget; it carries the messages so far.
        ModelResponseError: The model's last response was an error, and not an answer.
        ApprovalPendingError: A person has to be asked, and there is no terminal to ask at; with `full_result` the result says so.
        NotImplementedError: Live mode is asked for.
        ValueError: Arguments exclude each other, or `memory_key` is not one path segment.
        TypeError: A tool is neither a task, a callable nor one of the SDK's, or an option is unknown.
    """
    check_arguments(
        input=input,
        model=model,
        instructions=instructions,
        name=name,
        durable=durable,
        full_result=full_result,
        memory_required=memory_required,
        memory_retention=memory_retention,
    )
    if session_service is not None and memory_key is not None:
        raise ValueError(
            "run_agent was given memory_key and session_service, which both keep the session. Give one of them."
        )
    if session_id is not None and session_service is None:
        raise ValueError(
            f"run_agent was given session_id={session_id!r} and no session_service that has it. Give both."
        )
    from google.adk.runners import Runner

    from ._agent import build_app, check_durable, parse_output, user_content
    from ._artifacts import restore_artifacts
    from ._errors import classify
    from ._loop import RUN_LOOP
    from ._model import RunModels, use_models
    from ._request import content_values
    from ._seams import install
    from ._session import SDK, SESSION, RunSessions, dump_events, import_v0, repair_events
    from ._user_session import UserSession

    message = user_content(input)
    built = build_app(
        agent=agent,
        tools=tools,
        model=model,
        instructions=instructions,
        name=name,
        output_type=output_type,
        plugins=plugins,
        app_name=app_name,
        options=agent_options,
    )
    config = _run_config(run_config, max_llm_calls=max_llm_calls, streaming=streaming, listened=on_event is not None)
    install()
    session = session_id or SESSION
    said: object = input if isinstance(input, str) else content_values([message])
    if session_service is not None:
        said = {"said": said, "session": [built.app.name, user_id, session]}
    async with agent_run(
        framework=SDK,
        name=built.name,
        input=said if not state else {"said": said, "state": dict(state)},
        memory_key=memory_key,
        configuration=built.configuration,
        classify=classify,
        durable=durable,
        observability=observability,
        budget=budget,
        on_event=on_event,
        on_tool_error=on_tool_error,
        max_concurrent_tools=max_concurrent_tools,
        approval=check_sdk_approval(approval),
    ) as run:
        if run.recorder.durable:
            check_durable(built.root)
        memory = await RunMemory.open(
            run,
            memory_key,
            sdk=SDK,
            required=memory_required,
            repair=repair_events,
            import_v0=import_v0,
            retention=memory_retention,
        )
        sessions = RunSessions()
        app = built.app.model_copy(update={"plugins": list(run.instrumented(built.app.plugins))})
        runner = Runner(
            app=app,
            session_service=sessions,
            artifact_service=artifact_service,
            memory_service=memory_service,
            credential_service=credential_service,
        )
        users = None
        if session_service is None:
            await sessions.begin(memory, app_name=runner.app_name, user_id=user_id)
        else:
            place = {"app_name": runner.app_name, "user_id": user_id, "session_id": session}
            users = await UserSession.open(run, session_service, **place, required=memory_required)
            await sessions.go_on(users.events, users.state, **place)
        await restore_artifacts(run, artifact_service)
        models = RunModels()
        token = RUN_LOOP.set(asyncio.get_running_loop())
        try:
            with use_models(models):
                outcome = await _consume(
                    run,
                    runner,
                    {
                        "user_id": user_id,
                        "session_id": session,
                        "new_message": message.model_copy(deep=True),
                        "state_delta": dict(state) if state else None,
                        "run_config": config,
                    },
                    built,
                )
        finally:
            RUN_LOOP.reset(token)
        if outcome.error is not None:
            _raise_response(outcome, models)
        if outcome.waiting and not full_result:
            raise AgentError(
                f"The agent {built.name} waits for {', '.join(outcome.pending)}. That is no answer: use "
                "full_result=True, whose result says what is pending."
            )
        output = parse_output(built, outcome.text, outcome.author) if not outcome.waiting else outcome.text
        if memory.store is not None:
            await memory.commit(dump_events(sessions.new_events()))
        if users is not None:
            await users.commit(run, sessions.new_events())
        await run.finish(outcome.text)
        if not full_result:
            return output
        result = run.result(output, outcome.text, outcome.events)
        return dataclasses.replace(result, pending=outcome.pending) if outcome.waiting else result


async def _consume(run: AgentRun, runner: Any, arguments: Mapping[str, Any], built: Built) -> Outcome:
    """Run the SDK's loop to its end, and on from where it stopped for a person."""
    from ._approvals import answer_requests
    from ._outcome import Outcome

    outcome = Outcome()
    async with _closed_afterwards(runner, built.root):
        call = run.wrapped_call(runner.run_async)
        while True:
            events = call(**arguments)
            async with contextlib.aclosing(events):
                async for event in events:
                    outcome.see(event)
            answer = await answer_requests(run, list(outcome.waiting.values()))
            if answer is None:
                return outcome
            outcome.answered(answer)
            arguments = {**arguments, "new_message": answer, "state_delta": None}


_RUNNING: Counter[int] = Counter()
"""How many agent runs of this process have an agent, by its id."""


@contextlib.asynccontextmanager
async def _closed_afterwards(runner: Any, root: object) -> AsyncIterator[None]:
    """Close what the agent's toolsets opened, once no other run of this process has the same agent."""
    _RUNNING[id(root)] += 1
    try:
        yield
    finally:
        _RUNNING[id(root)] -= 1
        if not _RUNNING[id(root)]:
            del _RUNNING[id(root)]
            await runner.close()


def _run_config(
    given: RunConfig | None, *, max_llm_calls: int | None, streaming: bool | None, listened: bool
) -> RunConfig:
    """The SDK's run configuration: the caller's, which is not changed, with what `run_agent` was given."""
    from google.adk.agents._streaming_mode import StreamingMode
    from google.adk.agents.run_config import RunConfig

    config = RunConfig() if given is None else given.model_copy()
    if config.streaming_mode == StreamingMode.BIDI or config.support_cfc:
        asked = "support_cfc" if config.support_cfc else "StreamingMode.BIDI"
        raise NotImplementedError(
            f"run_config asks for the live mode ({asked}), in which turns are no requests and cannot be recorded. Use "
            "StreamingMode.SSE or NONE here, and run live agents with the SDK's Runner.run_live outside of run_agent."
        )
    if streaming is None and given is None:
        streaming = listened
    if streaming is not None:
        config.streaming_mode = StreamingMode.SSE if streaming else StreamingMode.NONE
    if max_llm_calls is not None:
        config.max_llm_calls = max_llm_calls
    return config


def _raise_response(outcome: Outcome, models: Any) -> None:
    """Raise what the last event says, as the error that the model's response was."""
    from ._model_error import ModelResponseError

    assert outcome.error is not None
    code = str(getattr(outcome.error.error_code, "value", outcome.error.error_code))
    for error in reversed(models.errors):
        if error.code == code:
            raise error
    raise ModelResponseError(
        code, outcome.error.error_message or "", [outcome.error.model_dump(mode="json", exclude_none=True)]
    )


@overload
def run_agent_sync(input: Input, *, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]) -> str: ...
@overload
def run_agent_sync(
    input: Input, *, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[str]: ...
@overload
def run_agent_sync(
    input: Input, *, output_type: type[OutputT], full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> OutputT: ...
@overload
def run_agent_sync(
    input: Input, *, output_type: type[OutputT], full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[OutputT]: ...
@overload
def run_agent_sync(
    input: Input, *, output_type: Any, full_result: Literal[False] = ..., **options: Unpack[AgentOptions]
) -> Any: ...
@overload
def run_agent_sync(
    input: Input, *, output_type: Any, full_result: Literal[True], **options: Unpack[AgentOptions]
) -> AgentResult[Any]: ...
@overload
def run_agent_sync(
    input: Input, *, agent: Any, full_result: Literal[False] = ..., **options: Unpack[RunOptions]
) -> Any: ...
@overload
def run_agent_sync(
    input: Input, *, agent: Any, full_result: Literal[True], **options: Unpack[RunOptions]
) -> AgentResult[Any]: ...
def run_agent_sync(input: Input, **options: Any) -> Any:
    """Run an agent from a sync task: `run_agent` with the same arguments, and the same result.

    Args:
        input: What the user says: text, a message of the SDK's, or a list of texts and parts.
        options: The keywords of `run_agent`.

    Returns:
        What `run_agent` returns.

    Raises:
        RuntimeError: This thread runs an event loop, which the wait would block. Use `await run_agent(...)` there.
    """
    return run_coro_sync(run_agent(input, **options))


run_agent_sync.__signature__ = inspect.signature(run_agent)  # type: ignore[attr-defined]
