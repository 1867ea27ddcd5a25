"""A reader who knows one adapter knows them all: the same file names for the same jobs, and what two would write is in core."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LONGEST_CLONE = 20
"""Lines that two adapters may share in a row: the keywords of `run_agent` are promised to be the same in all of them."""

EVERYWHERE = {
    "__init__.py": "the names that it exports",
    "_agent.py": "the SDK's agent, built from what run_agent is given",
    "_codec.py": "how turns are kept",
    "_errors.py": "what each exception of the SDK means",
    "_function_tools.py": "tools that are recorded as inline leaves, or run as tasks, in the SDK's terms",
    "_options.py": "the keywords of run_agent as types",
    "_request.py": "what a turn's key is made of",
    "_run.py": "run_agent",
    "_tool.py": "tool",
}

NOT_EVERYWHERE = {
    "_model.py": (
        "the model seam",
        {"claude": "the model is asked by another process: the seam is the server that it asks, in _proxy.py"},
    ),
    "_session.py": (
        "memory in the SDK's terms",
        {"pydantic_ai": "the SDK's history is a list of messages, which core's RunMemory keeps as it is"},
    ),
    "_seams.py": (
        "the places in the SDK that a run passes through, where they have to be patched",
        {
            "claude": "nothing of the SDK is patched: its process is told another address",
            "mistral": "nothing of the SDK is patched: the run speaks through a client of its own",
        },
    ),
    "_mcp.py": (
        "MCP servers of an agent run",
        {
            "langchain": "the SDK makes tools of a server's, which are recorded as its own tools are",
            "pydantic_ai": "MCP servers are toolsets, which the SDK's durable surface, in _durability.py, brings by",
        },
    ),
    "_clients.py": (
        "connections of the running event loop",
        {
            "adk": "the SDK's client is made for each run",
            "claude": "the API is asked by _upstream.py",
            "pydantic_ai": "the SDK's providers take a client of the running loop",
        },
    ),
    "_approvals.py": (
        "the SDK's own approvals",
        {
            "mistral": "`requires_confirmation` is the same as `requires_approval`, which core does",
        },
    ),
    "_repair.py": (
        "kept messages as the provider accepts them",
        {
            "adk": "part of _session.py: events are mended where state is read from them",
            "claude": "part of _session.py: messages are mended where the session store gives them",
            "langchain": "part of _session.py: the SDK has a function for it",
            "mistral": "part of _session.py: entries are mended where the server's state is",
        },
    ),
    "_turns.py": (
        "one run of the SDK's own loop",
        {
            "adk": "the SDK's runner is called in _run.py, and its events are read in _outcome.py",
            "langchain": "a graph is run in _graph.py",
            "openai": "the SDK's runner is one call, in _run.py",
            "pydantic_ai": "the SDK's agent is one call, in _run.py",
        },
    ),
    "_user_session.py": (
        "a session of the caller's",
        {
            "claude": "the session store is ours: the caller's cannot be told what a replay left out",
            "langchain": "what the caller keeps a conversation in is a checkpointer, in _thread.py",
            "mistral": "what keeps a conversation is the server, in _server_state.py",
            "pydantic_ai": "what keeps a conversation is a store, in _conversation_store.py",
        },
    ),
    "_output.py": (
        "the type of the answer",
        dict.fromkeys(("adk", "langchain", "openai", "pydantic_ai"), "the SDK takes the type as it is"),
    ),
    "_native_tool.py": (
        "the SDK's tool object of a tool",
        dict.fromkeys(("claude", "mistral", "openai", "pydantic_ai"), "a few lines, in _tool.py"),
    ),
}

ONE_ONLY = {
    "adk": {
        "_arguments.py": "ADK gives a function what the model said as it is",
        "_artifacts.py": "only ADK has artifact services",
        "_code.py": "only ADK runs code that a model wrote in the agent's process",
        "_loop.py": "ADK runs tools on loops of its own",
        "_model_error.py": "ADK makes responses of errors",
        "_outcome.py": "ADK tells what came of a run in events only",
        "_services.py": "only ADK has memory and artifact services",
        "_session_service.py": "only ADK has services of sessions, with state of apps and users",
        "_telemetry.py": "only ADK makes spans of its own of what is replayed, for everybody's exporter",
    },
    "claude": {
        "_context.py": "the SDK calls the caller's functions from tasks of its own, outside of the run's context",
        "_fallback.py": "only Claude Code may ask where no server of ours can stand between",
        "_process.py": "only Claude Code is a process of its own",
        "_proxy.py": "only Claude Code has to be recorded over HTTP",
        "_upstream.py": "what Claude Code's requests are asked with",
    },
    "langchain": {
        "_backends.py": "only Deep Agents have files outside of a state",
        "_blocking.py": "LangChain's interfaces come twice, sync and async",
        "_bridge.py": "LangChain's interfaces come twice, sync and async",
        "_checkpointer.py": "only LangGraph has checkpointers",
        "_deep.py": "Deep Agents are built in another way",
        "_graph.py": "an agent is a graph, which is run and read as one",
        "_nodes.py": "only LangGraph runs an interrupted node again",
        "_state_folder.py": "what LangGraph's checkpointer and store share",
        "_store.py": "only LangGraph has stores beside its checkpoints",
        "_thread.py": "only LangGraph has threads",
    },
    "mistral": {
        "_backoff.py": "the SDK repeats requests in a way that hides the answer's headers",
        "_deferred.py": "only here a later run may bring the answers to calls that an earlier one left waiting",
        "_entries.py": "the SDK's conversations have entries in several forms",
        "_server_state.py": "the server may keep the conversation",
    },
    "openai": {
        "_events.py": "the Responses API streams events that have to add up to a response",
        "_hooks.py": "the SDK tells of hand-offs in hooks only",
        "_local_tools.py": "the SDK has tools that act on this machine",
        "_retries.py": "the SDK's runner repeats requests by itself",
        "_spans.py": "the SDK's tracing tells of spans, which are events here",
        "_stream.py": "a stream may end without an answer, and say so in no exception",
        "_tracing.py": "the SDK has a tracing of its own",
    },
    "pydantic_ai": {
        "_conversation_store.py": "the SDK has an interface for stores of conversations",
        "_durability.py": "the SDK has an interface for engines that make it durable",
        "_invoker.py": "the SDK's surface of durability wants to know a tool's function again",
    },
}


def files_of(adapter: str) -> set[str]:
    """The modules of an adapter."""
    return {
        file.name for file in (ROOT / "plugins" / adapter / "src" / "flyteplugins" / "agents" / adapter).glob("*.py")
    }


ADAPTERS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml") if file.parent.name != "core")


def test_the_same_job_has_the_same_file_name_in_every_adapter() -> None:
    for adapter in ADAPTERS:
        assert set(EVERYWHERE) - files_of(adapter) == set(), adapter


def test_where_an_adapter_has_no_file_of_a_name_that_others_have_there_is_a_reason() -> None:
    for name, (job, reasons) in NOT_EVERYWHERE.items():
        without = {adapter for adapter in ADAPTERS if name not in files_of(adapter)}
        assert without == set(reasons), f"{name}: {job}"
        assert len(ADAPTERS) - len(without) > 1, f"{name} is in one adapter only"


def test_a_file_that_only_one_adapter_has_does_what_only_its_sdk_needs() -> None:
    for adapter in ADAPTERS:
        own = files_of(adapter) - set(EVERYWHERE) - set(NOT_EVERYWHERE)
        assert own == set(ONE_ONLY[adapter]), adapter
    names = [name for own in ONE_ONLY.values() for name in own]
    assert len(set(names)) == len(names), "a name is in two adapters: say in NOT_EVERYWHERE why not in the others"


def test_each_adapters_page_names_the_versions_of_the_sdk_that_it_takes() -> None:
    sdks = re.compile(r"(?:claude-agent-sdk|google-adk|lang\w+(?:-core)?|mistralai|openai-agents|pydantic-ai-slim)\b")
    for adapter in ADAPTERS:
        page = (ROOT / "plugins" / adapter / "README.md").read_text()
        declared = tomllib.loads((ROOT / "plugins" / adapter / "pyproject.toml").read_text())["project"]["dependencies"]
        named = [requirement for requirement in declared if sdks.match(requirement)]
        assert named, adapter
        assert [requirement for requirement in named if f"`{requirement}`" not in page] == [], adapter


def clones(sources: list[Path], lines: int) -> list[str]:
    """Runs of more than some lines that stand in two adapters, without imports, comments and docstrings."""
    sources = suspects(sources, lines)
    if not sources:
        return []
    options = ("--ignore-imports", "--ignore-comments", "--ignore-docstrings", "-d", str(lines))  # more than that
    command = [str(Path(sys.executable).with_name("symilar")), *options, *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "TOTAL lines=" in done.stdout, done.stdout
    found = []
    for block in re.split(r"^\d+ similar lines in \d+ files$", done.stdout, flags=re.MULTILINE)[1:]:
        places = re.findall(r"^==(.+):\[(\d+):(\d+)\]$", block, re.MULTILINE)
        adapters = {re.findall(r"/plugins/(\w+)/src/", path)[0] for path, _, _ in places}
        if len(adapters) > 1:
            found.append(" ~ ".join(f"{path}:{int(first) + 1}-{last}" for path, first, last in places))
    return found


def suspects(sources: list[Path], lines: int) -> list[Path]:
    """Files that share more than some lines with one of another adapter; comparing all as they should be takes a minute."""
    adapters: dict[tuple[str, ...], set[str]] = {}
    windows: dict[Path, set[tuple[str, ...]]] = {}
    for source in sources:
        left = code_lines(source.read_text())
        windows[source] = {tuple(left[at : at + lines + 1]) for at in range(len(left) - lines)}
        [adapter] = re.findall(r"/plugins/(\w+)/src/", str(source))
        for window in windows[source]:
            adapters.setdefault(window, set()).add(adapter)
    return [source for source, its in windows.items() if any(len(adapters[window]) > 1 for window in its)]


def code_lines(source: str) -> list[str]:
    """Lines without indentation, and without imports, comments, docstrings and empty lines."""
    lines = source.splitlines()
    for kind, _, (line, column), _, _ in tokenize.generate_tokens(io.StringIO(source).readline):
        if kind == tokenize.COMMENT:
            lines[line - 1] = lines[line - 1][:column]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                first, last = node.lineno - 1, node.end_lineno or node.lineno
                lines[first:last] = [""] * (last - first)
    return [line.strip() for line in lines if line.strip()]


def test_what_two_adapters_would_write_is_in_core() -> None:
    sources = [file for adapter in ADAPTERS for file in sorted(ROOT.glob(f"plugins/{adapter}/src/**/*.py"))]
    assert len(sources) > 100
    assert clones(sources, LONGEST_CLONE) == []


def test_a_clone_is_found(tmp_path: Path) -> None:
    sources = []
    for adapter in ("one", "two"):
        source = tmp_path / "plugins" / adapter / "src" / "_run.py"
        source.parent.mkdir(parents=True)
        source.write_text(f'"""Of {adapter}."""\n' + "".join(f"number_{line} = {line}\n" for line in range(21)))
        sources.append(source)
    [found] = clones(sources, 20)
    assert found.count("_run.py:2-22") == 2
    assert clones(sources, 21) == []
