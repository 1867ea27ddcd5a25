"""Conversations that the server keeps: answers that are lost, writers that come in between, and what is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import flyte
import flyte.errors
import httpx2
import pytest
from mistralai.client import Mistral
from mistralai.client.utils import BackoffStrategy, RetryConfig

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import AgentError, Event, MemoryNotice
from flyteplugins.agents.mistral import run_agent

RunTask = Callable[..., Any]

QUICKLY = RetryConfig("backoff", BackoffStrategy(1, 10, 1, 30_000, jitter_ms=0), retry_connection_errors=True)
NEVER = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), retry_connection_errors=False)

EVERY_MODE = pytest.mark.parametrize(
    ("streaming", "server_state"),
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["whole", "streamed", "whole, server state", "streamed, server state"],
)

env = flyte.TaskEnvironment("state")


def note(text: str) -> str:
    """Write something down."""
    return f"noted {text}"


def three_turns(server: ModelServer) -> None:
    server.script(
        "Note it",
        Reply(calls=(call("note", text="a"), call("note", text="b"))),
        Reply(calls=(call("note", text="c"),)),
        lambda conversation: Reply(" ".join(result.text for result in conversation.results)),
    )


ANSWER = "noted a noted b noted c"


@pytest.fixture
def server(model_env: ModelServer) -> Mistral:
    return Mistral(api_key="k", server_url=model_env.mistral_server_url)


async def history(server: Mistral, conversation_id: str) -> list[str]:
    found = await server.beta.conversations.get_history_async(conversation_id=conversation_id)
    return [str(entry.type) for entry in found.entries]


FULL = [
    "message.input",
    "function.call",
    "function.call",
    "function.result",
    "function.result",
    "function.call",
    "function.result",
    "message.output",
]


@EVERY_MODE
@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize("retries", [QUICKLY, NEVER], ids=["in place", "next attempt"])
async def test_a_response_that_is_lost_changes_nothing_of_the_answer(
    model_env: ModelServer,
    server: Mistral,
    run_task: RunTask,
    turn: int,
    streaming: bool,
    server_state: bool,
    retries: RetryConfig,
) -> None:
    """The request was applied, and the connection was reset in place of its answer. The server is strict."""
    three_turns(model_env)
    model_env.fault(Fault.lost(), turn=turn)
    ids: list[str] = []

    @env.task(retries=2)
    async def ask() -> str:
        result = await run_agent(
            "Note it",
            tools=[note],
            streaming=streaming,
            server_state=server_state,
            retries=retries,
            full_result=True,
        )
        ids.append(result.native.conversation_id)
        return str(result.output)

    assert await run_task(ask) == ANSWER
    asked = model_env.journal.per_turn(user="Note it")
    found_in_history = server_state and turn > 1
    assert asked == {1: 1, 2: 1, 3: 1} | ({} if found_in_history else {turn: 2})
    if server_state:
        assert await history(server, ids[-1]) == FULL


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_that_is_being_updated_is_waited_for(model_env: ModelServer, streaming: bool) -> None:
    three_turns(model_env)
    model_env.fault(Fault.error(409, times=2), turn=2)
    answer = await run_agent("Note it", tools=[note], server_state=True, streaming=streaming, retries=QUICKLY)
    assert answer == ANSWER
    assert model_env.journal.per_turn(user="Note it") == {1: 1, 2: 3, 3: 1}


def _note() -> Any:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return [{"type": "function", "function": {"name": "note", "parameters": parameters}}]


async def test_somebody_else_in_between_makes_the_run_branch(model_env: ModelServer, server: Mistral) -> None:
    """Another writer answers the run's own call before the run does; the strict server then refuses the run's result."""
    three_turns(model_env)
    ids: list[str] = []
    meddled: list[str] = []

    async def note(text: str) -> str:
        """Write something down."""
        if text == "c" and not meddled:
            meddled.append(text)
            listed: Any = await server.beta.conversations.list_async()
            [conversation] = [one.root if hasattr(one, "root") else one for one in listed]
            ids.append(conversation.id)
            kept = await server.beta.conversations.get_history_async(conversation_id=conversation.id)
            call_id = kept.entries[-1].tool_call_id  # type: ignore[union-attr]  # it is the call
            results: Any = [{"type": "function.result", "tool_call_id": call_id, "result": "from somebody else"}]
            await server.beta.conversations.append_async(conversation_id=conversation.id, inputs=results)
        return f"noted {text}"

    result = await run_agent("Note it", tools=[note], server_state=True, retries=QUICKLY, full_result=True)
    assert result.text == ANSWER
    assert result.native.conversation_id != ids[0]
    assert await history(server, ids[0]) == FULL
    assert await history(server, result.native.conversation_id) == FULL


async def test_a_conversation_that_is_deleted_in_the_middle_starts_anew_with_a_warning(
    model_env: ModelServer, server: Mistral
) -> None:
    three_turns(model_env)
    notices: list[MemoryNotice] = []

    async def note(text: str) -> str:
        """Write something down."""
        if text == "c":
            listed: Any = await server.beta.conversations.list_async()
            for one in listed:
                await server.beta.conversations.delete_async(conversation_id=getattr(one, "root", one).id)
        return f"noted {text}"

    def watch(event: Event) -> None:
        if isinstance(event, MemoryNotice):
            notices.append(event)

    assert await run_agent("Note it", tools=[note], server_state=True, on_event=watch) == ANSWER
    assert "is not on the server any more. A new one starts" in notices[0].message
    assert model_env.journal.per_turn(user="Note it") == {1: 1, 2: 1, 3: 1}  # a 404 is no turn


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_a_conversation_of_the_callers_goes_on(
    model_env: ModelServer, server: Mistral, run_task: RunTask, streaming: bool
) -> None:
    three_turns(model_env)
    model_env.script("My name is", Reply("Hello."))
    started = await server.beta.conversations.start_async(
        model="mistral-large-latest", inputs="My name is Ada", tools=_note()
    )
    model_env.fault(Fault.lost(), turn=1, user="Note it")

    @env.task(retries=1)
    async def ask() -> str:
        return str(
            await run_agent(
                "Note it", tools=[note], conversation_id=started.conversation_id, streaming=streaming, retries=NEVER
            )
        )

    assert await run_task(ask) == await run_task(ask) == ANSWER
    assert model_env.journal.per_turn(user="Note it") == {1: 1, 2: 1, 3: 1}
    assert await history(server, started.conversation_id) == ["message.input", "message.output", *FULL]


async def test_a_conversation_of_the_callers_that_is_not_there_is_an_error(
    model_env: ModelServer, run_task: RunTask
) -> None:
    @env.task(retries=2)
    async def ask() -> str:
        return str(await run_agent("Hi", conversation_id="conv_nowhere"))

    with pytest.raises(flyte.errors.RuntimeUserError, match="conv_nowhere is not on the server"):
        await run_task(ask)
    with pytest.raises(AgentError, match="conv_nowhere is not on the server"):
        await run_agent("Hi", conversation_id="conv_nowhere")
    assert model_env.journal.count() == 0


async def test_runs_with_server_state_do_not_mix(model_env: ModelServer, run_task: RunTask) -> None:
    three_turns(model_env)

    @env.task
    async def ask() -> list[str]:
        runs = (run_agent("Note it", tools=[note], server_state=True) for _ in range(3))
        return [str(answer) for answer in await asyncio.gather(*runs)]

    assert await run_task(ask) == await run_task(ask) == [ANSWER] * 3
    assert model_env.journal.per_turn(user="Note it") == {1: 3, 2: 3, 3: 3}


class SlowServer:
    """A server that answers an append with 500, and shows the answer in the history later, or never.

    Args:
        looks: After how many looks at the history the answer is there.
    """

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.asked: list[str] = []

    def client(self) -> Mistral:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self.respond))
        return Mistral(api_key="k", async_client=http)

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        said: dict[str, Any] = {"type": "message.input", "id": "e1", "role": "user", "content": "Note it"}
        called = {
            "type": "function.call",
            "id": "e2",
            "tool_call_id": "c1",
            "name": "note",
            "arguments": '{"text":"a"}',
        }
        result = {"type": "function.result", "id": "e3", "tool_call_id": "c1", "result": "noted a"}
        answer = {"type": "message.output", "id": "e4", "role": "assistant", "content": "done"}
        path = request.url.path.removeprefix("/v1/conversations").removeprefix("/conv_1")
        self.asked.append(f"{request.method} {path or '-'}" if request.url.path != "/v1/conversations" else "start")
        if self.asked[-1] == "start":
            return self.answer("conv_1", called)
        if path == "/history":
            self.looks -= 1
            entries = [said, called, result, *([answer] if self.looks < 1 else [])]
            return httpx2.Response(200, json={"conversation_id": "conv_1", "entries": entries})
        if path == "/restart":
            return self.answer("conv_2", answer)
        return httpx2.Response(500, json={"message": "try later"})

    @staticmethod
    def answer(conversation_id: str, output: dict[str, Any]) -> httpx2.Response:
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return httpx2.Response(200, json={"conversation_id": conversation_id, "outputs": [output], "usage": usage})


async def test_an_answer_that_is_still_being_made_is_waited_for() -> None:
    server = SlowServer(looks=3)
    answer = await run_agent("Note it", tools=[note], server_state=True, client=server.client(), retries=QUICKLY)
    assert answer == "done"
    assert server.asked == ["start", "POST -", "GET /history", "GET /history", "GET /history"]


async def test_an_answer_that_never_comes_is_asked_for_in_a_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyteplugins.agents.mistral._server_state.PATIENCE", 0.0)
    server = SlowServer(looks=1000)
    result = await run_agent(
        "Note it", tools=[note], server_state=True, client=server.client(), retries=QUICKLY, full_result=True
    )
    assert result.text == "done"
    assert server.asked == ["start", "POST -", "GET /history", "POST /restart"]
    assert result.native.conversation_id == "conv_2"
