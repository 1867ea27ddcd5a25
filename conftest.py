"""What every test of the workspace has: an offline model server, and a home of its own."""

from __future__ import annotations

import functools
import shutil
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import flyte
import pytest

from flyteplugins.agents.conformance.local import METADATA, ForkServer, LocalRuns
from flyteplugins.agents.conformance.models import ModelServer

pytest_plugins = ["flyteplugins.agents.conformance.models.testing"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no core is idle at the end."""
    items.sort(key=lambda item: "crash" not in item.path.name)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own: Flyte's local cache and memories outlive runs."""
    path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("FLYTE_AGENTS_HOME", raising=False)
    return path


@pytest.fixture
def run_name() -> str:
    """A name that no other run has."""
    return f"test-{uuid.uuid4().hex[:12]}"


ForkServers = Callable[..., tuple[ForkServer, ...]]


@pytest.fixture(scope="session")
def fork_servers() -> Iterator[ForkServers]:
    """Starts two servers that have imported some modules, with different hash seeds: a resume never has its predecessor's."""
    with ExitStack() as stack:

        @functools.cache
        def start(*modules: str) -> tuple[ForkServer, ...]:
            return tuple(stack.enter_context(ForkServer(modules, hash_seed=seed)) for seed in (1, 2))

        yield start


@pytest.fixture(scope="session")
def sdk_modules() -> tuple[str, ...]:
    """The SDK that processes have imported before they run a program; an adapter's tests name their own in their conftest."""
    return ("agents",)


@pytest.fixture
def local_runs(
    home: Path, model_server: ModelServer, fork_servers: ForkServers, sdk_modules: tuple[str, ...]
) -> Iterator[LocalRuns]:
    """Starts runs in processes of their own, against the offline model server."""
    runs = LocalRuns(home, model_server.env(), fork_servers(*sdk_modules))
    yield runs
    runs.remove()


@pytest.fixture
def fresh_local_runs(home: Path, model_server: ModelServer) -> Iterator[LocalRuns]:
    """The same, with processes that start from nothing."""
    runs = LocalRuns(home, model_server.env())
    yield runs
    runs.remove()


RunTask = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture
def run_folder(run_name: str) -> Iterator[Callable[[str], Path]]:
    """Where the test's runs in this process are, by the names that the test gives them; removed afterwards."""

    def folder(name: str = "") -> Path:
        return METADATA / (f"{run_name}-{name}" if name not in ("", run_name) else run_name)

    yield folder
    for kept in METADATA.glob(f"{run_name}*"):
        shutil.rmtree(kept, ignore_errors=True)
        shutil.rmtree(METADATA.with_name("raw_data") / kept.name, ignore_errors=True)


@pytest.fixture
def run_task(run_folder: Callable[[str], Path]) -> RunTask:
    """Runs a task in this process with `flyte run --local` semantics, and returns its output or raises its error.

    Running it again under the same name is what a resume in another process does: only storage is shared.
    """

    async def run(task: Any, *args: Any, name: str = "", **inputs: Any) -> Any:
        await flyte.init.aio()
        runner = flyte.with_runcontext(mode="local", name=run_folder(name).name)
        result = await runner.run.aio(task, *args, **inputs)
        outputs = result.outputs()
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run
