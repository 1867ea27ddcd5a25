"""One run of the SDK's own runner: what it starts from, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from mistralai.client import Mistral
from mistralai.client.beta_agents import BetaAgents
from mistralai.client.conversations import Conversations
from mistralai.client.models import FunctionTool
from mistralai.client.sdkconfiguration import SDKConfiguration
from mistralai.client.types import UNSET
from mistralai.client.utils import RetryConfig
from mistralai.extra.exceptions import DeferredToolCallResponse
from mistralai.extra.run.result import RunResult

from flyteplugins.agents.core import JSON, AgentError, AgentRun, JsonCodec

from ._agent import BuiltAgent
from ._backoff import NO_RETRIES, ask_again
from ._deferred import confirmed_calls
from ._entries import Entry
from ._function_tools import AgentContext, LocalTool, McpTool
from ._model import RecordedConversations
from ._output import final_text
from ._request import Request
from ._server_state import ServerConversation, read_head, tell_gone
from ._session import Transcript, marker, read_transcript

__all__ = ["Turns", "take_turns"]


@dataclass(frozen=True)
class Turns:
    """What came of a run.

    Attributes:
        output: The answer: text, or an instance of the output type.
        text: The last message's text.
        native: The SDK's own result.
        to_remember: What a memory gets.
    """

    output: Any
    text: str
    native: RunResult
    to_remember: Sequence[JSON]


@dataclass(frozen=True)
class _Connection:
    """How requests of one run are made."""

    run: AgentRun
    configuration: SDKConfiguration
    client: Mistral
    retries: RetryConfig | None

    def conversations(self) -> Conversations:
        return Conversations(self.configuration, parent_ref=self.client)


async def take_turns(
    run: AgentRun,
    built: BuiltAgent,
    entries: Sequence[Entry],
    *,
    answers: Sequence[DeferredToolCallResponse],
    configuration: SDKConfiguration,
    kept_alive: Mistral,
    remembered: Sequence[JSON],
    streaming: bool,
    server_state: bool,
    max_turns: int | None,
    metadata: Mapping[str, Any] | None,
    timeout_ms: int | None,
    retries: RetryConfig | None,
    http_headers: Mapping[str, str] | None,
) -> Turns:
    """Run the agent until it has answered.

    Args:
        run: The agent run.
        built: What it is made with.
        entries: What the user says.
        answers: What the caller answers to calls that an earlier run left waiting.
        configuration: How requests are made; the run's own.
        kept_alive: The client that the configuration came from.
        remembered: What the memory holds.
        streaming: Whether turns are streamed.
        server_state: Whether the server keeps the conversation.
        max_turns: How many turns the run may take.
        metadata: What the server notes on a conversation that it keeps.
        timeout_ms: How long one request may take.
        retries: How requests are repeated; the client's own choice where it has made one.
        http_headers: More headers.

    Raises:
        AgentError: The run ended without an answer.
        Exception: What the SDK raises.
    """
    own = configuration.retry_config
    connection = _Connection(
        run,
        configuration,
        kept_alive,
        retries if retries is not None else own if isinstance(own, RetryConfig) else None,
    )
    request = Request(
        model=built.model,
        agent_id=built.agent_id,
        agent_version=built.agent_version,
        instructions=built.instructions,
        completion_args=built.settings(),
        guardrails=built.guardrails,
        metadata=metadata if server_state else None,
        http_headers=http_headers,
        timeout_ms=timeout_ms,
        called=built.model or built.agent_id or "",
    )
    async with contextlib.AsyncExitStack() as stack:
        tools = dict(built.tools)
        for mcp in built.servers:
            await stack.enter_async_context(mcp)
            for declaration in await mcp.tools(run):
                name = declaration.function.name
                if name in tools:
                    raise ValueError(
                        f"The MCP server {mcp.name} has a tool {name!r}, and so has the agent. Rename the agent's."
                    )
                tools[name] = McpTool(declaration, mcp)
        request = await _with_tools(connection, request, built, tools)
        transcript = read_transcript(remembered, frozen=request.frozen())
        imported = await _imported(connection, request, transcript)
        transcript = replace(transcript, entries=[*imported, *transcript.entries])
        history, server = await _conversation(connection, request, built, transcript, server_state=server_state)
        conversations = RecordedConversations(
            configuration,
            run=run,
            request=request,
            history=history,
            server=server,
            max_turns=max_turns,
            retries=connection.retries,
            parent_ref=kept_alive,
        )
        context = AgentContext(
            run,
            tools,
            model=built.model,
            agent_id=built.agent_id,
            output_format=built.output.model if built.output is not None else None,
            waiting=conversations.waiting,
            confirmed=confirmed_calls(answers),
        )
        if answers:
            context.conversation_id = built.conversation_id  # the SDK hands confirmations to an append, not to a start
        native = await _run(conversations, context, [*entries, *answers], streaming=streaming)
    if server is not None:
        native.conversation_id = server.id
    text = final_text(conversations.added)
    if text is None:
        kinds = ", ".join(entry["type"] for entry in conversations.added) or "nothing"
        raise AgentError(f"The run ended without a message of the model's: the conversation got {kinds}.")
    to_remember = cast("list[JSON]", [*imported, *conversations.added])
    if server is not None and server.id is not None:
        everything = [*history, *conversations.added]
        to_remember.append(marker(everything, frozen=request.frozen(), conversation_id=server.id, last=server.after))
    output = built.output.read(text) if built.output is not None else text
    return Turns(output, text, native, to_remember)


async def _run(
    conversations: RecordedConversations,
    context: AgentContext,
    entries: Sequence[Entry | DeferredToolCallResponse],
    *,
    streaming: bool,
) -> RunResult:
    inputs = cast(Any, list(entries))
    if not streaming:
        return await conversations.run_async(run_ctx=context, inputs=inputs)
    result: RunResult | None = None
    async for item in await conversations.run_stream_async(run_ctx=context, inputs=inputs):
        result = item if isinstance(item, RunResult) else result
    assert result is not None  # it is what the runner yields last
    return result


async def _with_tools(
    connection: _Connection, request: Request, built: BuiltAgent, tools: Mapping[str, LocalTool | McpTool]
) -> Request:
    """Add the tools. Of an agent on the server, only those that it does not declare itself: it is read, and never changed."""
    declared: list[Any] = [*built.hosted, *(tool.declaration for tool in tools.values())]
    if built.agent_id is None:
        return replace(request, tools=declared)

    async def read() -> JSON:
        agents = BetaAgents(connection.configuration, parent_ref=connection.client)
        agent = await ask_again(
            lambda: agents.get_async(
                agent_id=cast(str, built.agent_id),
                agent_version=built.agent_version if built.agent_version is not None else UNSET,
                retries=NO_RETRIES,
                timeout_ms=request.timeout_ms,
                http_headers=request.http_headers,
            ),
            connection.retries,
        )
        there = [tool for tool in agent.tools or () if isinstance(tool, FunctionTool)]
        return {"model": agent.model, "functions": [tool.function.name for tool in there]}

    if not declared:
        return request
    recorded = await connection.run.recorder.record(
        "memory", {"agent": built.agent_id, "version": built.agent_version}, read, codec=JsonCodec()
    )
    agent = cast("dict[str, Any]", recorded.value)
    missing = [
        tool for tool in declared if not (isinstance(tool, FunctionTool) and tool.function.name in agent["functions"])
    ]
    return replace(request, tools=missing, called=agent["model"])


async def _conversation(
    connection: _Connection,
    request: Request,
    built: BuiltAgent,
    transcript: Transcript,
    *,
    server_state: bool,
) -> tuple[list[Entry], ServerConversation | None]:
    """What was said before, and the server's copy of it, where the server keeps the conversation."""
    run, retries = connection.run, connection.retries
    sdk = connection.conversations()
    if built.conversation_id is not None:
        head = await read_head(run, sdk, request, built.conversation_id, retries, entries=True)
        if not head.there:
            raise AgentError(
                f"The conversation {built.conversation_id} is not on the server. Check the id, or leave it out."
            )
        server = ServerConversation(
            run, sdk, request, retries, conversation_id=built.conversation_id, after=head.last, renewable=False
        )
        return list(head.entries), server
    history, kept = transcript.entries, transcript.kept
    if not server_state:
        return history, None
    if kept is not None:
        head = await read_head(run, sdk, request, kept.conversation_id, retries, entries=False)
        if head.there:
            server = ServerConversation(
                run,
                sdk,
                request,
                retries,
                conversation_id=kept.conversation_id,
                after=kept.last,
                moved=head.last != kept.last,
            )
            return history, server
        await tell_gone(run, kept.conversation_id)
    return history, ServerConversation(run, sdk, request, retries)


async def _imported(connection: _Connection, request: Request, transcript: Transcript) -> Sequence[Entry]:
    """The entries of a conversation on the server that stands for the whole transcript; they are remembered from now on."""
    if transcript.imported is None:
        return ()
    sdk = connection.conversations()
    head = await read_head(connection.run, sdk, request, transcript.imported, connection.retries, entries=True)
    if not head.there:
        await tell_gone(connection.run, transcript.imported)
    return head.entries
