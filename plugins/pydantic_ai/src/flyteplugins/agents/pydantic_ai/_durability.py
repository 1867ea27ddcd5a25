"""Pydantic AI's durable-execution surface, with core's recorder behind it.

The SDK hands every operation of a run that is not a pure function of its history to a capability: model requests, streamed or
not, continuations of suspended responses, compaction, tool discovery and tool calls of function, MCP and dynamic toolsets,
operations of other capabilities. `run_agent` adds this one to each run of an agent that happens inside of an agent run,
sub-agents' included, so that a pre-built agent needs no change.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from flyteplugins.agents.core import (
    JSON,
    AgentRun,
    JsonCodec,
    UnserializableError,
    canonical_json,
    current_run,
    render_result,
)
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities.abstract import WrapModelRequestHandler, WrapRunHandler, WrapToolExecuteHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    BoundDurableOperation,
    CallToolResult,
    CapabilityOperationParams,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    DynamicToolsetCallToolParams,
    EventStreamHandlerParams,
    ModelCancelSuspendedResponseParams,
    ModelCompactMessagesParams,
    ModelRequestParams,
    ResultCodec,
    ToolsetCallToolId,
    ToolsetCallToolParams,
    ToolsetGetToolsParams,
    WorkspaceCallParams,
    conversation_id_from_run_id,
    record_durable_unit,
    replay_scope,
)
from pydantic_ai.durable_exec._toolset import unwrap_tool_call_result, wrap_tool_call_result
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from ._approvals import decide_calls
from ._codec import dump_messages
from ._function_tools import record_call, told_to_the_model
from ._invoker import RECORDS_ITSELF
from ._model import LISTENED, PIECES, can_stream, record_turn, tell_deltas
from ._request import json_values, message_identity, model_identity, request_fields

__all__ = ["FlyteDurability"]

ParamsT = TypeVar("ParamsT")
WireT = TypeVar("WireT")
ResultT = TypeVar("ResultT")

_CONFIG_KEY = "flyte"

_REQUEST_MODEL: ContextVar[Model | None] = ContextVar("flyteplugins.agents.pydantic_ai.request_model", default=None)
"""The model of the request that is being bound to its operations."""

_RUNS: weakref.WeakKeyDictionary[AgentRun, dict[str, int]] = weakref.WeakKeyDictionary()
"""How many runs each agent has had in an agent run, by the agent's name."""


class FlyteDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes the operations of a run leaves of the agent run around it, and answers them from their records on a resume.

    Inside of `run_agent` and `durable_run` every run of an agent has one already. Where there is no agent run, or none that
    records, it changes nothing.

    Args:
        name: The name of the agent that runs; its own by default.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Flyte",
        durable_unit_noun="action",
        durable_container_noun="task",
        codec=JSON_CODEC,
        serialization_failure=lambda error: UnserializableError("the result", str(error)),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        tool_config_key=_CONFIG_KEY,
    )

    def __init__(self, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self._wrapped_toolsets: dict[int, tuple[AbstractToolset[Any], AbstractToolset[Any]]] = {}
        self._run_id: str | None = None

    # -- where it is at work

    @property
    def in_durable_context(self) -> bool:
        """Whether an agent run is on that records."""
        run = current_run()
        return run is not None and run.recorder.durable

    def get_default_run_id(self) -> str | None:
        """An id that is the same on every attempt."""
        run = current_run()
        if run is None or run.scope is None or not run.recorder.durable:
            return None
        if self._run_id is None:
            counts = _RUNS.setdefault(run, {})
            number = counts[self.name] = counts.get(self.name, -1) + 1
            seed = canonical_json([*run.scope.identity, run.recorder.number, self.name, number])
            self._run_id = str(uuid.UUID(bytes=hashlib.sha256(seed).digest()[:16], version=5))
        return self._run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """An id that is the same on every attempt."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Have a person decide about the calls that require approval, unless the caller takes them as an answer."""
        return await decide_calls(ctx, requests) if current_run() is not None else None

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Run the agent; what is replayed is not told to its telemetry again."""
        if not self.in_durable_context:
            return await handler()
        with replay_scope():
            return await super().wrap_run(ctx, handler=handler)

    # -- models: any instance will do, since operations run in this process

    def _bind_to_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> None:  # noqa: ARG002
        self._wrapped_toolsets = {}

    def _bind_models(self, agent: AbstractAgent[AgentDepsT, Any]) -> None:  # noqa: ARG002
        self._default_model_id = None
        self._models_by_id = {}

    def _model_id_for_request(self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext) -> str | None:  # noqa: ARG002
        return self._find_model_id(request_context.model)

    def _find_model_id(self, model: Model) -> str | None:
        for model_id, known in self._models_by_id.items():
            if known is model:
                return model_id
        model_id = f"{model.model_id}#{len(self._models_by_id)}"
        self._models_by_id[model_id] = model
        return model_id

    def _find_registered_model_id_for_hook(self, model: Model) -> str | None:
        return self._find_model_id(model)

    async def resolve_model_id(self, ctx: Any, *, model_id: str) -> Model | None:  # noqa: ARG002
        """Find a model that this run has used before; other names are the SDK's to resolve."""
        return self._models_by_id.get(model_id)

    async def _resolve_model_for_request(self, model_id: str | None, run_context: RunContext[AgentDepsT]) -> Model:
        if model_id is not None and model_id in self._models_by_id:
            return self._models_by_id[model_id]
        return await super()._resolve_model_for_request(model_id, run_context)

    async def _build_durable_model(self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext) -> Any:
        token = _REQUEST_MODEL.set(request_context.model)
        try:
            return await super()._build_durable_model(ctx, request_context)
        finally:
            _REQUEST_MODEL.reset(token)

    def _model_stream_event_handler(self) -> Any:
        return tell_deltas

    async def _model_request_operation(self, params: ModelRequestParams) -> ModelResponse:
        """Stream the request where somebody listens, though the SDK needs only the whole response."""
        if LISTENED.get() and can_stream(await self._resolve_model_for_request(params.model_id, params.run_context)):
            return await self._model_request_stream_operation(params)
        return await super()._model_request_operation(params)

    # -- toolsets: known by what they are, so that they need no id, and may come with the run

    def get_wrapper_toolset(self, toolset: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT] | None:
        """Replace the toolsets that call something by ones whose calls are leaves."""
        if not self.in_durable_context:
            return None
        return toolset.visit_and_replace(self._wrap)

    def _wrap(self, leaf: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        known = self._wrapped_toolsets.get(id(leaf))
        if known is None:
            wrapped: AbstractToolset[AgentDepsT] | None = self._wrap_leaf_toolset(leaf)
            if wrapped is None:  # none of the SDK's kinds; what an external one offers is not called here
                wrapped = leaf if isinstance(leaf, ExternalToolset) else _RecordedToolset(leaf, self)
            known = self._wrapped_toolsets[id(leaf)] = (leaf, wrapped)
        return known[1]

    def _build_mcp_toolset(self, toolset: Any) -> Any:
        wrapped = super()._build_mcp_toolset(toolset)
        if toolset.id is None:
            # What a run holds is found by id. Without one, each call would open a session of its own.
            wrapped._lifecycle = "enter-always"
        return wrapped

    def get_durable_operation_backend(self) -> FlyteBackend:
        """The recorder of the agent run."""
        return FlyteBackend(self.name, _REQUEST_MODEL.get())

    # -- where nothing is recorded, what happens is still told

    async def wrap_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Make the request a leaf, or only tell of it where nothing is recorded."""
        run = current_run()
        if run is None or run.recorder.durable:
            return await super().wrap_model_request(ctx, request_context=request_context, handler=handler)
        recorded = await record_turn(
            run,
            {"messages": dump_messages(request_context.messages)},
            lambda: handler(request_context),
            codec=_AnyCodec(),
            model=request_context.model,
            agent=self.name,
        )
        return recorded.value

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],  # noqa: ARG002
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Tell of a call that is not recorded; where it is, its toolset does both."""
        run = current_run()
        if run is None or _records_itself(tool_def) or (run.recorder.durable and not _opted_out(tool_def)):
            return await handler(args)
        recorded = await run.inline_tool(
            call.tool_name,
            _shown_arguments(args),
            lambda: told_to_the_model(run, call.tool_name, lambda: handler(args)),
            codec=_AnyCodec(),
            shown=render_result,
            call_id=call.tool_call_id,
            agent=self.name,
            durable=False,
        )
        return recorded.value


class FlyteBackend(DurableOperationBackend[dict[str, Any]]):
    """Dispatches operations to the agent run's recorder.

    Args:
        agent: The name of the agent that runs.
        model: The model of the operations that ask one.
    """

    def __init__(self, agent: str, model: Model | None) -> None:
        self.agent = agent
        self.model = model

    def bind(
        self, operation: DurableOperation[ParamsT, WireT, ResultT]
    ) -> BoundDurableOperation[ParamsT, WireT, ResultT]:
        """Return the operation's caller."""
        return _BoundOperation(operation, self.agent, self.model)

    def config_for_tool(
        self,
        operation: DurableOperation[ParamsT, WireT, ResultT],  # noqa: ARG002
        *,
        tool: object | None,
        tool_name: str,  # noqa: ARG002
    ) -> Any:
        """`False` for a tool whose metadata has `{"flyte": False}`: its calls are not recorded."""
        return False if isinstance(tool, ToolsetTool) and _opted_out(tool.tool_def) else {}

    def registrations(self) -> Sequence[Callable[..., object]]:
        """Nothing: operations run in the task's own process."""
        return ()


class _BoundOperation(Generic[ParamsT, WireT, ResultT]):
    """An operation that is a leaf.

    What a fresh operation returns has been through its record's form as well: a tool's result is the same kind of value for
    the agent on a first attempt and on a resume.
    """

    def __init__(self, operation: DurableOperation[ParamsT, WireT, ResultT], agent: str, model: Model | None) -> None:
        self._operation = operation
        self._agent = agent
        self._model = model

    @property
    def operation(self) -> DurableOperation[ParamsT, WireT, ResultT]:
        """The operation."""
        return self._operation

    async def __call__(self, params: ParamsT, *, config: object | None = None) -> ResultT:  # noqa: ARG002
        """Perform it, or answer it from its record."""
        run = current_run()
        if run is None or not run.recorder.durable or isinstance(params, EventStreamHandlerParams):
            return await self._operation.handler(params)
        result, replayed = await self._dispatch(run, params)
        record_durable_unit(executed=not replayed)
        return result

    async def _dispatch(self, run: AgentRun, params: ParamsT) -> tuple[ResultT, bool]:
        operation_id = self._operation.operation_id
        match params:
            case ModelRequestParams():
                assert self._model is not None
                return await self._turn(
                    run,
                    params,
                    request_fields(
                        model=self._model,
                        messages=params.messages,
                        settings=params.model_settings,
                        parameters=params.model_request_parameters,
                    ),
                )
            case ModelCompactMessagesParams():
                assert self._model is not None
                request = params.request_context
                fields = request_fields(
                    model=self._model,
                    messages=request.messages,
                    settings=request.model_settings,
                    parameters=request.model_request_parameters,
                )
                return await self._turn(run, params, fields | {"operation": "compact", "focus": params.instructions})
            case ModelCancelSuspendedResponseParams():
                assert self._model is not None
                fields = {
                    "operation": "cancel",
                    "model": model_identity(self._model),
                    "messages": message_identity([params.response]),
                }
                return await self._leaf(run, params, "cancel suspended response", fields)
            case ToolsetCallToolParams() | DynamicToolsetCallToolParams():
                arguments = json_values(params.tool_args, f"the arguments of {params.name}")
                if not isinstance(operation_id, ToolsetCallToolId):
                    return await self._leaf(
                        run, params, f"validate {params.name}", {"tool": params.name, "arguments": arguments}
                    )

                async def call(context: RunContext[Any]) -> JSON:
                    result = await self._operation.handler(cast(Any, dataclasses.replace(params, ctx=context)))
                    return cast(JSON, self._operation.result_codec.dump(result))

                payload, replayed = await record_call(
                    run, params.name, arguments, call, context=params.ctx, agent=self._agent
                )
                return self._operation.result_codec.load(payload), replayed
            case ToolsetGetToolsParams():
                # What a toolset offers may depend on anything in the context, of which the conversation and the step are what
                # two attempts have in common.
                context = params.ctx
                fields = {"step": context.run_step, "messages": message_identity(context.messages)}
                return await self._leaf(run, params, str(operation_id), fields, kind="tools")
            case CapabilityOperationParams():
                fields = {"arguments": json_values(params.arguments, str(operation_id))}
                return await self._leaf(run, params, str(operation_id), fields)
            case WorkspaceCallParams():
                fields = {"arguments": json_values(params.call, str(operation_id))}
                return await self._leaf(run, params, str(operation_id), fields)
        raise NotImplementedError(
            f"This version of pydantic-ai has an operation {operation_id} that flyteplugins-agents-pydantic-ai does not know, "
            "so it would not be recorded. Install a version that its requirements name."
        )

    async def _turn(self, run: AgentRun, params: ParamsT, fields: dict[str, object]) -> tuple[ResultT, bool]:
        assert self._model is not None
        codec = self._operation.result_codec
        pieces: list[str] = []

        async def call() -> ModelResponse:
            token = PIECES.set(pieces)
            try:
                return cast(ModelResponse, codec.load(codec.dump(await self._operation.handler(params))))
            finally:
                PIECES.reset(token)

        recorded = await record_turn(
            run,
            fields,
            call,
            codec=_TurnCodec(cast("ResultCodec[ModelResponse]", codec), pieces),
            model=self._model,
            agent=self._agent,
            pieces=pieces,
        )
        return cast(ResultT, recorded.value), recorded.replayed

    async def _leaf(
        self,
        run: AgentRun,
        params: ParamsT,
        label: str,
        fields: dict[str, object],
        kind: Literal["tool", "tools"] = "tool",
    ) -> tuple[ResultT, bool]:
        """Record something that is neither a turn nor a tool's call, and that nobody is told of."""
        codec = self._operation.result_codec

        async def call() -> JSON:
            return cast(JSON, codec.dump(await self._operation.handler(params)))

        recorded = await run.recorder.record(
            kind,
            {"operation": label, "agent": self._agent, **fields},
            call,
            codec=JsonCodec(),
            on_unknown=_again if kind == "tool" else None,
        )
        return codec.load(recorded.value), recorded.replayed


async def _again(_: object) -> None:
    """What an earlier attempt started and left without an outcome is done again."""


class _TurnCodec:
    """The SDK's codec of a response, as core wants it, with the pieces in which its text arrived.

    Args:
        codec: The SDK's codec.
        pieces: What `encode` keeps, and what `decode` fills; stays empty for a turn that was not streamed.
    """

    def __init__(self, codec: ResultCodec[ModelResponse], pieces: list[str]) -> None:
        self._codec = codec
        self._pieces = pieces

    def encode(self, value: ModelResponse) -> JSON:
        kept = cast(JSON, self._codec.dump(value))
        return {"response": kept, "pieces": list(self._pieces)} if self._pieces else kept

    def decode(self, payload: JSON) -> ModelResponse:
        if isinstance(payload, dict) and "response" in payload:
            self._pieces[:] = cast("list[str]", payload["pieces"])
            payload = payload["response"]
        return self._codec.load(payload)


class _AnyCodec:
    """For values that are never kept."""

    def encode(self, value: Any) -> JSON:
        raise NotImplementedError

    def decode(self, payload: JSON) -> Any:
        raise NotImplementedError


class _RecordedToolset(WrapperToolset[AgentDepsT]):
    """A toolset of the program's own class, whose calls are leaves.

    Args:
        wrapped: The toolset.
        durability: The capability that wraps it.
    """

    def __init__(self, wrapped: AbstractToolset[AgentDepsT], durability: FlyteDurability[AgentDepsT]) -> None:
        super().__init__(wrapped)
        self._durability = durability

    def visit_and_replace(
        self,
        visitor: Callable[[AbstractToolset[AgentDepsT]], AbstractToolset[AgentDepsT]],  # noqa: ARG002
    ) -> AbstractToolset[AgentDepsT]:
        """It has been wrapped already."""
        return self

    async def for_run(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """The toolset for one run."""
        return self._with(await self.wrapped.for_run(ctx))

    async def for_run_step(self, ctx: RunContext[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        """The toolset for one step."""
        return self._with(await self.wrapped.for_run_step(ctx))

    def _with(self, wrapped: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
        if wrapped is self.wrapped:
            return self
        replacement = copy.copy(self)
        replacement.wrapped = wrapped
        return replacement

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Call a tool, or answer the call from its record."""
        run = current_run()
        if run is None or not run.recorder.durable or _opted_out(tool.tool_def):
            return await self.wrapped.call_tool(name, tool_args, ctx, tool)

        async def call(context: RunContext[Any]) -> JSON:
            guarded = self._durability._durable_run_context(context)
            result = await wrap_tool_call_result(self.wrapped.call_tool(name, tool_args, guarded, tool))
            return cast(JSON, self._durability._encode(CallToolResult, result))

        arguments = json_values(tool_args, f"the arguments of {name}")
        payload, replayed = await record_call(run, name, arguments, call, context=ctx, agent=self._durability.name)
        record_durable_unit(executed=not replayed)
        return unwrap_tool_call_result(JSON_CODEC.load(CallToolResult, payload))


def _opted_out(tool_def: ToolDefinition) -> bool:
    """Whether calls of the tool are not to be made leaves here."""
    return (tool_def.metadata or {}).get(_CONFIG_KEY) is False


def _records_itself(tool_def: ToolDefinition) -> bool:
    metadata = tool_def.metadata or {}
    return all(metadata.get(name) == value for name, value in RECORDS_ITSELF.items())


def _shown_arguments(arguments: dict[str, Any]) -> JSON:
    try:
        return json_values(arguments, "arguments")
    except UnserializableError:
        return str(arguments)
