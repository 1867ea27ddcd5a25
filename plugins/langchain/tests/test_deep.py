"""Deep agents: sub-agents, files and backends in a durable run."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import pytest
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, FilesystemBackend, LocalShellBackend, StateBackend, StoreBackend
from deepagents.backends.protocol import BackendProtocol, ReadResult, WriteResult
from deepagents.middleware.summarization import SummarizationMiddleware
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage, message_to_dict
from langchain_openai import ChatOpenAI

from flyteplugins.agents.conformance.models import Conversation, ModelServer, Reply, call
from flyteplugins.agents.langchain import AgentResult, FlyteStore, MemoryStore, run_agent, tool
from flyteplugins.agents.langchain._request import normal_messages

RunTask = Callable[..., Any]

MODEL = "openai:gpt-4.1"
env = flyte.TaskEnvironment("deep")

# connections of their own: the packages share a pool for equal time limits, and it belongs to another test's event loop
SECONDS = itertools.count(700)


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


@tool
@env.task(cache="disable")
async def temperature(city: str) -> str:
    """The temperature in a city."""
    return f"{5 * len(city)} degrees"


SUBAGENTS: list[dict[str, Any]] = [
    {
        "name": "north",
        "description": "Knows the north.",
        "system_prompt": "You know the north.",
        "tools": [temperature],
        "model": "openai:gpt-4.1-mini",
    },
    {
        "name": "south",
        "description": "Knows the south.",
        "system_prompt": "You know the south.",
        "tools": [temperature],
    },
]


def two_in_parallel(server: ModelServer) -> None:
    server.script(
        "Which is warmer",
        Reply(
            calls=(
                call("task", description="How warm is Oslo", subagent_type="north"),
                call("task", description="How warm is Rome", subagent_type="south"),
            )
        ),
        "Equal.",
    )
    server.script("How warm is Oslo", Reply(calls=(call("temperature", city="Oslo"),)), "20 in Oslo")
    server.script("How warm is Rome", Reply(calls=(call("temperature", city="Rome"),)), "20 in Rome")


async def test_two_sub_agents_in_parallel_with_their_own_models_replay(
    model_env: ModelServer, run_task: RunTask
) -> None:
    two_in_parallel(model_env)
    results: list[AgentResult[str]] = []

    @env.task
    async def ask() -> str:
        results.append(
            await run_agent("Which is warmer?", model=MODEL, tools=[], subagents=SUBAGENTS, full_result=True)
        )
        return results[-1].output

    assert await run_task(ask) == "Equal."
    assert await run_task(ask) == "Equal."
    assert model_env.journal.count() == 6
    assert model_env.journal.count(model="gpt-4.1-mini") == 2
    fresh, replayed = results
    assert sorted((turn.agent, turn.model, turn.text) for turn in fresh.turns) == sorted(
        (turn.agent, turn.model, turn.text) for turn in replayed.turns
    )
    assert {turn.agent for turn in fresh.turns} == {"flyte-agent", "north", "south"}
    assert all(turn.replayed for turn in replayed.turns)
    assert SUBAGENTS[0]["tools"] == [temperature]


def lose_from(patch: pytest.MonkeyPatch, number: int) -> None:
    """Have the attempt be lost when the turn of a number would be asked."""
    seen = 0
    ask = ChatOpenAI._agenerate

    async def lost(self: ChatOpenAI, *args: Any, **kwargs: Any) -> Any:
        nonlocal seen
        seen += 1
        if seen >= number:
            raise Crash("lost")
        return await ask(self, *args, **kwargs)

    patch.setattr(ChatOpenAI, "_agenerate", lost)


@pytest.mark.parametrize("number", [2, 3, 5, 6])
async def test_an_attempt_that_is_lost_among_parallel_sub_agents_is_gone_on_with(
    model_env: ModelServer, run_task: RunTask, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    two_in_parallel(model_env)

    @env.task
    async def ask() -> str:
        agent = create_deep_agent(MODEL, [], subagents=SUBAGENTS)  # type: ignore[arg-type]
        return str(await run_agent("Which is warmer?", agent=agent))

    with monkeypatch.context() as patch:
        lose_from(patch, number)
        with pytest.raises(Exception, match="lost"):
            await run_task(ask)
    assert 1 <= model_env.journal.count() < 6
    assert await run_task(ask) == "Equal."
    # a request of the sibling's that is on its way when the attempt is lost has no record
    assert 6 <= model_env.journal.count() <= 7
    assert all(model_env.journal.per_turn(user="Which is warmer?")[turn] == 1 for turn in (1, 2))


def write(path: str, content: str) -> Reply:
    return Reply(calls=(call("write_file", file_path=path, content=content),))


async def test_files_are_kept_with_the_transcript_and_a_deleted_file_stays_deleted(
    model_env: ModelServer, run_task: RunTask
) -> None:
    model_env.script("Write both", write("/notes/a.md", "one"), write("/b.md", "two"), "written")
    model_env.script("Delete a", Reply(calls=(call("delete", file_path="/notes/a.md"),)), "deleted")
    model_env.script("What is there", "something", "something")
    files: list[dict[str, Any]] = []

    @env.task
    async def talk(message: str) -> str:
        result = await run_agent(message, model=MODEL, subagents=[], memory_key="ada", full_result=True)
        files.append(result.native.get("files") or {})
        return str(result.output)

    @env.task
    async def listed() -> list[str]:
        return await MemoryStore.for_key("ada").list_paths()

    for _ in range(2):  # the second time it is a resume, and nothing is kept twice
        assert await run_task(talk, message="Write both", name="one") == "written"
    assert {path: file["content"] for path, file in files[-1].items()} == {"/notes/a.md": "one", "/b.md": "two"}
    assert await run_task(talk, message="Delete a", name="two") == "deleted"
    assert await run_task(talk, message="What is there?", name="three") == "something"
    assert {path: file["content"] for path, file in files[-1].items()} == {"/b.md": "two"}
    assert await run_task(listed, name="four") == ["deepagents/files/b.md"]
    assert await run_task(talk, message="Write both", name="one") == "written"  # what it started from, it starts from
    assert await run_task(listed, name="five") == ["deepagents/files/b.md"]
    assert model_env.journal.count() == 6


async def test_files_and_messages_of_earlier_versions_are_taken_over() -> None:
    from flyteplugins.agents.langchain._deep import import_v0, load_files

    content = import_v0(
        {
            "deepagents/history.json": json.dumps([{"role": "user", "content": "Hi"}]).encode(),
            "deepagents/files.json": json.dumps({"/a.md": "text", "/b.md": {"content": ["one", "two"]}}).encode(),
        }
    )
    assert len(content.messages) == 1
    kept = {path: json.dumps(file).encode() for path, file in content.files.items()}
    assert {path: file["content"] for path, file in load_files(kept).items()} == {"/a.md": "text", "/b.md": "one\ntwo"}


async def test_files_outside_of_the_state_are_written_once_and_read_as_they_were(
    model_env: ModelServer, run_task: RunTask, tmp_path: Path
) -> None:
    (tmp_path / "in.md").write_text("first")
    model_env.script(
        "Copy",
        Reply(calls=(call("read_file", file_path="/in.md"),)),
        write("/out.md", "copied"),
        Reply(calls=(call("read_file", file_path="/out.md"), call("grep", pattern="cop"), call("ls", path="/"))),
        "done",
    )

    @env.task
    async def copy() -> str:
        backend = FilesystemBackend(root_dir=tmp_path, virtual_mode=True)
        return str(await run_agent("Copy", model=MODEL, backend=backend))

    assert await run_task(copy) == "done"
    sent = str(model_env.journal.requests()[-1].body)
    assert "first" in sent
    assert "copied" in sent
    (tmp_path / "in.md").write_text("second")
    (tmp_path / "out.md").write_text("mine")
    assert await run_task(copy) == "done"
    assert model_env.journal.count() == 4
    assert (tmp_path / "out.md").read_text() == "mine"


async def test_a_command_is_executed_once(model_env: ModelServer, run_task: RunTask, tmp_path: Path) -> None:
    model_env.script("Run", Reply(calls=(call("execute", command="echo x >> log; wc -l < log"),)), "ran")

    @env.task
    async def run() -> str:
        backend = LocalShellBackend(root_dir=tmp_path, virtual_mode=True, inherit_env=True)
        return str(await run_agent("Run it", model=MODEL, backend=backend))

    for _ in range(3):
        assert await run_task(run) == "ran"
    assert (tmp_path / "log").read_text() == "x\n"
    assert model_env.journal.count() == 2


async def test_each_part_of_a_composite_backend_is_what_it_is_by_itself(
    model_env: ModelServer, run_task: RunTask, tmp_path: Path
) -> None:
    model_env.script(
        "Write", write("/mine.md", "state"), write("/disk/a.md", "disk"), write("/kept/b.md", "item"), "ok"
    )
    found: list[Any] = []

    @env.task
    async def run() -> str:
        store = FlyteStore("composite")
        routes: dict[str, BackendProtocol] = {
            "/disk/": FilesystemBackend(root_dir=tmp_path, virtual_mode=True),
            "/kept/": StoreBackend(store=store, namespace=lambda _: ("files",)),
        }
        backend = CompositeBackend(default=StateBackend(), routes=routes)
        result = await run_agent("Write", model=MODEL, backend=backend, full_result=True)
        found.append(
            (sorted(result.native["files"]), [one.value["content"] for one in await store.asearch(("files",))])
        )
        return str(result.output)

    assert await run_task(run) == "ok"
    (tmp_path / "a.md").write_text("mine")
    assert await run_task(run) == "ok"
    assert found == [(["/mine.md"], ["item"])] * 2
    assert (tmp_path / "a.md").read_text() == "mine"
    assert model_env.journal.count() == 4


async def test_a_backend_that_hides_the_state_is_refused(model_env: ModelServer, run_task: RunTask) -> None:
    class Hiding(BackendProtocol):
        inner = StateBackend()

        def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
            return self.inner.read(file_path, offset, limit)

        def write(self, file_path: str, content: str) -> WriteResult:
            return self.inner.write(file_path, content)

    model_env.script("Write", write("/a.md", "one"), "ok")

    @env.task
    async def run() -> str:
        return str(await run_agent("Write", model=MODEL, backend=Hiding()))

    with pytest.raises(Exception, match="Use a CompositeBackend"):
        await run_task(run)


def summarizing(model: Any = MODEL) -> Any:
    """A deep agent that soon moves old messages to a file."""
    backend = StateBackend()
    summarizer = SummarizationMiddleware(
        model=ChatOpenAI(model="gpt-4.1-mini", timeout=next(SECONDS)),
        backend=backend,
        trigger=("messages", 6),
        keep=("messages", 2),
    )
    return create_deep_agent(model, [temperature], backend=backend, middleware=[summarizer])


def next_city(conversation: Conversation) -> Reply:
    """Asks for the first city that nobody has spoken of."""
    said = str(conversation.messages)
    for city in ("Oslo", "Rome", "Bonn"):
        if city not in said:
            return Reply(calls=(call("temperature", city=city),))
    return Reply("warm")


def script_long_talk(server: ModelServer) -> None:
    server.script(None, "They spoke of Oslo and Rome.", repeat_last=True, model="gpt-4.1-mini")
    server.script(None, next_city, repeat_last=True, model="gpt-4.1")


async def test_names_and_times_that_deep_agents_makes_up_do_not_change_keys(
    model_env: ModelServer, run_task: RunTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_long_talk(model_env)
    paths: list[list[str]] = []

    @env.task
    async def talk() -> str:
        result = await run_agent("Long", agent=summarizing(), full_result=True)
        paths.append(sorted(result.native["files"]))
        return str(result.output)

    with monkeypatch.context() as patch:
        lose_from(patch, 5)
        with pytest.raises(Exception, match="lost"):
            await run_task(talk)
    for _ in range(2):
        assert await run_task(talk) == "warm"
        assert sorted(str(entry.model) for entry in model_env.journal.requests()) == ["gpt-4.1"] * 4 + ["gpt-4.1-mini"]
    assert paths[0] == paths[1]
    assert paths[0][0].startswith("/conversation_history/session_")
    assert paths[0][0] in str(model_env.journal.requests(model="gpt-4.1")[-1].body)


def test_the_time_at_which_messages_were_moved_is_no_part_of_a_key() -> None:
    def read(seconds: str) -> object:
        text = f"1  ## Summarized at 2026-11-29T10:00:{seconds}+00:00\n2  Hi at 10:00:{seconds[:2]}"
        return normal_messages([ToolMessage(text, tool_call_id="a"), HumanMessage([{"type": "text", "text": text}])])

    assert read("07.123456") == read("07")
    assert read("07") != read("08")  # what a person wrote stays


@pytest.mark.parametrize("where", ["the agent", "a sub-agent"])
async def test_two_tools_of_one_name_are_refused(where: str) -> None:
    def one() -> str:
        """One."""
        return ""

    both = [tool(one, name="look"), tool(one, name="look")]
    options: dict[str, Any] = {"tools": both}
    if where == "a sub-agent":
        options = {"subagents": [{"name": "north", "description": "Knows.", "tools": both}]}
    with pytest.raises(ValueError, match="more than one tool named look"):
        await run_agent("Hi", model=MODEL, **options)


async def test_tools_that_a_graph_would_have_to_be_given_are_refused_with_a_reason(model_env: ModelServer) -> None:
    for agent in (create_deep_agent(MODEL), create_agent(MODEL)):
        with pytest.raises(ValueError, match="together with tools"):
            await run_agent("Hi", agent=agent, tools=[temperature])  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="together with subagents"):
            await run_agent("Hi", agent=agent, subagents=[])  # type: ignore[call-overload]


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepagents", None)
    with pytest.raises(ImportError, match=r"subagents= makes a deep agent.*langchain\[deepagents\]"):
        await run_agent("Hi", model=MODEL, subagents=[])


MODELS: dict[str, Callable[[], Any]] = {
    "openai": lambda: ChatOpenAI(model="gpt-4.1", timeout=next(SECONDS)),
    "anthropic": lambda: ChatAnthropic(model="claude-sonnet-4-5", timeout=next(SECONDS), stop=None, max_tokens=4096),
}


@pytest.mark.parametrize("provider", list(MODELS))
async def test_prompt_caching_and_summaries_are_what_they_are_without_us(
    model_env: ModelServer, run_task: RunTask, provider: str
) -> None:
    model_env.script(None, "They spoke of Oslo and Rome.", repeat_last=True, model="gpt-4.1-mini")
    model_env.script(None, next_city, repeat_last=True)

    def agent() -> Any:
        return summarizing(model=MODELS[provider]())

    states: list[Any] = []

    @env.task
    async def durable() -> str:
        result = await run_agent("Go on", agent=agent(), full_result=True)
        states.append(result.native)
        return str(result.output)

    bare = await agent().ainvoke({"messages": [HumanMessage("Go on")]})
    sent = bodies(model_env)
    model_env.journal.clear()
    assert await run_task(durable) == "warm"
    assert bodies(model_env) == sent
    assert len(sent) == 5
    assert ("cache_control" in str(sent)) == (provider == "anthropic")
    assert await run_task(durable) == "warm"
    assert model_env.journal.count() == 5
    for state in states:
        assert still([message_to_dict(one) for one in state["messages"]]) == still(
            [message_to_dict(one) for one in bare["messages"]]
        )
        assert list(map(still, state["files"])) == list(map(still, bare["files"]))


def bodies(server: ModelServer) -> list[Any]:
    """What was sent, by model: two models are asked on connections of their own, and noted by threads of their own."""
    return [still(entry.body) for entry in sorted(server.journal.requests(), key=lambda entry: str(entry.model))]


def still(value: Any) -> Any:
    """A value without the names that the SDK makes up."""
    text = json.dumps(value, sort_keys=True, default=str)
    return json.loads(
        re.sub(
            r"session_[0-9a-f]{32}|(chatcmpl-|msg_)[0-9a-f]{8,}|lc_run--[0-9a-f-]+|lc_[0-9a-f-]{36}|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}",
            "id",
            text,
        )
    )
