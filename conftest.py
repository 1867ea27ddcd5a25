"""What every test of the workspace has: an offline model server, and a home of its own."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import certifi
import flyte
import pytest

from flyteplugins.agents.conformance.crash.testing import CrashSuite, ForkServers, ThoroughCrashSuite, fork_servers
from flyteplugins.agents.conformance.local import METADATA, LocalRuns
from flyteplugins.agents.conformance.models import ModelServer

__all__ = ["fork_servers"]

pytest_plugins = ["flyteplugins.agents.conformance.models.testing"]


COLLECTED = pytest.StashKey[set[str]]()


@pytest.fixture(scope="session")
def collected(pytestconfig: pytest.Config) -> set[str]:
    """The tests that were found in what was asked for, also those that are left out."""
    return pytestconfig.stash[COLLECTED]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--thorough`: see `make test-thorough`."""
    parser.addoption(
        "--thorough", action="store_true", help="also what takes long and mostly repeats what is tested anyway"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no core is idle at the end; what is only for `--thorough` is left out."""
    config.stash[COLLECTED] = {item.nodeid for item in items}
    items.sort(key=lambda item: "crash" not in item.path.name)
    if config.getoption("thorough") or any(
        "::" in argument for argument in config.args
    ):  # a test that is asked for by name
        return
    left_out = {*_crashes_of_others(items), *(item for item in items if item.get_closest_marker("thorough"))}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


SHARE = 4
"""Of the places to die at, an adapter's crash suite takes one in so many."""


def _crashes_of_others(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The places to die at that are another adapter's turn: they are core's, and all adapters together go through all of them."""
    suites: dict[type[CrashSuite], dict[str, list[pytest.Function]]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and isinstance(item.cls, type) and issubclass(item.cls, CrashSuite):
            suites.setdefault(item.cls, {}).setdefault(item.originalname, []).append(item)
    adapters: set[str] = set()
    for turn, suite in enumerate(sorted(suites, key=lambda suite: (suite.__module__, suite.__name__))):
        again = suite.dialogue.adapter in adapters
        adapters.add(suite.dialogue.adapter)
        for name, tests in suites[suite].items():
            if again and "small" in tests[0].fixturenames:  # not of the dialogue, but of the adapter
                yield from tests
            elif name == "test_a_backend_that_is_late_and_forgets_makes_no_difference":
                yield from () if issubclass(suite, ThoroughCrashSuite) else tests
            elif len(tests) >= SHARE:
                yield from (test for number, test in enumerate(tests) if number % SHARE != turn % SHARE)


@pytest.fixture(scope="session", autouse=True)
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """One certificate to trust in place of all, since reading them takes each client of HTTPS 70 ms.

    What the environment named before is for a test that does ask such a server.
    """
    named = os.environ.get("SSL_CERT_FILE")
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----")
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(f"{first}{end}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield named


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


@pytest.fixture(scope="session")
def sdk_modules() -> tuple[str, ...]:
    """The SDK that processes have imported before they run a program; an adapter's tests name their own in their conftest."""
    return (
        "flyteplugins.agents.openai.*",
        "agents.mcp.server",
        "httpcore2",
        "openai.lib.streaming.responses",
        "openai.resources.responses.responses",
        "openai.types.responses:Response.model_rebuild",
        "openai.types.responses.parsed_response:ParsedResponse.model_rebuild",
    )


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
