"""What the tests of core share: code that runs inside a real Flyte task, and agent runs with little to say."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flyte
import pytest

from flyteplugins.agents.core import JSON, AgentRun, ErrorClass, JsonCodec, Recorded, Recorder, agent_run

env = flyte.TaskEnvironment("core-tests")

Body = Callable[[], Awaitable[Any]]
StartAgent = Callable[..., AbstractAsyncContextManager[AgentRun]]

_BODIES: dict[str, Body] = {}
_RETURNED: dict[str, Any] = {}
_RAISED: dict[str, BaseException] = {}
_FOLDERS: dict[str, Path] = {}


class Killed(BaseException):
    """Ends an attempt as a killed process would: no `except Exception` sees it."""


@env.task
async def work(ticket: str) -> str:
    _FOLDERS[ticket] = Path(flyte.ctx().run_base_dir)
    try:
        _RETURNED[ticket] = await _BODIES[ticket]()
    except BaseException as error:
        _RAISED[ticket] = error
        raise
    return ""


@dataclass
class Attempts:
    """Runs coroutine functions inside a Flyte task, each call as one attempt of it.

    Under the same name the next attempt finds what this one stored, and nothing else.

    Attributes:
        run_task: Runs a task.
        name: The run's name.
        died: Whether an attempt was killed so far.
    """

    run_task: Callable[..., Awaitable[Any]]
    name: str
    died: bool = False

    async def __call__(self, body: Body, *, name: str | None = None) -> Any:
        """Return or raise what the body did; a body that raises `Killed` leaves what a killed process leaves."""
        ticket = name or self.name
        _BODIES[ticket] = body
        failure: BaseException | None = None
        try:
            await self.run_task(work, ticket=ticket, name=ticket)
        except BaseException as error:  # noqa: BLE001 - Flyte's translation of it: the caller gets the original
            failure = _RAISED.pop(ticket, error)
        if failure is None:
            return _RETURNED.pop(ticket)
        if not isinstance(failure, Killed):
            raise failure
        self.died = True
        return None

    @property
    def folder(self) -> Path:
        """Where the run keeps our records."""
        return _FOLDERS[self.name] / "flyte-agents"

    def report(self) -> str:
        """The report of the last attempt."""
        [file] = self.folder.parent.rglob("report.html")
        return file.read_text()

    def files(self, prefix: str = "") -> list[Path]:
        """Our files whose name begins with something."""
        return sorted(file for file in self.folder.rglob(f"{prefix}*") if file.is_file())


@pytest.fixture
def attempt(run_task: Callable[..., Awaitable[Any]], run_name: str) -> Iterator[Attempts]:
    """Runs code inside a Flyte task, each call as one attempt of it."""
    yield Attempts(run_task, run_name)
    for name, folder in list(_FOLDERS.items()):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(Path("/tmp/flyte/raw_data", folder.name), ignore_errors=True)  # where Flyte puts it
        del _FOLDERS[name]
        _BODIES.pop(name, None)


@pytest.fixture
def killed() -> type[BaseException]:
    """What a body raises to end its attempt as a killed process would."""
    return Killed


@pytest.fixture
def start_agent() -> StartAgent:
    """Begins an agent run; what a test does not care about has a default."""

    def start(
        name: str = "agent", input: object = "Hello", *, configuration: dict[str, object] | None = None, **options: Any
    ) -> AbstractAsyncContextManager[AgentRun]:
        options.setdefault("classify", lambda error: ErrorClass.RETRY_ATTEMPT)
        options.setdefault("memory_key", None)
        options.setdefault("observability", False)
        return agent_run(
            framework="test", name=name, input=input, configuration=configuration or {"model": "m"}, **options
        )

    return start


@dataclass
class Model:
    """Stands in for a model: answers, or fails, and remembers what it was asked.

    Attributes:
        answers: What it says to a question. An exception is raised, a function is awaited, and of a list the next one is taken.
        asked: The questions, in order.
    """

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def answer(self, question: str) -> JSON:
        self.asked.append(question)
        answer = self.answers.get(question, f"answer to {question}")
        if isinstance(answer, list):
            answer = answer.pop(0)
        if callable(answer):
            answer = await answer()
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    async def ask(self, recorder: Recorder, question: str, **options: Any) -> Recorded[JSON]:
        """One recorded turn."""
        options.setdefault("codec", JsonCodec())
        return await recorder.record("turn", {"question": question}, lambda: self.answer(question), **options)

    async def say(self, recorder: Recorder, question: str) -> JSON:
        """One recorded turn's answer."""
        return (await self.ask(recorder, question)).value

    def asked_since(self) -> list[str]:
        """What it was asked since the last time somebody wanted to know."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def model() -> Model:
    return Model()
